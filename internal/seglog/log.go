package seglog

import (
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Log is one partition's log. One goroutine at a time, its owner, may call
// Append, AppendAborted, SetStart and WriteProducerSnapshot; any may call the
// rest.
type Log struct {
	s    *Store
	spec LogSpec
	dir  string

	start      atomic.Int64
	end        atomic.Int64
	durableEnd atomic.Int64
	segments   atomic.Pointer[[]*segment] // ascending; the last one is active
	deleted    atomic.Bool
	dirUse     sync.RWMutex // held for reading by the background goroutine in dir, for writing by Delete
	dirDirty   atomic.Bool  // names in dir are not yet synced
	hints      [4]atomic.Pointer[readHint]
	nextHint   atomic.Uint32

	segmentBytesMax atomic.Int64

	w         logState // the owner's
	committed logState // the committer's: as of the last group

	synced logState // the background goroutine's: as of the last checkpoint

	snapshots snapshots
}

// logState is the state of a log after some append. It travels through the
// journal's queue, so that a checkpoint can take the state as of a group while
// the owner is already further.
type logState struct {
	start, end int64
	seg        *segment // active; nil before the first append
	pos        int64    // its size
	x          indexer
	indexN     int // entries of its indexes
	timeN      int
	txnN       int
	lastAbort  int64 // last offset of its last transaction index entry, -1 if none
}

// Spec returns what the log was opened with.
func (l *Log) Spec() LogSpec { return l.spec }

// Start is the log start offset: what DeleteRecords and retention have left.
func (l *Log) Start() batch.Offset { return batch.Offset(l.start.Load()) }

// End is the offset of the next append.
func (l *Log) End() batch.Offset { return batch.Offset(l.end.Load()) }

// DurableEnd is the end as of the last group commit.
func (l *Log) DurableEnd() batch.Offset { return batch.Offset(l.durableEnd.Load()) }

// SegmentInfo describes one segment, for retention.
type SegmentInfo struct {
	Base           batch.Offset
	Next           batch.Offset // base of the next segment; the log's end for the last
	Bytes          int64
	MaxTimestampMs int64 // -1 if the segment is empty
}

// Segments describes the log's segments, oldest first.
func (l *Log) Segments() ([]SegmentInfo, error) {
	var out []SegmentInfo
	for _, g := range *l.segments.Load() {
		ts, _, err := g.maxTimestamp()
		if err != nil && g.gone.Load() { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, l.wrap("read segments", g.base, err)
		}
		if n := len(out); n > 0 {
			out[n-1].Next = batch.Offset(g.base)
		}
		out = append(out, SegmentInfo{Base: batch.Offset(g.base), Next: l.End(), Bytes: g.size.Load(), MaxTimestampMs: ts})
	}
	return out, nil
}

// Size is the bytes in the log's segment files, indexes not counted.
func (l *Log) Size() int64 {
	n := int64(0)
	for _, g := range *l.segments.Load() {
		n += g.size.Load()
	}
	return n
}

func (l *Log) wrap(op string, offset int64, err error) error {
	return fmt.Errorf("%s %s at offset %d: %w", op, l.spec, offset, err)
}

func (l *Log) usable() error {
	if l.deleted.Load() {
		return ErrDeleted
	}
	return l.s.usable()
}

// Append appends one batch, whose base offset must already be the log's end.
// It writes to the segment file, queues the batch for the journal and returns
// without waiting for either to be durable; it waits only while the queue is
// over its bound. raw must not change until the returned LSN is durable.
//
// If rolled is true the batch began a new segment. As in Kafka, the owner then
// writes a producer snapshot at the batch's base offset, of the state before
// the batch.
//
// An error of the disk stops the whole store. An ErrBadBatch does not.
func (l *Log) Append(raw []byte, h batch.Header) (lsn LSN, rolled bool, err error) {
	if err := l.usable(); err != nil {
		return 0, false, l.wrap("append to", l.w.end, err)
	}
	bh := batchHeader{
		base: int64(h.BaseOffset), last: int64(h.BaseOffset) + int64(h.LastOffsetDelta),
		size: int64(h.Length) + 12, maxTs: h.MaxTimestampMs,
	}
	if bh.base != l.w.end || bh.last < bh.base || bh.size != int64(len(raw)) ||
		bh.size < batch.HeaderSize || bh.size > maxSegmentBytes {
		return 0, false, l.wrap("append to", l.w.end, fmt.Errorf("%w: offsets %d to %d, length field %d, %d bytes",
			ErrBadBatch, bh.base, bh.last, h.Length, len(raw)))
	}
	rolled, err = l.write(raw, bh)
	if err != nil {
		return 0, false, l.wrap("append to", bh.base, l.s.fail(err))
	}
	lsn, err = l.s.queue.put(item{kind: entryAppend, log: l, offset: h.BaseOffset, payload: raw, after: l.w})
	if err != nil {
		return 0, rolled, l.wrap("append to", bh.base, err)
	}
	return lsn, rolled, nil
}

// write puts a batch into the active segment, rolling first if need be.
func (l *Log) write(raw []byte, h batchHeader) (rolled bool, err error) {
	g := l.w.seg
	switch {
	case g == nil:
		err = l.addSegment(h.base)
	case l.w.pos > 0 && (l.w.pos+h.size > l.segmentBytes() || h.last-g.base > math.MaxInt32):
		rolled = true
		err = l.roll(h.base)
	}
	if err != nil {
		return false, err
	}
	g = l.w.seg
	err = g.use(func(f vfs.File) error {
		_, err := f.WriteAt(raw, l.w.pos)
		g.dirty.Store(true) // after the write, so that no sync in between makes it clean
		return err
	})
	if err != nil {
		return false, err
	}
	pos := l.w.pos
	l.w.pos += h.size
	l.w.end = h.last + 1
	g.size.Store(l.w.pos)
	inMemory := l.w.x.batch(pos, h)
	l.w.indexN, l.w.timeN = g.index.entries(), g.times.entries()
	l.end.Store(l.w.end)
	if inMemory >= l.s.opts.IndexFlushEntries {
		for _, e := range g.indexes() {
			if err := e.flush(false); err != nil {
				return false, err
			}
		}
	}
	return rolled, nil
}

func (l *Log) segmentBytes() int64 {
	if n := l.segmentBytesMax.Load(); n > 0 {
		return min(n, maxSegmentBytes)
	}
	return l.s.opts.SegmentBytes
}

// SetSegmentBytes changes the size at which the log rolls; 0 means
// Options.SegmentBytes. Segments that exist stay.
func (l *Log) SetSegmentBytes(n int64) { l.segmentBytesMax.Store(n) }

// Roll begins a new segment at the log's end unless the active one is empty
// (segment.ms: only a segment that is not active can be deleted). The owner
// calls it, and then writes a producer snapshot as after Append. A crash may
// undo it.
func (l *Log) Roll() (rolled bool, err error) {
	if err := l.usable(); err != nil {
		return false, l.wrap("roll", l.w.end, err)
	}
	if l.w.seg == nil || l.w.pos == 0 {
		return false, nil
	}
	if err := l.roll(l.w.end); err != nil {
		return false, l.wrap("roll", l.w.end, l.s.fail(err))
	}
	return true, nil
}

// roll seals the active segment and begins the next.
func (l *Log) roll(base int64) error {
	g := l.w.seg
	l.w.x.seal()
	for _, e := range g.indexes() {
		if err := e.flush(e != g.txns); err != nil {
			return err
		}
	}
	return l.addSegment(base)
}

// addSegment creates an empty segment and makes it the active one. Nothing
// here is synced: the journal is what counts until the next checkpoint.
func (l *Log) addSegment(base int64) error {
	if err := l.s.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	g := newSegment(l, base)
	g.checked.Store(true)
	g.index.opened(0)
	g.times.opened(0)
	g.txns.opened(0)
	if err := g.open(createFlags); err != nil {
		return err
	}
	g.dirty.Store(true)
	g.setMaxTimestamp(noTimestamp, base)
	l.dirDirty.Store(true)
	l.s.rootDirty.Store(true)
	for {
		old := l.segments.Load()
		segs := append((*old)[:len(*old):len(*old)], g)
		if l.segments.CompareAndSwap(old, &segs) { // trim may shorten it meanwhile
			break
		}
	}
	l.w.seg, l.w.pos, l.w.x = g, 0, newIndexer(g)
	l.w.indexN, l.w.timeN, l.w.txnN, l.w.lastAbort = 0, 0, 0, -1
	return nil
}

// SetStart raises the log start offset (DeleteRecords, retention). It is
// durable with the returned LSN, after which whole segments below it are
// deleted in the background. An offset at or below the start changes nothing;
// the LSN is then that of the last append.
func (l *Log) SetStart(offset batch.Offset) (LSN, error) {
	if err := l.usable(); err != nil {
		return 0, l.wrap("set start of", int64(offset), err)
	}
	if int64(offset) > l.w.end {
		return 0, l.wrap("set start of", int64(offset), fmt.Errorf("%w: log ends at %d", ErrOffsetOutOfRange, l.w.end))
	}
	if int64(offset) <= l.w.start {
		return l.s.AppendedLSN(), nil
	}
	l.w.start = int64(offset)
	l.start.Store(int64(offset))
	lsn, err := l.s.queue.put(item{kind: entrySetStart, log: l, offset: offset, after: l.w})
	if err != nil {
		return 0, l.wrap("set start of", int64(offset), err)
	}
	l.s.background.add(task{lsn: lsn, log: l, run: func() error { return l.trim(int64(offset)) }})
	return lsn, nil
}

// trim deletes the segments that lie wholly below start, except the one that
// the checkpoint on disk calls the last, and what follows it: from there
// recovery begins. The next checkpoint trims again. Only the background
// goroutine calls it; the owner may add a segment meanwhile.
func (l *Log) trim(start int64) error {
	if l.synced.seg == nil {
		return nil
	}
	for {
		old := l.segments.Load()
		n := 0
		for n+1 < len(*old) && (*old)[n+1].base <= start && (*old)[n].base < l.synced.seg.base {
			n++
		}
		if n == 0 {
			return nil
		}
		segs := (*old)[n:]
		segs = segs[:len(segs):len(segs)]
		if !l.segments.CompareAndSwap(old, &segs) {
			continue
		}
		for _, g := range (*old)[:n] {
			if err := g.remove(); err != nil {
				return l.wrap("delete segment of", g.base, err)
			}
		}
		l.dirDirty.Store(true)
		return nil
	}
}

func logDir(root string, spec LogSpec) string { return filepath.Join(root, spec.String()) }
