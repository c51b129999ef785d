package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hanbeon/hanbeon/verify"
)

// Options says what a run of the demo does. The zero value of a field means its
// default.
type Options struct {
	// Guarantee of the word count: verify.ExactlyOnceV2 (the default) or
	// verify.AtLeastOnce.
	Guarantee verify.Guarantee
	// Input is the file or folder whose words are counted. Empty: the Go
	// toolchain's source text found on the machine, else a built-in sample.
	Input string
	// Duration is the time over which the text is fed and the faults happen,
	// 30 s by default. The start, the drain and the proof come on top.
	Duration time.Duration
	// Workers is the number of worker processes, 3 by default.
	Workers int
	// Partitions is the number of partitions of the input topic, and so of the
	// repartition topic, 4 by default.
	Partitions int
	// KeepDir is where the run's state and logs are kept. Empty: a temporary
	// directory that is removed at the end.
	KeepDir string
	// Brokers is the HOST:PORT of a running Kafka cluster. Empty: a broker
	// process of our own, which is then killed too.
	Brokers string
	// Seed makes the plan of the faults: which worker is killed when. 0: chosen
	// from the clock, and printed.
	Seed int64
	// JSON writes the result as one JSON object to Out, and the progress to
	// Progress.
	JSON bool
	// Executable is the path of the hanbeon command, which is started again as
	// broker and as workers. Empty: the running program.
	Executable string
}

// Bounds of the options. The upper ones keep a typing error from taking the
// machine down.
const (
	durationMin   = 5 * time.Second
	durationMax   = 24 * time.Hour
	workersMax    = 64
	partitionsMax = 1024
)

func (o Options) withDefaults() (Options, error) {
	if o.Guarantee == "" {
		o.Guarantee = verify.ExactlyOnceV2
	}
	if o.Duration == 0 {
		o.Duration = 30 * time.Second
	}
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	if o.Seed == 0 {
		o.Seed = time.Now().UnixNano() % 1_000_000
	}
	if o.Executable == "" {
		executable, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("finding the running program, to start it again as a worker: %w", err)
		}
		o.Executable = executable
	}
	return o, o.validate()
}

func (o Options) validate() error {
	switch {
	case o.Guarantee != verify.ExactlyOnceV2 && o.Guarantee != verify.AtLeastOnce:
		return fmt.Errorf("unknown guarantee %q; choose %s or %s", o.Guarantee, verify.ExactlyOnceV2, verify.AtLeastOnce)
	case o.Duration < durationMin || o.Duration > durationMax:
		return fmt.Errorf("duration %v is out of range; choose %v to %v", o.Duration, durationMin, durationMax)
	case o.Workers < 1 || o.Workers > workersMax:
		return fmt.Errorf("%d workers are out of range; choose 1 to %d", o.Workers, workersMax)
	case o.Partitions < 1 || o.Partitions > partitionsMax:
		return fmt.Errorf("%d partitions are out of range; choose 1 to %d", o.Partitions, partitionsMax)
	}
	if o.Brokers != "" {
		if _, _, err := net.SplitHostPort(o.Brokers); err != nil {
			return fmt.Errorf("--brokers %q is not HOST:PORT: %w", o.Brokers, err)
		}
	}
	if o.KeepDir != "" {
		entries, err := os.ReadDir(o.KeepDir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("looking into --keep %s: %w", o.KeepDir, err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("--keep %s is not empty; name a new or empty directory, so that no other run's state is taken for this one's", o.KeepDir)
		}
	}
	return nil
}

// Times of the group and of the transactions. Apache Kafka refuses a session
// timeout under 6 s by default (group.min.session.timeout.ms), and so do we.
const (
	sessionTimeout     = 6 * time.Second
	transactionTimeout = 10 * time.Second
)

// commitInterval is how often a worker commits. Under at_least_once it is long
// enough for a kill to hit work that was sent but not committed.
func commitInterval(g verify.Guarantee) time.Duration {
	if g == verify.AtLeastOnce {
		return 2 * time.Second
	}
	return 100 * time.Millisecond
}
