// Package core is the deterministic half of the transactional producer: which
// request may be sent when, what each reply means for the open transaction,
// and how a broken one is resolved.
//
// It is one machine with one entry point, Machine.Step: an event goes in
// (an API call, a reply, the written signal of a request, a tick), effects
// come out (requests to send, batches to release, an operation to finish, the
// time of the next tick). The package is pure: no goroutine, clock, I/O,
// randomness, logging or lock; the same events give the same effects.
//
// The state that matters: the identity (producer id and epoch), per partition
// the unacknowledged batches in sequence order, and the transaction. A
// transaction that has suffered any failure is "poisoned" and can no longer
// commit; a commit whose answer was lost is "unknown" and blocks everything
// but Recover.
package core

import "github.com/hanbeon/hanbeon/internal/batch"

// Identity is what the brokers know a producer by (KIP-98).
type Identity struct {
	ProducerID batch.ProducerID
	Epoch      batch.Epoch
}

// NoIdentity is the identity of a producer that was never initialised.
var NoIdentity = Identity{ProducerID: batch.NoProducerID, Epoch: batch.NoEpoch}

// NoNode is the broker id of an unknown leader or coordinator.
const NoNode int32 = -1

// Outcome is how a commit ended.
type Outcome uint8

// The outcomes. Unknown is the zero value so that a forgotten outcome never
// reads as a commit.
const (
	Unknown Outcome = iota
	Committed
	Aborted
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Committed:
		return "committed"
	case Aborted:
		return "aborted"
	}
	return "unknown"
}

// Config holds the policy of a Machine. All times are milliseconds; zero
// values are replaced by the defaults named here.
type Config struct {
	// Transactional is false for a producer that is idempotent only.
	Transactional bool
	// TransactionVersionMax caps the transaction protocol: 1 forces version 1,
	// 0 takes what the cluster has.
	TransactionVersionMax int16
	// DeliveryTimeoutMs bounds the time from sealing a batch to its
	// acknowledgement (120 s).
	DeliveryTimeoutMs int64
	// RequestTimeoutMs bounds one control request (30 s). Produce requests
	// are never given up: they end when the connection says so.
	RequestTimeoutMs int64
	// EndTxnTimeoutMs bounds EndTxn(commit) with all its retries, after which
	// the outcome is unknown (30 s).
	EndTxnTimeoutMs int64
	// RetryBackoffMs doubles per attempt up to RetryBackoffMaxMs (20 ms, 1 s).
	RetryBackoffMs    int64
	RetryBackoffMaxMs int64
	// SettleMaxMs bounds the wait for the previous transaction to complete at
	// its coordinator before the next one writes (200 ms).
	SettleMaxMs int64
	// RequestMaxBytes bounds the batches of one Produce request (4 MiB).
	RequestMaxBytes int
	// Break disables protections; only negative controls in tests set it.
	Break Break
}

// Break lists protections that a negative control may disable. With any of
// them set, the checkers that guard the property must go red.
type Break struct {
	OrderingGate     bool // send the next request before the last was written
	Window           bool // no limit of batches beyond the oldest unacknowledged
	FreshIdentity    bool // no stop-and-wait for a fresh identity
	UnknownIsAborted bool // a commit without an answer is reported as aborted
	Poison           bool // a failed batch does not stop the commit
}

const (
	windowBatches       = 5 // what a broker remembers per producer and partition
	requestsInFlightMax = 5 // per broker
)

func (c *Config) setDefaults() {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.DeliveryTimeoutMs, 120_000)
	def(&c.RequestTimeoutMs, 30_000)
	def(&c.EndTxnTimeoutMs, 30_000)
	def(&c.RetryBackoffMs, 20)
	def(&c.RetryBackoffMaxMs, 1_000)
	def(&c.SettleMaxMs, 200)
	if c.RequestMaxBytes <= 0 {
		c.RequestMaxBytes = 4 << 20
	}
}

// Batch is one sealed record batch. The shell fills the exported fields and
// owns Payload; the machine never looks at it. A batch belongs to the machine
// from AppendEvent until its Release effect.
type Batch struct {
	Partition int   // index given by Machine.AddPartition
	Count     int32 // records in the batch
	SizeBytes int
	Payload   any

	id           Identity
	sequence     int32
	ordinal      uint64 // position in the partition's order, for the window
	createdMs    int64
	sent         bool // a sequence was assigned
	inFlight     bool
	maybeWritten bool // a request that carried it ended without an answer
	dropped      bool // resolve gave it up while in flight
}

// Identity and Sequence are what the batch must carry on the wire. They do
// not change while the batch is in flight.
func (b *Batch) Identity() Identity { return b.id }

// Sequence is the base sequence of the batch.
func (b *Batch) Sequence() int32 { return b.sequence }

// sequenceAdd advances a sequence by n records; sequences wrap from 2^31-1
// to 0 (DefaultRecordBatch.incrementSequence).
func sequenceAdd(sequence, n int32) int32 {
	return int32((int64(sequence) + int64(n)) & 0x7fffffff)
}
