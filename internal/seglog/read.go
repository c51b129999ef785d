package seglog

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// readHint remembers where a reader will probably go on.
type readHint struct {
	seg    *segment
	offset int64
	pos    int64
}

// find returns the segments from the one that may hold offset on.
func (l *Log) find(offset int64) []*segment {
	segs := *l.segments.Load()
	i := sort.Search(len(segs), func(i int) bool { return segs[i].base > offset })
	return segs[max(i-1, 0):]
}

// Read appends to dst whole batches from the one that holds from on, and
// returns the result. It reads batches that end below upTo, at most maxBytes
// of them and only from one segment; with atLeastOne the first batch is
// returned even if it is larger. An empty result means that there is nothing
// below upTo. It may run concurrently with the owner's appends.
//
// Offsets below Start or above End are ErrOffsetOutOfRange.
func (l *Log) Read(dst []byte, from batch.Offset, maxBytes int, upTo batch.Offset, atLeastOne bool) ([]byte, error) {
	if from < l.Start() || from > l.End() {
		return dst, l.wrap("read", int64(from), fmt.Errorf("%w: log is [%d, %d)", ErrOffsetOutOfRange, l.Start(), l.End()))
	}
	upTo = min(upTo, l.End())
	if from >= upTo || maxBytes <= 0 && !atLeastOne {
		return dst, nil
	}
	had := len(dst)
	for _, g := range l.find(int64(from)) {
		pos, err := l.locate(g, int64(from))
		found := err == nil && pos < g.size.Load()
		if found {
			dst, err = l.readSegment(g, dst, pos, maxBytes, int64(upTo), atLeastOne)
		}
		if err != nil && from < l.Start() { // the segment was deleted meanwhile
			err = ErrOffsetOutOfRange
		}
		if err = l.stillThere(err); err != nil {
			return dst[:had], l.wrap("read", int64(from), err)
		}
		if found {
			return dst, nil
		}
	}
	return dst, nil
}

// stillThere ends every read: while the log was being deleted, a file of the
// same name may have come to be another log's.
func (l *Log) stillThere(err error) error {
	if l.deleted.Load() {
		return ErrDeleted
	}
	return err
}

// locate is segment.position with a look at the hints first.
func (l *Log) locate(g *segment, from int64) (int64, error) {
	for i := range l.hints {
		if h := l.hints[i].Load(); h != nil && h.seg == g && h.offset == from {
			return h.pos, nil
		}
	}
	return g.position(from)
}

// readSegment reads from a position at which a batch begins.
func (l *Log) readSegment(g *segment, dst []byte, pos int64, maxBytes int, upTo int64, atLeastOne bool) ([]byte, error) {
	had := len(dst)
	n := int(min(int64(max(maxBytes, batch.HeaderSize)), g.size.Load()-pos))
	dst = slices.Grow(dst, n)[:had+n]
	if err := g.readAt(dst[had:], pos); err != nil {
		return dst[:had], err
	}
	got := dst[had:]
	whole, next := 0, int64(-1)
	for whole+batch.HeaderSize <= len(got) {
		h, err := parseHeader(got[whole:])
		if err == nil && pos+int64(whole)+h.size > g.size.Load() {
			err = fmt.Errorf("batch of %d bytes reaches past the end of the file", h.size)
		}
		if err != nil {
			return dst[:had], g.corrupt(pos+int64(whole), err.Error())
		}
		if h.last >= upTo {
			break
		}
		end := whole + int(h.size)
		if end > len(got) || end > maxBytes {
			if whole > 0 || !atLeastOne {
				break
			}
			if end > len(got) {
				read := len(got)
				dst = slices.Grow(dst, end-read)[:had+end]
				got = dst[had:]
				if err := g.readAt(got[read:], pos+int64(read)); err != nil {
					return dst[:had], err
				}
			}
			whole, next = end, h.last+1
			break
		}
		whole, next = end, h.last+1
	}
	if next >= 0 {
		i := l.nextHint.Add(1) % uint32(len(l.hints))
		l.hints[i].Store(&readHint{seg: g, offset: next, pos: pos + int64(whole)})
	}
	return dst[:had+whole], nil
}

const replayBytes = 256 << 10

// Batches yields the log's batches, one at a time, from the one that holds
// from (or the first one after it) to the end as of the call. A batch is valid
// until the next is asked for. Checksums are verified; the first error ends
// the sequence.
func (l *Log) Batches(from batch.Offset) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		from, upTo := max(from, l.Start()), l.End()
		var buf []byte
		for from < upTo {
			var err error
			buf, err = l.Read(buf[:0], from, replayBytes, upTo, true)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(buf) == 0 {
				return
			}
			for rest := buf; len(rest) > 0; {
				h, err := parseHeader(rest)
				if err == nil {
					err = checkBatchCRC(rest[:h.size])
				}
				if err != nil {
					yield(nil, l.wrap("replay", h.base, l.corruptBatch(h.base, err)))
					return
				}
				if !yield(rest[:h.size:h.size], nil) {
					return
				}
				rest = rest[h.size:]
				from = batch.Offset(h.last + 1)
			}
		}
	}
}

// corruptBatch names the file of a damaged batch.
func (l *Log) corruptBatch(offset int64, cause error) error {
	g := l.find(offset)[0]
	pos, _ := g.position(offset)
	return g.corrupt(pos, cause.Error())
}
