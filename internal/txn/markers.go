package txn

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// markerAnswer is how the coordinator takes a partition's code
// (TransactionMarkerRequestCompletionHandler).
type markerAnswer int8

const (
	markerBug   markerAnswer = iota // cannot be: stop the shard
	markerDone                      // written, or never needed
	markerRetry                     // send again
	markerStop                      // the partition knows something newer
)

var markerAnswers = map[int16]markerAnswer{
	codeNone: markerDone,
	// On a single node a partition that does not exist has been deleted: there
	// is nothing left to close.
	codeUnknownTopicOrPartition: markerDone,
	// The producer cannot have written there.
	codeUnsupportedVersion:   markerDone,
	codeUnsupportedForFormat: markerDone,

	codeNotLeaderOrFollower:     markerRetry,
	codeRequestTimedOut:         markerRetry,
	codeLoadInProgress:          markerRetry, // of a group coordinator
	codeCoordinatorNotAvailable: markerRetry, // of a group coordinator
	codeNotCoordinator:          markerRetry, // of a group coordinator
	codeNotEnoughReplicas:       markerRetry,
	codeNotEnoughReplicasAfter:  markerRetry,
	codeStorageError:            markerRetry,

	codeInvalidProducerEpoch: markerStop,
	codeCoordinatorFenced:    markerStop,

	codeCorruptMessage:      markerBug,
	codeMessageTooLarge:     markerBug,
	codeRecordListTooLarge:  markerBug,
	codeInvalidRequiredAcks: markerBug,
}

func (m *Machine) markers(id string, md metadata, partitions []batch.TopicPartition) MarkerBatch {
	return MarkerBatch{
		TransactionalID:  id,
		ProducerID:       md.producerID,
		Epoch:            md.epoch,
		Commit:           md.state == PrepareCommit,
		CoordinatorEpoch: m.cfg.CoordinatorEpoch,
		TV2:              md.clientVersion >= 2,
		Partitions:       slices.Clone(partitions),
	}
}

// decideMarkersWritten takes partitions' answers; after the last one it writes
// Complete. Answers for another transaction than the one under way are stale:
// its Complete is already written.
func (m *Machine) decideMarkersWritten(eff *Effects, nowMs int64, c MarkersWritten) {
	e := m.entries[c.TransactionalID]
	if e == nil || !e.md.state.prepared() || e.md.producerID != c.ProducerID || e.md.epoch != c.Epoch {
		return
	}
	for _, p := range c.Partitions {
		switch markerAnswers[p.Code] {
		case markerDone:
			e.remaining = without(e.remaining, p.TopicPartition)
			e.retry = without(e.retry, p.TopicPartition)
		case markerRetry:
			m.retryLater(nowMs, e, p.TopicPartition)
		case markerStop:
			e.stalled = append(e.stalled, p)
			eff.Stalled = append(eff.Stalled, StalledMarker{TransactionalID: e.id, PartitionResult: p})
		default:
			m.fail(eff, fmt.Errorf("marker of transactional id %q for partition %s-%d failed with code %d, which a marker cannot cause",
				e.id, p.Topic, p.Partition, p.Code))
			return
		}
	}
	switch {
	case len(e.stalled) > 0:
		m.giveUp(eff, e)
	case len(e.remaining) == 0:
		m.complete(eff, nowMs, e)
	}
}

// retryLater has the marker sent again if the partition still lacks it.
func (m *Machine) retryLater(nowMs int64, e *entry, tp batch.TopicPartition) {
	if !containsAll(e.remaining, []batch.TopicPartition{tp}) {
		return
	}
	if len(e.retry) == 0 {
		e.retryAtMs = nowMs + m.cfg.MarkerRetryMs
		m.wake(e.retryAtMs)
	}
	e.retry = sortedUnique(append(e.retry, tp))
}

// complete writes Complete, answers the EndTxn that began it, and lets parked
// commands go on.
func (m *Machine) complete(eff *Effects, nowMs int64, e *entry) {
	final := e.md.complete(nowMs)
	m.write(eff, e.id, e.md, final)
	if e.ending != nil {
		eff.grantEnd(e.ending.token, e.ending.version, final)
		e.ending = nil
	}
	for _, w := range e.waiting {
		eff.Requeue = append(eff.Requeue, w.cmd)
	}
	e.waiting = nil
}

// giveUp stops repeating markers and answers what is parked with 51: the
// decision stands, but it cannot be finished now.
func (m *Machine) giveUp(eff *Effects, e *entry) {
	e.retry = nil
	m.release(eff, e, func(int64) bool { return true })
}

// release answers parked commands that wait since a time for which done is true.
func (m *Machine) release(eff *Effects, e *entry, done func(sinceMs int64) bool) {
	if e.ending != nil && done(e.ending.sinceMs) {
		eff.refuse(e.ending.token, codeConcurrentTransactions, "markers are not written yet")
		e.ending = nil
	}
	e.waiting = slices.DeleteFunc(e.waiting, func(w parkedAdd) bool {
		if !done(w.sinceMs) {
			return false
		}
		eff.answerAdd(w.cmd.Token, codeConcurrentTransactions, sortedUnique(slices.Clone(w.cmd.Partitions)), nil)
		return true
	})
}

// decideResume sends all markers of prepared transactions: which of them were
// written before the restart is not known, and a marker may be written twice.
func (m *Machine) decideResume(eff *Effects, nowMs int64) {
	for _, id := range slices.Sorted(maps.Keys(m.entries)) {
		e := m.entries[id]
		if !e.md.state.prepared() {
			continue
		}
		e.remaining = slices.Clone(e.md.partitions)
		e.retry, e.stalled = nil, nil
		if len(e.remaining) == 0 {
			m.complete(eff, nowMs, e)
			continue
		}
		eff.Markers = append(eff.Markers, m.markers(e.id, e.md, e.remaining))
	}
}

// without removes one element of a sorted slice.
func without(tps []batch.TopicPartition, tp batch.TopicPartition) []batch.TopicPartition {
	if i, ok := slices.BinarySearchFunc(tps, tp, batch.TopicPartition.Compare); ok {
		return slices.Delete(tps, i, i+1)
	}
	return tps
}
