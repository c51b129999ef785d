package txn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// State is the state of a transactional id, with Kafka's numbers
// (TransactionState), which are also what the log holds.
type State int8

// The states. Dead and PrepareEpochFence exist in Kafka's memory only: here an
// expiring id is gone with its tombstone, and a fence is the Prepare record
// itself.
const (
	Empty             State = 0 // initialised, no transaction
	Ongoing           State = 1 // partitions were added
	PrepareCommit     State = 2 // decided; markers under way
	PrepareAbort      State = 3 // decided; markers under way
	CompleteCommit    State = 4 // all markers written
	CompleteAbort     State = 5 // all markers written
	Dead              State = 6 // never persisted
	PrepareEpochFence State = 7 // never persisted
)

var stateNames = [...]string{
	"Empty", "Ongoing", "PrepareCommit", "PrepareAbort",
	"CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
}

// String returns Kafka's name of the state, as DescribeTransactions and
// ListTransactions show it.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return stateNames[s]
}

// StateNamed finds a state by Kafka's name.
func StateNamed(name string) (State, bool) {
	i := slices.Index(stateNames[:], name)
	return State(i), i >= 0
}

// prepared reports whether the outcome is decided and markers are under way.
func (s State) prepared() bool { return s == PrepareCommit || s == PrepareAbort }

// resting reports whether no transaction is open or being finished.
func (s State) resting() bool { return s == Empty || s == CompleteCommit || s == CompleteAbort }

// persistent reports whether the state may stand in the log.
func (s State) persistent() bool { return s >= Empty && s <= CompleteAbort }

// predecessors lists, for each state that can be written, the states it may
// follow (TransactionState.validPreviousStates). PrepareAbort after a resting
// state is the abort of a transaction that the server has not seen, which only
// transaction version 2 has.
var predecessors = map[State][]State{
	Empty:          {Empty, CompleteCommit, CompleteAbort},
	Ongoing:        {Ongoing, Empty, CompleteCommit, CompleteAbort},
	PrepareCommit:  {Ongoing},
	PrepareAbort:   {Ongoing, Empty, CompleteCommit, CompleteAbort},
	CompleteCommit: {PrepareCommit},
	CompleteAbort:  {PrepareAbort},
}

// checkTransition asserts that next may follow old. The machine runs it on
// every record before the record leaves, so a mistake in a decision stops the
// shard instead of reaching the log. It is the counterpart of Kafka's
// TransactionMetadata.completeTransitionTo.
func checkTransition(old, next metadata) error {
	if !slices.Contains(predecessors[next.state], old.state) {
		return fmt.Errorf("%v may not follow %v", next.state, old.state)
	}
	if next.producerID < 0 || next.epoch < 0 {
		return fmt.Errorf("%v with producer id %d and epoch %d", next.state, next.producerID, next.epoch)
	}
	if next.updateMs < old.updateMs {
		return fmt.Errorf("%v: update time goes back from %d to %d ms", next.state, old.updateMs, next.updateMs)
	}
	switch next.state {
	case Empty:
		return checkEmpty(old, next)
	case Ongoing:
		return checkOngoing(old, next)
	case PrepareCommit, PrepareAbort:
		return checkPrepare(old, next)
	default:
		return checkComplete(old, next)
	}
}

func checkEmpty(old, next metadata) error {
	sameID := next.producerID == old.producerID
	switch {
	case len(next.partitions) != 0 || next.startMs != -1:
		return fmt.Errorf("state Empty holds %d partitions and start time %d", len(next.partitions), next.startMs)
	case next.epoch > lastClientEpoch:
		return fmt.Errorf("state Empty gives epoch %d, which is kept for fencing", next.epoch)
	case sameID && (next.epoch == old.epoch || next.epoch == old.epoch+1):
		return nil
	case !sameID && next.epoch == 0:
		return nil
	}
	return fmt.Errorf("state Empty goes from producer %d/%d to %d/%d", old.producerID, old.epoch, next.producerID, next.epoch)
}

func checkOngoing(old, next metadata) error {
	if !next.sameProducer(old) || next.timeoutMs != old.timeoutMs {
		return errors.New("state Ongoing changes the producer or the timeout")
	}
	if !containsAll(next.partitions, old.partitions) {
		return errors.New("state Ongoing loses a partition")
	}
	return nil
}

func checkPrepare(old, next metadata) error {
	v2 := next.clientVersion >= 2
	bumped := next.epoch == old.epoch+1 ||
		next.epoch == maxEpoch && old.epoch == maxEpoch && next.state == PrepareAbort
	switch {
	case old.state != Ongoing && !v2:
		return fmt.Errorf("%v after %v needs transaction version 2", next.state, old.state)
	case next.producerID != old.producerID || next.timeoutMs != old.timeoutMs:
		return fmt.Errorf("%v changes the producer id or the timeout", next.state)
	case v2 && !bumped || !v2 && next.epoch != old.epoch:
		return fmt.Errorf("%v goes from epoch %d to %d at transaction version %d", next.state, old.epoch, next.epoch, next.clientVersion)
	case v2 && next.epoch == maxEpoch && next.nextID < 0:
		return fmt.Errorf("%v exhausts producer id %d without a next one", next.state, next.producerID)
	case !slices.Equal(next.partitions, old.partitions):
		return fmt.Errorf("%v changes the partitions", next.state)
	case old.state == Ongoing && next.startMs != old.startMs || next.startMs < 0:
		return fmt.Errorf("%v changes the start time from %d to %d ms", next.state, old.startMs, next.startMs)
	}
	return nil
}

func checkComplete(old, next metadata) error {
	rotated := old.nextID >= 0 && next.producerID == old.nextID && next.epoch == 0 && next.previousID == old.producerID
	kept := old.nextID < 0 && next.sameProducer(old)
	switch {
	case !rotated && !kept:
		return fmt.Errorf("%v goes from producer %d/%d (next %d) to %d/%d", next.state,
			old.producerID, old.epoch, old.nextID, next.producerID, next.epoch)
	case next.timeoutMs != old.timeoutMs || next.startMs != old.startMs || len(next.partitions) != 0 || next.nextID >= 0:
		return fmt.Errorf("%v changes more than the state", next.state)
	}
	return nil
}

// containsAll reports whether the sorted slice all holds each element of part.
func containsAll(all, part []batch.TopicPartition) bool {
	for _, tp := range part {
		if _, ok := slices.BinarySearchFunc(all, tp, batch.TopicPartition.Compare); !ok {
			return false
		}
	}
	return true
}
