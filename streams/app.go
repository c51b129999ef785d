package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/hanbeon/hanbeon/internal/runtime"
)

// State is the state of an App; its String is Kafka Streams' name.
type State = runtime.State

// The states of an App.
const (
	StateCreated         = runtime.StateCreated
	StateRebalancing     = runtime.StateRebalancing
	StateRunning         = runtime.StateRunning
	StatePendingShutdown = runtime.StatePendingShutdown
	StateNotRunning      = runtime.StateNotRunning
	StateError           = runtime.StateError
)

// Stats is a snapshot of an App's counters since Run began.
type Stats struct {
	// Records is the number of input records processed, replays included.
	Records int64
	// Commits counts commits that had something to commit.
	Commits int64
	// Aborts counts transactions given up, by cause.
	Aborts map[string]int64
	// Unknown counts commits whose outcome had to be asked for; Kept of them
	// turned out committed.
	Unknown, Kept int64
	// Rebalances counts assignments and revocations that changed tasks; Lost
	// counts memberships lost without a revocation.
	Rebalances, Lost int64
	// Fenced counts producers that another one with the same id replaced.
	Fenced int64
	// Skipped and DeadLetters count poison records.
	Skipped, DeadLetters int64
	// Restored counts changelog records read into stores.
	Restored int64
	// CommitTime is the time spent in commits.
	CommitTime time.Duration
	// Tasks is the number of tasks owned now, Running of them processing.
	Tasks, Running int
	// Restores lists the restores under way.
	Restores []RestoreProgress
}

// RestoreProgress is one store's way to the end of its changelog: the Topic and
// Partition, the offsets From, Position and Target, where it ends, and the times
// Elapsed and Remaining, an estimate that is 0 before the first records.
type RestoreProgress = runtime.RestoreProgress

// What Run may return, wrapped, for a caller to branch on.
var (
	// ErrMissingTopic: a source or sink topic does not exist; the text names it.
	ErrMissingTopic = runtime.ErrMissingTopic
	// ErrPartitionCount: an internal topic has another partition count than
	// the topology needs.
	ErrPartitionCount = runtime.ErrPartitionCount
	// ErrStateDirInUse: another process uses the state directory.
	ErrStateDirInUse = runtime.ErrStateDirInUse
	// ErrMemberVersion: a member of the group runs a version of this library
	// whose assignments we cannot read.
	ErrMemberVersion = runtime.ErrMemberVersion
	// ErrAlreadyRun: Run was called twice.
	ErrAlreadyRun = runtime.ErrAlreadyRun
)

// App runs a topology on a cluster. Several processes with the same
// ApplicationID share the work.
type App struct{ app *runtime.App }

// New makes an App and checks its configuration. Nothing is opened before Run.
func New(topology *Topology, config Config) (*App, error) {
	options, err := config.options(topology)
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	app, err := runtime.New(options)
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	return &App{app}, nil
}

// Run processes records until ctx is cancelled or something fails for good: a
// record (see PoisonPolicy), the state directory, or brokers that cannot be
// reached at the start. Later it waits for brokers that have gone away.
// On cancellation it commits what is done, leaves the group, closes the stores
// and returns nil. An App runs once.
func (a *App) Run(ctx context.Context) error {
	if err := a.app.Run(ctx); err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	return nil
}

// State says what the App is doing. It may be called from any goroutine.
func (a *App) State() State { return a.app.State() }

// Stats gives the counters since Run began. It may be called from any goroutine.
func (a *App) Stats() Stats { return Stats(a.app.Stats()) }

// Describe prints the topology, with the full names of internal topics, in the
// format of Kafka's TopologyDescription.
func (a *App) Describe() string { return a.app.Describe() }
