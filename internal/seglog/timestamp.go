package seglog

import (
	"github.com/hanbeon/hanbeon/internal/batch"
)

// OffsetForTimestamp finds the first record below upTo, and at or after the
// log start, with a timestamp of ms or later (ListOffsets with a timestamp),
// and returns its offset and timestamp. Markers count as records. ok is false
// if there is none.
func (l *Log) OffsetForTimestamp(ms int64, upTo batch.Offset) (off batch.Offset, ts int64, ok bool, err error) {
	start := int64(l.Start())
	upTo = min(upTo, l.End())
	for _, g := range l.find(start) {
		if g.base >= int64(upTo) {
			break
		}
		maxTs, _, err := g.maxTimestamp()
		if err == nil && maxTs >= ms {
			off, ts, ok, err = g.offsetForTimestamp(ms, start, int64(upTo))
		}
		if err != nil && int64(l.Start()) > start { // a segment was deleted meanwhile
			return l.OffsetForTimestamp(ms, upTo)
		}
		if err = l.stillThere(err); err != nil {
			return 0, 0, false, l.wrap("look up timestamp in", g.base, err)
		}
		if ok {
			return off, ts, true, nil
		}
	}
	return 0, 0, false, nil
}

func (g *segment) offsetForTimestamp(ms, start, upTo int64) (off batch.Offset, ts int64, ok bool, err error) {
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
	var inner error
	err = g.scan(pos, func(pos int64, h batchHeader) bool {
		if h.base >= upTo {
			return false
		}
		if h.maxTs >= ms {
			off, ts, ok, inner = g.firstRecord(pos, h, ms, batch.Offset(start))
		}
		return !ok && inner == nil
	})
	if err == nil {
		err = inner
	}
	return off, ts, ok && int64(off) < upTo, err
}

// firstRecord looks in one batch for the first record at or after an offset
// and a time.
func (g *segment) firstRecord(pos int64, bh batchHeader, ms int64, from batch.Offset) (off batch.Offset, ts int64, ok bool, err error) {
	raw := make([]byte, bh.size)
	if err := g.readAt(raw, pos); err != nil {
		return 0, 0, false, err
	}
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return 0, 0, false, g.corrupt(pos, err.Error())
	}
	for r, err := range batch.Records(raw) {
		if err != nil {
			return 0, 0, false, g.corrupt(pos, err.Error())
		}
		off, ts := h.BaseOffset+batch.Offset(r.OffsetDelta), h.TimestampMs(&r)
		if off >= from && ts >= ms {
			return off, ts, true, nil
		}
	}
	return 0, 0, false, nil
}

// MaxTimestamp returns the offset and timestamp of the first record with the
// largest timestamp in the log; -1 and -1 if there is none (ListOffsets -3).
func (l *Log) MaxTimestamp() (off batch.Offset, ms int64, err error) {
	start := l.Start()
	off, ms, err = l.maxTimestamp(int64(start))
	if err != nil && l.Start() > start { // a segment was deleted meanwhile
		return l.MaxTimestamp()
	}
	if err = l.stillThere(err); err != nil {
		return -1, batch.NoTimestampMs, l.wrap("look up largest timestamp in", int64(start), err)
	}
	return off, ms, nil
}

func (l *Log) maxTimestamp(start int64) (off batch.Offset, ms int64, err error) {
	var in *segment
	at := int64(-1)
	ms = batch.NoTimestampMs
	for _, g := range l.find(start) {
		ts, last, err := g.maxTimestamp()
		if err != nil {
			return 0, 0, err
		}
		if ts > ms && last >= start {
			in, at, ms = g, last, ts
		}
	}
	if in == nil {
		return -1, ms, nil
	}
	pos, err := in.position(at)
	if err != nil {
		return 0, 0, err
	}
	off = batch.Offset(at) // if the header promises more than the records hold
	scanErr := in.scan(pos, func(pos int64, h batchHeader) bool {
		o, _, ok, rerr := in.firstRecord(pos, h, ms, batch.Offset(start))
		if err = rerr; ok {
			off = o
		}
		return false
	})
	if err == nil {
		err = scanErr
	}
	return off, ms, err
}
