package seglog

import (
	"github.com/hanbeon/hanbeon/internal/batch"
)

// OffsetForTimestamp finds the first batch below upTo, and at or after the log
// start, that has a record with a timestamp of ms or later (ListOffsets with a
// timestamp). It returns the base offset of the batch and its largest
// timestamp: the exact record is found by reading that one batch. ok is false
// if there is none.
func (l *Log) OffsetForTimestamp(ms int64, upTo batch.Offset) (base batch.Offset, maxTs int64, ok bool, err error) {
	start := int64(l.Start())
	for _, g := range l.find(start) {
		ts, _, err := g.maxTimestamp()
		if err == nil && ts >= ms {
			base, maxTs, ok, err = g.offsetForTimestamp(ms, start)
		}
		if err != nil {
			return 0, 0, false, l.wrap("look up timestamp in", g.base, err)
		}
		if ok {
			return base, maxTs, base < upTo, nil
		}
	}
	return 0, 0, false, nil
}

func (g *segment) offsetForTimestamp(ms, start int64) (base batch.Offset, maxTs int64, ok bool, err error) {
	if err := g.checkIndex(); err != nil {
		return 0, 0, false, err
	}
	// Every batch up to the entry's offset is older than ms.
	entry, found, err := g.times.floor(func(b []byte) bool { ts, _ := parseTimeEntry(b); return ts < ms })
	if err != nil {
		return 0, 0, false, err
	}
	from := start
	if found {
		_, rel := parseTimeEntry(entry)
		from = max(from, g.base+rel+1)
	}
	pos, err := g.position(from)
	if err != nil {
		return 0, 0, false, err
	}
	err = g.scan(pos, func(_ int64, h batchHeader) bool {
		if h.maxTs >= ms {
			base, maxTs, ok = batch.Offset(h.base), h.maxTs, true
		}
		return !ok
	})
	return base, maxTs, ok, err
}

// MaxTimestamp returns the largest timestamp of the log and the last offset of
// the first batch that has it; -1 and -1 if the log is empty (ListOffsets -3).
func (l *Log) MaxTimestamp() (offset batch.Offset, ms int64, err error) {
	offset, ms = -1, noTimestamp
	for _, g := range *l.segments.Load() {
		ts, at, err := g.maxTimestamp()
		if err != nil {
			return -1, noTimestamp, l.wrap("look up largest timestamp in", g.base, err)
		}
		if ts > ms && at >= l.start.Load() {
			offset, ms = batch.Offset(at), ts
		}
	}
	return offset, ms, nil
}
