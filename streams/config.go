package streams

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/internal/runtime"
)

// Guarantee is the processing guarantee, Kafka Streams' processing.guarantee.
type Guarantee int

const (
	// AtLeastOnce never loses an input record, but may process it again after
	// a failure: outputs and state changes may repeat.
	AtLeastOnce Guarantee = iota
	// ExactlyOnceV2 commits state, outputs and input offsets in one
	// transaction per worker (KIP-447). Readers of the outputs must use
	// isolation.level=read_committed. It needs Kafka 2.5.
	ExactlyOnceV2
	// ExactlyOnce is the older form with a producer per task, deprecated in
	// Kafka 3.0 and gone from Kafka Streams 4.0. New refuses it for now.
	ExactlyOnce
)

var guaranteeNames = [...]string{"at_least_once", "exactly_once_v2", "exactly_once"}

// String is Kafka's name of the guarantee.
func (g Guarantee) String() string {
	if g >= 0 && int(g) < len(guaranteeNames) {
		return guaranteeNames[g]
	}
	return fmt.Sprintf("Guarantee(%d)", int(g))
}

// ParseGuarantee reads Kafka's names: at_least_once, exactly_once_v2 (or its
// older name exactly_once_beta) and exactly_once.
func ParseGuarantee(s string) (Guarantee, error) {
	switch s {
	case "at_least_once":
		return AtLeastOnce, nil
	case "exactly_once_v2", "exactly_once_beta":
		return ExactlyOnceV2, nil
	case "exactly_once":
		return ExactlyOnce, nil
	}
	return 0, fmt.Errorf("processing guarantee %q: want at_least_once or exactly_once_v2", s)
}

// MarshalText implements encoding.TextMarshaler.
func (g Guarantee) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Guarantee) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGuarantee(string(text))
	return err
}

// OffsetReset says where to start in a partition for which the group has no
// committed offset.
type OffsetReset int

// The starting points.
const (
	Earliest OffsetReset = iota
	Latest
)

// PoisonPolicy says what happens with an input record that cannot be decoded,
// or whose processor returns an error or panics.
type PoisonPolicy int

const (
	// PoisonFail stops the App with an error that names the record.
	PoisonFail PoisonPolicy = iota
	// PoisonSkip logs the record and goes on behind it.
	PoisonSkip
	// PoisonDeadLetter sends the record to Config.DeadLetterTopic, in the same
	// transaction as everything else, and goes on behind it. Headers named
	// __streams.errors.* say where it came from and what was wrong.
	PoisonDeadLetter
)

// Config configures an App. ApplicationID, Brokers and StateDir are required;
// zero values of the rest mean the defaults named.
type Config struct {
	// ApplicationID names the consumer group, and begins the names of internal
	// topics and transactional ids. All instances of the application share it.
	ApplicationID string
	// Brokers lists bootstrap addresses, host:port.
	Brokers []string
	// Guarantee is AtLeastOnce by default, as in Kafka Streams.
	Guarantee Guarantee

	// StateDir holds the stores and the instance id. It must survive restarts
	// and belong to one process at a time.
	StateDir string
	// InstanceID tells this process from other instances. By default one is
	// made at the first start and kept in StateDir. Two live processes must
	// not share one.
	InstanceID string
	// Workers is the number of workers (num.stream.threads); 1 by default.
	// Each is a group member with its own producer.
	Workers int

	// CommitInterval is the time between commits: 100 ms with ExactlyOnceV2,
	// 30 s otherwise.
	CommitInterval time.Duration
	// TransactionTimeout is after how long the coordinator aborts a transaction
	// that makes no progress: 10 s.
	TransactionTimeout time.Duration
	// SessionTimeout is after how long without a heartbeat a worker's tasks go
	// to others: 45 s.
	SessionTimeout time.Duration
	// RebalanceTimeout bounds how long a rebalance waits for a worker: 60 s.
	RebalanceTimeout time.Duration
	// ReplicationFactor of internal topics; -1, the default, is the brokers'.
	ReplicationFactor int16
	// MaxUncommittedBytes is the amount written since the last commit that
	// makes the next one come early: 64 MiB.
	MaxUncommittedBytes int
	// MaxBufferedBytes bounds the fetched records that wait in each worker: 64 MiB.
	MaxBufferedBytes int
	// AutoOffsetReset is Earliest by default, as in Kafka Streams.
	AutoOffsetReset OffsetReset

	// PoisonRecords is PoisonFail by default.
	PoisonRecords PoisonPolicy
	// DeadLetterTopic is where PoisonDeadLetter sends records. It must exist.
	DeadLetterTopic string

	// DialContext replaces the network, for brokers in the same process; what
	// Brokers names is passed to it, and any host:port will do there.
	DialContext func(ctx context.Context, network, host string) (net.Conn, error)
	// ClientOptions are added to every Kafka client, for TLS and SASL. Options
	// of consumers, groups or producers do not belong here.
	ClientOptions []kgo.Opt
	// Logger receives the App's log; none by default.
	Logger *slog.Logger
	// StateListener is called on each change of state. It must not block.
	StateListener func(from, to State)
}

func (c *Config) options(t *Topology) (runtime.Options, error) {
	switch c.Guarantee {
	case AtLeastOnce, ExactlyOnceV2:
	case ExactlyOnce:
		return runtime.Options{}, fmt.Errorf("guarantee %s (version 1, a producer per task) is not supported yet: use %s", c.Guarantee, ExactlyOnceV2)
	default:
		return runtime.Options{}, fmt.Errorf("unknown guarantee %s", c.Guarantee)
	}
	if c.AutoOffsetReset != Earliest && c.AutoOffsetReset != Latest {
		return runtime.Options{}, fmt.Errorf("AutoOffsetReset %d: want Earliest or Latest", c.AutoOffsetReset)
	}
	if c.PoisonRecords < PoisonFail || c.PoisonRecords > PoisonDeadLetter {
		return runtime.Options{}, fmt.Errorf("PoisonRecords %d: want PoisonFail, PoisonSkip or PoisonDeadLetter", c.PoisonRecords)
	}
	o := runtime.Options{
		ApplicationID: c.ApplicationID, Brokers: c.Brokers, ExactlyOnce: c.Guarantee == ExactlyOnceV2,
		StateDir: c.StateDir, InstanceID: c.InstanceID, Workers: c.Workers,
		CommitInterval: c.CommitInterval, TransactionTimeout: c.TransactionTimeout,
		SessionTimeout: c.SessionTimeout, RebalanceTimeout: c.RebalanceTimeout,
		ReplicationFactor: c.ReplicationFactor, MaxUncommittedBytes: c.MaxUncommittedBytes, MaxBufferedBytes: c.MaxBufferedBytes,
		StartAtLatest: c.AutoOffsetReset == Latest,
		Poison:        runtime.PoisonPolicy(c.PoisonRecords), DeadLetterTopic: c.DeadLetterTopic,
		DialContext: c.DialContext, KgoOpts: c.ClientOptions, Logger: c.Logger, StateListener: c.StateListener,
	}
	if t != nil {
		o.Topology = t.compiled
	}
	return o, nil
}
