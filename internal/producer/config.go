// Package producer is the client half of Kafka transactions: one producer with
// an identity, its batches in flight, and commits with three outcomes.
//
// kgo is the connection layer only (metadata, SASL, TLS, routing). What may be
// sent when, and what each answer means, is decided in package core; this
// package encodes requests, runs timers and holds the records.
//
// A Producer is used by one goroutine. Only Close, Stats and
// Partition.AckedOffset may be called from others.
package producer

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/internal/producer/core"
)

// Outcome is how a commit ended.
type Outcome = core.Outcome

// The outcomes of a commit. Unknown must be resolved by Recover before
// anything that depends on the transaction advances.
const (
	Unknown   = core.Unknown
	Committed = core.Committed
	Aborted   = core.Aborted
)

// Compression is the codec of batches, numbered as in their attributes.
type Compression int8

// The codecs of Kafka. A batch that does not get smaller is sent plain.
const (
	CompressionNone   Compression = 0
	CompressionGzip   Compression = 1
	CompressionSnappy Compression = 2
	CompressionLz4    Compression = 3
	CompressionZstd   Compression = 4
)

// Config configures a Producer. Only the clients are required.
type Config struct {
	// Data carries Produce and Metadata, Control everything else. They must
	// be two clients: kgo holds back all requests to a broker that throttles
	// one of them. The caller owns and closes both, after Close.
	Data, Control *kgo.Client

	// TransactionalID makes the producer transactional; empty means
	// idempotent only.
	TransactionalID string
	// TransactionTimeout is after how long the coordinator aborts an open
	// transaction (10 s, as in Kafka Streams). The broker caps it at
	// transaction.max.timeout.ms.
	TransactionTimeout time.Duration
	// TransactionVersionMax caps the protocol: 1 forces transaction.version
	// 1, 0 takes the cluster's.
	TransactionVersionMax int16

	Compression Compression
	// Linger is how long a batch waits for more records (5 ms). Flush and
	// Commit do not wait for it.
	Linger time.Duration
	// BatchMaxBytes is the size, before compression, at which a batch is
	// sealed (256 KiB). A larger record travels in a batch of its own.
	BatchMaxBytes int
	// MaxBufferedBytes bounds the records held, open and unacknowledged
	// (32 MiB, at least two batches). Append blocks at the limit.
	MaxBufferedBytes int

	// DeliveryTimeout bounds the time from sealing a batch to its
	// acknowledgement (120 s).
	DeliveryTimeout time.Duration
	// RequestTimeout bounds one request (30 s).
	RequestTimeout time.Duration
	// EndTxnTimeout bounds EndTxn of a commit with its retries; then the
	// outcome is Unknown (30 s). The context of Commit does not shorten it.
	EndTxnTimeout time.Duration
	// RetryBackoff doubles per attempt up to RetryBackoffMax (20 ms, 1 s).
	RetryBackoff, RetryBackoffMax time.Duration

	// Logger receives warnings about failed transactions and debug lines
	// about retries; nil discards them.
	Logger *slog.Logger

	net      network    // tests put a fake here
	breaking core.Break // negative controls
}

const (
	defaultBatchBytes    = 256 << 10
	defaultBufferedBytes = 32 << 20
	batchBytesMin        = 1 << 10
)

// check fills in the defaults and refuses what cannot work.
func (c *Config) check() error {
	if c.net == nil && (c.Data == nil || c.Control == nil) {
		return fmt.Errorf("producer: %w: Data and Control clients are required", ErrInvalidConfig)
	}
	if c.net == nil && c.Data == c.Control {
		return fmt.Errorf("producer: %w: Data and Control must be two clients", ErrInvalidConfig)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"TransactionTimeout", &c.TransactionTimeout, 10 * time.Second},
		{"Linger", &c.Linger, 5 * time.Millisecond},
		{"DeliveryTimeout", &c.DeliveryTimeout, 120 * time.Second},
		{"RequestTimeout", &c.RequestTimeout, 30 * time.Second},
		{"EndTxnTimeout", &c.EndTxnTimeout, 30 * time.Second},
		{"RetryBackoff", &c.RetryBackoff, 20 * time.Millisecond},
		{"RetryBackoffMax", &c.RetryBackoffMax, time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < time.Millisecond || d.value.Milliseconds() > 1<<31-1 {
			return fmt.Errorf("producer: %w: %s is %v, it must be between 1 ms and 24 days", ErrInvalidConfig, d.name, *d.value)
		}
	}
	if c.Compression < CompressionNone || c.Compression > CompressionZstd {
		return fmt.Errorf("producer: %w: compression %d is unknown", ErrInvalidConfig, c.Compression)
	}
	if c.BatchMaxBytes == 0 {
		c.BatchMaxBytes = defaultBatchBytes
	}
	if c.BatchMaxBytes < batchBytesMin || c.BatchMaxBytes > 512<<20 {
		return fmt.Errorf("producer: %w: BatchMaxBytes is %d, it must be between 1 KiB and 512 MiB", ErrInvalidConfig, c.BatchMaxBytes)
	}
	if c.MaxBufferedBytes == 0 {
		c.MaxBufferedBytes = max(defaultBufferedBytes, 2*c.BatchMaxBytes)
	}
	if c.MaxBufferedBytes < 2*c.BatchMaxBytes {
		return fmt.Errorf("producer: %w: MaxBufferedBytes is %d, it must hold two batches of %d",
			ErrInvalidConfig, c.MaxBufferedBytes, c.BatchMaxBytes)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (c *Config) core() core.Config {
	return core.Config{
		Transactional:         c.TransactionalID != "",
		TransactionVersionMax: c.TransactionVersionMax,
		DeliveryTimeoutMs:     c.DeliveryTimeout.Milliseconds(),
		RequestTimeoutMs:      c.RequestTimeout.Milliseconds(),
		EndTxnTimeoutMs:       c.EndTxnTimeout.Milliseconds(),
		RetryBackoffMs:        c.RetryBackoff.Milliseconds(),
		RetryBackoffMaxMs:     c.RetryBackoffMax.Milliseconds(),
		Break:                 c.breaking,
	}
}
