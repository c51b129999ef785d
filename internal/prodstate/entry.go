package prodstate

import (
	"math"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// batchesMax is how many batches of a producer are remembered, because a client
// may have five requests in flight (NUM_BATCHES_TO_RETAIN in Kafka).
const batchesMax = 5

// noOffset stands for "no open transaction" and "no data".
const noOffset batch.Offset = -1

// noCoordinatorEpoch is what a producer has before its first marker.
const noCoordinatorEpoch int32 = -1

// batchMeta is a remembered batch.
type batchMeta struct {
	lastSequence int32 // NoSequence for the group coordinator's batches
	offsetDelta  int32
	lastOffset   batch.Offset
	timestampMs  int64
}

func (b batchMeta) firstOffset() batch.Offset { return b.lastOffset - batch.Offset(b.offsetDelta) }

func (b batchMeta) baseSequence() int32 {
	if b.lastSequence == batch.NoSequence {
		return batch.NoSequence
	}
	return int32((int64(b.lastSequence) - int64(b.offsetDelta)) & math.MaxInt32)
}

// entry is the state of one producer id.
type entry struct {
	epoch            batch.Epoch
	coordinatorEpoch int32
	lastTimestampMs  int64        // of the last batch or marker
	txnFirstOffset   batch.Offset // noOffset: no open transaction
	batches          [batchesMax]batchMeta
	count            int8  // of batches, the oldest first
	lastSeenMs       int64 // broker's clock at the last append; 0 unknown. Soft.
}

func newEntry() *entry {
	return &entry{
		epoch:            batch.NoEpoch,
		coordinatorEpoch: noCoordinatorEpoch,
		lastTimestampMs:  batch.NoTimestampMs,
		txnFirstOffset:   noOffset,
	}
}

func (e *entry) isOpen() bool { return e != nil && e.txnFirstOffset != noOffset }

// currentEpoch is NoEpoch for an unknown producer.
func (e *entry) currentEpoch() batch.Epoch {
	if e == nil {
		return batch.NoEpoch
	}
	return e.epoch
}

// lastSequence is NoSequence when no batch of this epoch is remembered.
func (e *entry) lastSequence() int32 {
	if e == nil || e.count == 0 {
		return batch.NoSequence
	}
	return e.batches[e.count-1].lastSequence
}

func (e *entry) lastDataOffset() batch.Offset {
	if e.count == 0 {
		return noOffset
	}
	return e.batches[e.count-1].lastOffset
}

// find returns the remembered batch with exactly these sequence numbers.
func (e *entry) find(base, last int32) (batchMeta, bool) {
	for _, b := range e.batches[:e.count] {
		if b.lastSequence == last && b.baseSequence() == base {
			return b, true
		}
	}
	return batchMeta{}, false
}

// setEpoch moves to an epoch; the batches of another epoch are forgotten.
func (e *entry) setEpoch(epoch batch.Epoch) {
	if e.epoch != epoch {
		e.epoch, e.count = epoch, 0
	}
}

func (e *entry) push(b batchMeta) {
	if e.count == batchesMax {
		copy(e.batches[:], e.batches[1:])
		e.count--
	}
	e.batches[e.count] = b
	e.count++
}

// tokenEntry is a transaction whose verification has begun and that has no data
// here yet (VerificationStateEntry in Kafka).
type tokenEntry struct {
	token          Token
	createdMs      int64
	epoch          batch.Epoch
	lowestSequence int32 // of the epoch's batches seen while unverified
	tv2            bool
}
