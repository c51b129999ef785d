package txn

import (
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// metadata is what one record of the log says about a transactional id. It is a
// value: a transition returns a new one and leaves the old one alone. Field
// names follow Kafka's TransactionMetadata.
type metadata struct {
	producerID batch.ProducerID
	// previousID is the producer id before the last transition, and thereby
	// after a rotation the one that the client still holds.
	previousID batch.ProducerID
	// nextID is set between Prepare and Complete if Complete rotates.
	nextID batch.ProducerID
	epoch  batch.Epoch
	// lastEpoch is the epoch that a client whose answer was lost still holds;
	// NoEpoch if another producer has taken over (KIP-360).
	lastEpoch  batch.Epoch
	timeoutMs  int32
	state      State
	partitions []batch.TopicPartition // sorted, without repeats, never changed in place
	startMs    int64                  // -1 while Empty
	updateMs   int64
	// clientVersion is the transaction version of the last transition: 2 for the
	// newer requests (KIP-890) and the server's own aborts, else 0.
	clientVersion int16
}

// newMetadata is what an unknown transactional id starts from. It is never
// written: initialise bumps the epoch to 0.
func newMetadata(id batch.ProducerID, timeoutMs int32, nowMs int64) metadata {
	return metadata{
		producerID: id, previousID: batch.NoProducerID, nextID: batch.NoProducerID,
		epoch: batch.NoEpoch, lastEpoch: batch.NoEpoch,
		timeoutMs: timeoutMs, state: Empty, startMs: -1, updateMs: nowMs,
	}
}

func (md metadata) sameProducer(o metadata) bool {
	return md.producerID == o.producerID && md.epoch == o.epoch
}

// exhausted reports whether the producer id has no further epoch for a client.
func (md metadata) exhausted() bool { return md.epoch >= lastClientEpoch }

// step starts a transition: the same metadata in another state.
func (md metadata) step(to State, nowMs int64) metadata {
	next := md
	next.state = to
	next.previousID = md.producerID
	next.updateMs = max(md.updateMs, nowMs)
	return next
}

// initialise is the end of InitProducerId: a resting producer with the given
// pair, no partitions and a new timeout.
func (md metadata) initialise(id batch.ProducerID, epoch, lastEpoch batch.Epoch, timeoutMs int32, nowMs int64) metadata {
	next := md.step(Empty, nowMs)
	if id == md.producerID && epoch == md.epoch {
		next.previousID = md.previousID // a repeated request may be repeated again
	}
	next.producerID, next.epoch, next.lastEpoch = id, epoch, lastEpoch
	next.timeoutMs, next.startMs, next.partitions = timeoutMs, -1, nil
	return next
}

// add opens the transaction, or extends it by partitions (sorted).
func (md metadata) add(partitions []batch.TopicPartition, version int16, nowMs int64) metadata {
	next := md.step(Ongoing, nowMs)
	if md.state.resting() {
		next.startMs = nowMs
	}
	next.partitions = union(md.partitions, partitions)
	next.clientVersion = version
	return next
}

// prepare records the decision. Under transaction version 2 it also bumps the
// epoch, so that the marker fences the transaction that it closes, and takes
// nextID if that bump exhausts the producer id. There is one bump, also when
// the server fences (KAFKA-19367).
func (md metadata) prepare(commit bool, version int16, nextID batch.ProducerID, nowMs int64) metadata {
	to := PrepareAbort
	if commit {
		to = PrepareCommit
	}
	next := md.step(to, nowMs)
	if version >= 2 {
		if md.epoch < maxEpoch {
			next.epoch = md.epoch + 1
		}
		next.lastEpoch = md.epoch
	}
	if md.state.resting() {
		next.startMs = nowMs // nothing was added: the true start is unknown
	}
	next.nextID, next.clientVersion = nextID, version
	return next
}

// complete follows prepare when all markers are written, and rotates the
// producer id if prepare took a next one. lastEpoch stays: in a rotation it is
// the epoch that the client saw last.
func (md metadata) complete(nowMs int64) metadata {
	to := CompleteAbort
	if md.state == PrepareCommit {
		to = CompleteCommit
	}
	next := md.step(to, nowMs)
	if md.nextID >= 0 {
		next.producerID, next.epoch = md.nextID, 0
	}
	next.nextID, next.partitions = batch.NoProducerID, nil
	return next
}

// union merges two sorted slices without repeats into a new one.
func union(a, b []batch.TopicPartition) []batch.TopicPartition {
	out := make([]batch.TopicPartition, 0, len(a)+len(b))
	out = append(append(out, a...), b...)
	return sortedUnique(out)
}

// sortedUnique sorts in place and drops repeats.
func sortedUnique(tps []batch.TopicPartition) []batch.TopicPartition {
	slices.SortFunc(tps, batch.TopicPartition.Compare)
	return slices.Compact(tps)
}
