package prodstate

import (
	"math"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// openTxn is a transaction without a marker yet.
type openTxn struct {
	firstOffset batch.Offset
	producerID  batch.ProducerID
}

// endedTxn is a transaction whose marker may not be durable yet: its records
// must not be shown to read_committed consumers before the marker can be.
type endedTxn struct {
	firstOffset  batch.Offset
	markerOffset batch.Offset
}

// Apply records a batch that was appended at base. It is the only writer of hard
// state and serves the replay of a log too, hence it accepts whatever is stored.
// marker is the content of a control batch, nil when compaction emptied it or
// its type is not known; such a batch changes nothing.
//
// The result is not nil when the batch is a marker that ended a transaction with
// data in the partition.
func (m *Machine) Apply(base batch.Offset, h batch.Header, marker *Marker) *EndedTxn {
	if !h.HasProducer() {
		return nil
	}
	if h.IsControl() {
		if marker == nil {
			return nil
		}
		return m.applyMarker(base, &h, marker)
	}
	m.applyData(base, &h)
	return nil
}

// producer returns the state of pid, made if need be, and marks it as in use.
func (m *Machine) producer(pid batch.ProducerID) *entry {
	e := m.producers[pid]
	if e == nil {
		e = newEntry()
		m.producers[pid] = e
	}
	e.lastSeenMs = max(e.lastSeenMs, m.nowMs)
	return e
}

func (m *Machine) applyData(base batch.Offset, h *batch.Header) {
	e := m.producer(h.ProducerID)
	e.setEpoch(h.Epoch)
	e.push(batchMeta{
		lastSequence: h.LastSequence(),
		offsetDelta:  h.LastOffsetDelta,
		lastOffset:   base + batch.Offset(h.LastOffsetDelta),
		timestampMs:  h.MaxTimestampMs,
	})
	e.lastTimestampMs = h.MaxTimestampMs
	if !h.IsTransactional() {
		return
	}
	// From now on the open transaction is the proof that a token was.
	delete(m.tokens, h.ProducerID)
	if !e.isOpen() {
		e.txnFirstOffset = base
		m.insertOpen(openTxn{firstOffset: base, producerID: h.ProducerID})
	}
}

func (m *Machine) applyMarker(base batch.Offset, h *batch.Header, marker *Marker) *EndedTxn {
	e := m.producer(h.ProducerID)
	var ended *EndedTxn
	if e.isOpen() {
		m.removeOpen(e.txnFirstOffset, h.ProducerID)
		if base >= m.highWatermark {
			m.ended = append(m.ended, endedTxn{firstOffset: e.txnFirstOffset, markerOffset: base})
		}
		ended = &EndedTxn{
			ProducerID:       h.ProducerID,
			FirstOffset:      e.txnFirstOffset,
			LastOffset:       base,
			Aborted:          marker.Type == batch.ControlAbort,
			LastStableOffset: m.firstUndecided(base + 1),
		}
	}
	e.setEpoch(h.Epoch)
	e.coordinatorEpoch = marker.CoordinatorEpoch
	e.lastTimestampMs = h.MaxTimestampMs
	e.txnFirstOffset = noOffset
	m.endToken(h, marker)
	return ended
}

// endToken removes the producer's token, whose transaction the marker ended. But
// a version 2 marker ends a transaction of an epoch below its own; a token of
// its epoch or above belongs to a later transaction, whose first write overtook
// the marker, and stays (KAFKA-18575).
func (m *Machine) endToken(h *batch.Header, marker *Marker) {
	t := m.tokens[h.ProducerID]
	if t == nil || marker.TV2 && t.epoch >= h.Epoch {
		return
	}
	delete(m.tokens, h.ProducerID)
}

func compareOpen(a, b openTxn) int {
	switch {
	case a.firstOffset < b.firstOffset:
		return -1
	case a.firstOffset > b.firstOffset:
		return 1
	case a.producerID < b.producerID:
		return -1
	case a.producerID > b.producerID:
		return 1
	}
	return 0
}

// insertOpen keeps m.open in order; a new transaction is always the last.
func (m *Machine) insertOpen(t openTxn) {
	i, _ := slices.BinarySearchFunc(m.open, t, compareOpen)
	m.open = slices.Insert(m.open, i, t)
	m.undecidedVersion++
}

func (m *Machine) removeOpen(first batch.Offset, pid batch.ProducerID) {
	if i, ok := slices.BinarySearchFunc(m.open, openTxn{first, pid}, compareOpen); ok {
		m.open = slices.Delete(m.open, i, i+1)
		m.undecidedVersion++
	}
}

// firstUndecided is the first offset of an open transaction, or otherwise.
func (m *Machine) firstUndecided(otherwise batch.Offset) batch.Offset {
	if len(m.open) > 0 {
		return m.open[0].firstOffset
	}
	return otherwise
}

// LastStable returns the last stable offset under the high watermark hw, as
// Undecided.LastStable does, but at least the log's start.
func (m *Machine) LastStable(hw batch.Offset) batch.Offset {
	return max(lastStable(m.firstUndecided(math.MaxInt64), m.ended, hw), m.logStart)
}

func lastStable(open batch.Offset, ended []endedTxn, hw batch.Offset) batch.Offset {
	stable := min(hw, open)
	// By marker offset: only the last ones can be at or above hw.
	for i := len(ended) - 1; i >= 0 && ended[i].markerOffset >= hw; i-- {
		stable = min(stable, ended[i].firstOffset)
	}
	return stable
}

// Undecided is an immutable picture of the transactions that hold back the last
// stable offset. Nil is a picture without any.
type Undecided struct {
	open  batch.Offset // first offset of the earliest open one; MaxInt64: none
	ended []endedTxn
}

// Undecided returns the picture as of now.
func (m *Machine) Undecided() *Undecided {
	if len(m.open) == 0 && len(m.ended) == 0 {
		return nil
	}
	return &Undecided{open: m.firstUndecided(math.MaxInt64), ended: slices.Clone(m.ended)}
}

// UndecidedVersion changes whenever Undecided does.
func (m *Machine) UndecidedVersion() uint64 { return m.undecidedVersion }

// LastStable returns the last stable offset under the high watermark hw: the
// first offset that a read_committed consumer must not see yet. It is the
// earlier of hw and the first offset of a transaction that is open or whose
// marker is at or above hw.
func (u *Undecided) LastStable(hw batch.Offset) batch.Offset {
	if u == nil {
		return hw
	}
	return lastStable(u.open, u.ended, hw)
}

// Opening returns the picture with a transaction that begins at first, if none
// that is open begins earlier.
func (u *Undecided) Opening(first batch.Offset) *Undecided {
	switch {
	case u == nil:
		return &Undecided{open: first}
	case u.open <= first:
		return u
	}
	return &Undecided{open: first, ended: u.ended}
}

// AdvanceHighWatermark forgets the ended transactions whose marker is below hw.
// Call it with the log's end before a replay, when all of the log is durable.
func (m *Machine) AdvanceHighWatermark(hw batch.Offset) {
	m.highWatermark = max(m.highWatermark, hw)
	n := 0
	for n < len(m.ended) && m.ended[n].markerOffset < m.highWatermark {
		n++
	}
	if n > 0 {
		m.ended = slices.Delete(m.ended, 0, n)
		m.undecidedVersion++
	}
}

// SetLogStart tells that records below start were deleted. Producers stay known,
// and a transaction that began below start counts from start.
func (m *Machine) SetLogStart(start batch.Offset) {
	m.logStart = max(m.logStart, start)
	m.AdvanceHighWatermark(start)
}
