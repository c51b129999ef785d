package broker

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Durability says what an acknowledgement promises.
type Durability int

const (
	// Sync acknowledges after fdatasync: what was acknowledged survives a
	// power cut. The default, and the only mode with exactly-once across one.
	Sync Durability = iota
	// Interval acknowledges at once and syncs every SyncInterval. It survives
	// the death of the process. A power cut may lose the last acknowledged
	// records, and is then not exactly-once.
	Interval
	// None never syncs but at checkpoints; otherwise as Interval.
	None
)

// ParseDurability reads "sync", "interval" or "none".
func ParseDurability(s string) (Durability, error) {
	switch s {
	case "sync":
		return Sync, nil
	case "interval":
		return Interval, nil
	case "none":
		return None, nil
	}
	return 0, fmt.Errorf("durability %q: want sync, interval or none", s)
}

// Config configures a broker. The zero value of every field but Dir is its
// default. Names in brackets are Kafka's.
type Config struct {
	// Dir holds everything that the broker keeps. One broker at a time may
	// have it open.
	Dir string
	// Listen is the TCP address to listen on, for example 127.0.0.1:9092;
	// port 0 picks a free one. Empty: no socket, only Dial.
	Listen string
	// AdvertisedHost and AdvertisedPort are given to clients to connect to
	// [advertised.listeners]. Default: the address listened on, which must then
	// not be 0.0.0.0 or another that stands for all of them.
	AdvertisedHost string
	AdvertisedPort int32

	Durability   Durability
	SyncInterval time.Duration // of Interval; default 100 ms

	// Logger gets the broker's events; default: none.
	Logger *slog.Logger

	// DisableAutoCreateTopics refuses topics that do not exist instead of
	// creating them with Partitions partitions [auto.create.topics.enable].
	DisableAutoCreateTopics bool
	// Partitions of a topic created without a count [num.partitions]; default 1.
	Partitions int32
	// PartitionsMax bounds the partitions of one topic, and of all topics of
	// one CreateTopics; default 10,000.
	PartitionsMax int32

	// SegmentBytes is the size at which a log starts a new segment
	// [log.segment.bytes]; default 1 GiB.
	SegmentBytes int64
	// MessageMaxBytes bounds a record batch [message.max.bytes]; default
	// 1,048,588.
	MessageMaxBytes int
	// RequestMaxBytes bounds a Produce request [socket.request.max.bytes];
	// default 100 MiB. Other requests are bounded by ControlRequestMaxBytes,
	// default 1 MiB.
	RequestMaxBytes        int
	ControlRequestMaxBytes int
	// ConnectionsMax bounds open connections [max.connections]; default 10,000.
	ConnectionsMax int
	// IdleTimeout closes connections without requests
	// [connections.max.idle.ms]; default 10 minutes.
	IdleTimeout time.Duration
	// FrameTimeout is how long a client may take to send a request, or to take
	// a reply, or 256 KiB of a larger one; default 30 s.
	FrameTimeout time.Duration

	// GroupInitialRebalanceDelay is how long a new group waits for more
	// members [group.initial.rebalance.delay.ms]; default 0.
	GroupInitialRebalanceDelay time.Duration
	// GroupSessionTimeoutMin is the least session timeout that a member may
	// ask for [group.min.session.timeout.ms]; default 6 s.
	GroupSessionTimeoutMin time.Duration
	// TransactionTimeoutMax bounds transaction timeouts
	// [transaction.max.timeout.ms]; default 15 minutes.
	TransactionTimeoutMax time.Duration

	// FS replaces the operating system's file system, and Faults switches
	// protections off: both only for this module's own tests.
	FS     vfs.FS
	Faults Faults
}

// Faults break one property each, so that tests see their checkers notice.
type Faults struct {
	// AckBeforeSync acknowledges what is not on disk yet.
	AckBeforeSync bool
	// NoGenerationCheck accepts transactional offsets of any member.
	NoGenerationCheck bool
	shard.Faults
}

const (
	internalPartitions = 50 // of __consumer_offsets and of __transaction_state
	// internalSegmentBytes is Kafka's segment size for them.
	internalSegmentBytes = 100 << 20
)

func (c Config) withDefaults() Config {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	defDuration := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Partitions <= 0 {
		c.Partitions = 1
	}
	if c.PartitionsMax <= 0 {
		c.PartitionsMax = 10_000
	}
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = 1 << 30
	}
	def(&c.MessageMaxBytes, 1_048_588)
	def(&c.RequestMaxBytes, 100<<20)
	def(&c.ControlRequestMaxBytes, 1<<20)
	def(&c.ConnectionsMax, 10_000)
	defDuration(&c.SyncInterval, 100*time.Millisecond)
	defDuration(&c.IdleTimeout, 10*time.Minute)
	defDuration(&c.FrameTimeout, 30*time.Second)
	defDuration(&c.GroupSessionTimeoutMin, 6*time.Second)
	defDuration(&c.TransactionTimeoutMax, 15*time.Minute)
	return c
}

func (c Config) mode() seglog.Mode {
	switch c.Durability {
	case Interval:
		return seglog.ModeInterval
	case None:
		return seglog.ModeNone
	}
	return seglog.ModeSync
}
