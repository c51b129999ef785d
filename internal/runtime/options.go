package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"time"

	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/internal/vfs"
	"github.com/twmb/franz-go/pkg/kgo"
)

// PoisonPolicy says what happens with a record that cannot be decoded or
// processed.
type PoisonPolicy int

// The policies for poison records.
const (
	PoisonFail PoisonPolicy = iota
	PoisonSkip
	PoisonDeadLetter
)

// Options is what an App is made of; package streams fills it from its Config
// and documents the fields. Zero values mean the defaults.
type Options struct {
	Topology      *task.Topology
	ApplicationID string
	Brokers       []string
	ExactlyOnce   bool

	StateDir   string
	FS         vfs.FS
	InstanceID string
	Workers    int

	CommitInterval      time.Duration
	TransactionTimeout  time.Duration
	SessionTimeout      time.Duration
	RebalanceTimeout    time.Duration
	ReplicationFactor   int16
	MaxUncommittedBytes int
	MaxBufferedBytes    int
	StartAtLatest       bool

	Poison          PoisonPolicy
	DeadLetterTopic string

	DialContext   func(ctx context.Context, network, host string) (net.Conn, error)
	KgoOpts       []kgo.Opt
	Logger        *slog.Logger
	StateListener func(from, to State)

	Faults faults.Set
}

// Defaults of Options.
const (
	defaultCommitIntervalExactlyOnce = 100 * time.Millisecond
	defaultCommitInterval            = 30 * time.Second
	defaultTransactionTimeout        = 10 * time.Second
	defaultSessionTimeout            = 45 * time.Second
	defaultRebalanceTimeout          = 60 * time.Second
	defaultMaxUncommittedBytes       = 64 << 20
	defaultMaxBufferedBytes          = 64 << 20
)

// legalName is what Kafka allows in a topic's name; the application id becomes
// part of topics, of a directory and of transactional ids.
var legalName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,200}$`)

// withDefaults checks the options and fills in defaults.
func (o Options) withDefaults() (Options, error) {
	if o.Topology == nil || len(o.Topology.Subtopologies) == 0 {
		return o, errors.New("the topology is empty: build one with at least one source")
	}
	if !legalName.MatchString(o.ApplicationID) || o.ApplicationID == "." || o.ApplicationID == ".." {
		return o, fmt.Errorf("ApplicationID %q: want 1 to 200 letters, digits, '.', '_' or '-'", o.ApplicationID)
	}
	if o.InstanceID != "" && !legalName.MatchString(o.InstanceID) {
		return o, fmt.Errorf("InstanceID %q: want 1 to 200 letters, digits, '.', '_' or '-'", o.InstanceID)
	}
	if len(o.Brokers) == 0 {
		return o, errors.New("the list of brokers is empty: name at least one host:port")
	}
	if o.StateDir == "" {
		return o, errors.New("StateDir is empty: name a directory that survives a restart; it holds the instance id and the stores")
	}
	if o.Poison == PoisonDeadLetter && !legalName.MatchString(o.DeadLetterTopic) {
		return o, fmt.Errorf("DeadLetterTopic %q is no topic name, but poison records are to go there", o.DeadLetterTopic)
	}
	o.Topology = o.Topology.ForApplication(o.ApplicationID)
	o.setDefaults()
	if err := o.checkTimes(); err != nil {
		return o, err
	}
	if err := kgo.ValidateOpts(o.clientOpts("check")...); err != nil {
		return o, fmt.Errorf("client for brokers %q: %w", o.Brokers, err)
	}
	return o, nil
}

func (o *Options) setDefaults() {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	setDefault(&o.Workers, 1)
	interval := defaultCommitInterval
	if o.ExactlyOnce {
		interval = defaultCommitIntervalExactlyOnce
	}
	setDefault(&o.CommitInterval, interval)
	setDefault(&o.TransactionTimeout, defaultTransactionTimeout)
	setDefault(&o.SessionTimeout, defaultSessionTimeout)
	setDefault(&o.RebalanceTimeout, defaultRebalanceTimeout)
	setDefault(&o.ReplicationFactor, -1)
	setDefault(&o.MaxUncommittedBytes, defaultMaxUncommittedBytes)
	setDefault(&o.MaxBufferedBytes, defaultMaxBufferedBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.StateListener == nil {
		o.StateListener = func(State, State) {}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) checkTimes() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"CommitInterval", o.CommitInterval}, {"TransactionTimeout", o.TransactionTimeout},
		{"SessionTimeout", o.SessionTimeout}, {"RebalanceTimeout", o.RebalanceTimeout},
	} {
		if f.value < time.Millisecond {
			return fmt.Errorf("%s is %v: want at least 1ms", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"Workers", o.Workers}, {"MaxBufferedBytes", o.MaxBufferedBytes}, {"MaxUncommittedBytes", o.MaxUncommittedBytes},
	} {
		if f.value < 0 {
			return fmt.Errorf("%s is %d: it must not be negative", f.name, f.value)
		}
	}
	if o.ExactlyOnce && o.TransactionTimeout <= o.CommitInterval {
		return fmt.Errorf("TransactionTimeout %v is not larger than CommitInterval %v: the coordinator would abort every transaction", o.TransactionTimeout, o.CommitInterval)
	}
	return nil
}

// clientOpts are the options that every client of the App shares.
func (o *Options) clientOpts(name string) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(o.ApplicationID + "-" + name),
		kgo.WithLogger(clientLogger{o.Logger.With("client", name)}),
		kgo.MetadataMinAge(100 * time.Millisecond),
		// A broker that dies between accepting a connection and its first
		// answer looks to kgo like one that speaks TLS. It is tried again; a
		// wrong port still ends in an error when the tries are used up.
		kgo.AlwaysRetryEOF(),
	}
	if o.DialContext != nil {
		opts = append(opts, kgo.Dialer(o.DialContext))
	}
	return append(opts, o.KgoOpts...)
}

// clientLogger passes kgo's log on, one level down: what is an error to a
// client (a lost connection, say) is often handled by the runtime.
type clientLogger struct{ log *slog.Logger }

// Level implements kgo.Logger.
func (l clientLogger) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case l.log.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo
	case l.log.Enabled(ctx, slog.LevelInfo):
		return kgo.LogLevelWarn
	case l.log.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelError
	}
	return kgo.LogLevelNone
}

// Log implements kgo.Logger.
func (l clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelWarn
	case kgo.LogLevelWarn:
		to = slog.LevelInfo
	}
	l.log.Log(context.Background(), to, msg, keyvals...)
}
