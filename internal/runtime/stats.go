package runtime

import (
	"fmt"
	"sync/atomic"
	"time"
)

// State is the state of an App; the names are Kafka Streams'.
type State int

// The states, in the order in which an App usually passes them.
const (
	StateCreated State = iota
	// StateRebalancing: tasks are being assigned or restored.
	StateRebalancing
	// StateRunning: every assigned task processes records.
	StateRunning
	StatePendingShutdown
	StateNotRunning
	// StateError: Run has returned an error.
	StateError
)

// String names the state as Kafka Streams does.
func (s State) String() string {
	switch s {
	case StateCreated:
		return "CREATED"
	case StateRebalancing:
		return "REBALANCING"
	case StateRunning:
		return "RUNNING"
	case StatePendingShutdown:
		return "PENDING_SHUTDOWN"
	case StateNotRunning:
		return "NOT_RUNNING"
	case StateError:
		return "ERROR"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

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

// RestoreProgress is one store's restore.
type RestoreProgress struct {
	Topic     string
	Partition int32
	// From, Position and Target are changelog offsets; the restore ends when
	// Position reaches Target.
	From, Position, Target int64
	// Elapsed and Remaining are estimates; Remaining is 0 before the first records.
	Elapsed, Remaining time.Duration
}

// Causes of aborts.
const (
	causeFlush       = "flush"
	causeProcessing  = "processing"
	causeRebalance   = "rebalance"
	causeLost        = "membership lost"
	causeFenced      = "fenced"
	causeTimeout     = "timed out at the coordinator"
	causeCoordinator = "refused by the coordinator"
	causeUnknown     = "outcome unknown"
	causeShutdown    = "shutdown"
)

var abortCauses = []string{
	causeFlush, causeProcessing, causeRebalance, causeLost, causeFenced,
	causeTimeout, causeCoordinator, causeUnknown, causeShutdown,
}

// counters are the live numbers behind Stats.
type counters struct {
	records, commits, unknown, kept atomic.Int64
	rebalances, lost, fenced        atomic.Int64
	skipped, deadLetters, restored  atomic.Int64
	commitNanos                     atomic.Int64
	aborts                          [16]atomic.Int64
	tasks, running                  atomic.Int64
}

func (c *counters) abort(cause string) {
	for i, name := range abortCauses {
		if name == cause {
			c.aborts[i].Add(1)
		}
	}
}

func (c *counters) addTo(s *Stats) {
	s.Records += c.records.Load()
	s.Commits += c.commits.Load()
	s.Unknown += c.unknown.Load()
	s.Kept += c.kept.Load()
	s.Rebalances += c.rebalances.Load()
	s.Lost += c.lost.Load()
	s.Fenced += c.fenced.Load()
	s.Skipped += c.skipped.Load()
	s.DeadLetters += c.deadLetters.Load()
	s.Restored += c.restored.Load()
	s.CommitTime += time.Duration(c.commitNanos.Load())
	s.Tasks += int(c.tasks.Load())
	s.Running += int(c.running.Load())
	for i, name := range abortCauses {
		if n := c.aborts[i].Load(); n > 0 {
			s.Aborts[name] += n
		}
	}
}

// snapshot estimates the rest from the pace so far.
func (p *restoreProgress) snapshot(nowMs int64) RestoreProgress {
	r := RestoreProgress{Topic: p.topic, Partition: p.partition, From: p.from.Load(), Position: p.position.Load(), Target: p.target.Load()}
	r.Elapsed = time.Duration(nowMs-p.startMs) * time.Millisecond
	if done := r.Position - r.From; done > 0 && r.Target > r.Position {
		r.Remaining = time.Duration(float64(r.Elapsed) * float64(r.Target-r.Position) / float64(done))
	}
	return r
}
