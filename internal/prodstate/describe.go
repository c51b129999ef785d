package prodstate

import (
	"maps"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// ActiveProducer is one producer as DescribeProducers tells it.
type ActiveProducer struct {
	ProducerID       batch.ProducerID
	Epoch            batch.Epoch
	LastSequence     int32        // -1: no batch in this epoch
	LastTimestampMs  int64        // of the last batch or marker
	CoordinatorEpoch int32        // -1: no marker yet
	TxnStartOffset   batch.Offset // -1: no open transaction
	// LastDataOffset is where the producer's last remembered batch ends, or -1
	// when only its last marker is. Compaction must keep that batch, or that
	// marker, as long as the producer is known.
	LastDataOffset batch.Offset
}

// Describe returns the producers that are known, by id.
func (m *Machine) Describe() []ActiveProducer {
	all := make([]ActiveProducer, 0, len(m.producers))
	for _, pid := range m.producerIDs() {
		e := m.producers[pid]
		all = append(all, ActiveProducer{
			ProducerID:       pid,
			Epoch:            e.epoch,
			LastSequence:     e.lastSequence(),
			LastTimestampMs:  e.lastTimestampMs,
			CoordinatorEpoch: e.coordinatorEpoch,
			TxnStartOffset:   e.txnFirstOffset,
			LastDataOffset:   e.lastDataOffset(),
		})
	}
	return all
}

func (m *Machine) producerIDs() []batch.ProducerID {
	return slices.Sorted(maps.Keys(m.producers))
}

// OpenTransaction is a transaction with data in the partition and no marker.
type OpenTransaction struct {
	ProducerID      batch.ProducerID
	Epoch           batch.Epoch
	FirstOffset     batch.Offset
	LastTimestampMs int64 // of its last batch
}

// OpenTransactions returns the open transactions by first offset: the first one
// is what holds back the last stable offset.
func (m *Machine) OpenTransactions() []OpenTransaction {
	all := make([]OpenTransaction, 0, len(m.open))
	for _, t := range m.open {
		e := m.producers[t.producerID]
		all = append(all, OpenTransaction{
			ProducerID:      t.producerID,
			Epoch:           e.epoch,
			FirstOffset:     t.firstOffset,
			LastTimestampMs: e.lastTimestampMs,
		})
	}
	return all
}

// Producers is the number of producers that are known.
func (m *Machine) Producers() int { return len(m.producers) }

// Expire forgets the producers that have been idle for expirationMs
// (producer.id.expiration.ms) and have no open transaction, and as old
// verification tokens. It returns the number of producers. After a restart call
// it on the restored state, too: a snapshot keeps no clock.
func (m *Machine) Expire(nowMs, expirationMs int64) int {
	before := len(m.producers)
	maps.DeleteFunc(m.producers, func(_ batch.ProducerID, e *entry) bool {
		return !e.isOpen() && nowMs-max(e.lastTimestampMs, e.lastSeenMs) >= expirationMs
	})
	maps.DeleteFunc(m.tokens, func(_ batch.ProducerID, t *tokenEntry) bool {
		return nowMs-t.createdMs >= expirationMs
	})
	return before - len(m.producers)
}
