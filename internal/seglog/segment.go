package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// segment is one segment of a log: the batches from its base offset on, with
// their indexes. The log's owner writes; any goroutine reads.
type segment struct {
	s    *Store
	log  *Log
	base int64
	name string // path without the extension

	size  atomic.Int64 // bytes of the .log file that readers may see
	dirty atomic.Bool  // the .log file has bytes that were not synced

	index *entryFile
	times *entryFile
	txns  *entryFile

	ts struct {
		sync.Mutex
		known       bool // not yet read from the time index of a sealed segment
		max, offset int64
	}
	rebuild sync.Mutex // one reader at a time rebuilds a damaged index
	syncing sync.Mutex // one sync at a time: who finds the file clean must not overtake the sync that cleans it
	checked atomic.Bool
	gone    atomic.Bool // being removed: nobody may make its files anew

	// The open file. Users hold the read lock while they use it; the pool
	// takes the write lock to close it.
	handle struct {
		sync.RWMutex
		file vfs.File
		used atomic.Bool // since the pool last looked
	}
}

const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	deleteSuffix   = "-delete"
	noTimestamp    = -1

	createFlags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
)

func newSegment(l *Log, base int64) *segment {
	name := filepath.Join(l.dir, fmt.Sprintf("%020d", base))
	created := func() { l.dirDirty.Store(true) }
	return &segment{
		s: l.s, log: l, base: base, name: name,
		index: newEntryFile(l.s.fs, name+indexSuffix, indexEntryBytes, created),
		times: newEntryFile(l.s.fs, name+timeSuffix, timeEntryBytes, created),
		txns:  newEntryFile(l.s.fs, name+txnSuffix, txnEntryBytes, created),
	}
}

// use calls f with the segment's open file.
func (g *segment) use(f func(vfs.File) error) error {
	for {
		g.handle.RLock()
		if file := g.handle.file; file != nil {
			if !g.handle.used.Load() {
				g.handle.used.Store(true)
			}
			err := f(file)
			g.handle.RUnlock()
			return err
		}
		g.handle.RUnlock()
		if err := g.open(os.O_RDWR); err != nil {
			return err
		}
	}
}

// open opens the file and hands it to the pool.
func (g *segment) open(flag int) error {
	if g.log.deleted.Load() {
		return ErrDeleted
	}
	select {
	case <-g.s.quit: // a reader that outlives the store opens nothing more
		return ErrClosed
	default:
	}
	file, err := g.s.fs.OpenFile(g.name+logSuffix, flag)
	if errors.Is(err, fs.ErrNotExist) && g.log.deleted.Load() {
		return ErrDeleted
	}
	if err != nil {
		return err
	}
	g.handle.Lock()
	if g.handle.file != nil { // another goroutine was faster
		g.handle.Unlock()
		return file.Close()
	}
	g.handle.file = file
	g.handle.used.Store(true)
	g.handle.Unlock()
	return g.s.pool.added(g)
}

// close closes the file, after a sync if it has unsynced bytes and sync is set:
// a later sync through another handle might not see this one's errors.
func (g *segment) close(sync bool) error {
	g.handle.Lock()
	file := g.handle.file
	g.handle.file = nil
	g.handle.Unlock()
	if file == nil {
		return nil
	}
	var err error
	if sync && !g.log.deleted.Load() {
		err = g.syncFile(file)
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}

// syncFile syncs the .log file if it has unsynced bytes. A failure stops the
// store before the lock is released: the bytes may be lost, and the next
// caller finds the file clean.
func (g *segment) syncFile(file vfs.File) error {
	g.syncing.Lock()
	defer g.syncing.Unlock()
	if !g.dirty.Swap(false) {
		return nil
	}
	if err := file.Sync(); err != nil {
		return g.s.fail(err)
	}
	return nil
}

// sync makes everything written so far durable, index entries included.
func (g *segment) sync() error {
	if g.dirty.Load() {
		if err := g.use(g.syncFile); err != nil {
			return err
		}
	}
	// Even when clean, another sync may be under way.
	g.syncing.Lock()
	g.syncing.Unlock() //lint:ignore SA2001 waiting is the purpose
	for _, e := range g.indexes() {
		// Kafka's tools want .index and .timeindex, even if empty.
		if err := e.flush(e != g.txns); err != nil {
			return err
		}
		if err := e.sync(); err != nil {
			return err
		}
	}
	return nil
}

func (g *segment) indexes() []*entryFile { return []*entryFile{g.index, g.times, g.txns} }

// remove deletes the segment's files.
func (g *segment) remove() error {
	g.gone.Store(true)
	if err := g.close(false); err != nil {
		return err
	}
	g.s.pool.forget(g)
	for _, suffix := range []string{indexSuffix, timeSuffix, txnSuffix, logSuffix} {
		if err := g.s.fs.Remove(g.name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// maxTimestamp returns the largest timestamp in the segment (-1 if it is
// empty) and the last offset of the first batch that has it.
func (g *segment) maxTimestamp() (ts, offset int64, err error) {
	g.ts.Lock()
	known, ts, offset := g.ts.known, g.ts.max, g.ts.offset
	g.ts.Unlock()
	if known {
		return ts, offset, nil
	}
	if err := g.checkIndex(); err != nil {
		return 0, 0, err
	}
	last, err := g.times.last()
	if err != nil {
		return 0, 0, err
	}
	ts, offset = noTimestamp, g.base
	if last != nil {
		var rel int64
		ts, rel = parseTimeEntry(last)
		offset = g.base + rel
	}
	g.setMaxTimestamp(ts, offset)
	return ts, offset, nil
}

func (g *segment) setMaxTimestamp(ts, offset int64) {
	g.ts.Lock()
	g.ts.known, g.ts.max, g.ts.offset = true, ts, offset
	g.ts.Unlock()
}

// readAt fills p from the .log file.
func (g *segment) readAt(p []byte, pos int64) error {
	return g.use(func(f vfs.File) error {
		n, err := f.ReadAt(p, pos)
		if err == io.EOF && n == len(p) {
			err = nil
		}
		if err == io.EOF {
			return g.corrupt(pos+int64(n), "the file ends here, its checkpoint knows more")
		}
		return err
	})
}

func (g *segment) corrupt(pos int64, reason string) error {
	return &CorruptError{File: g.name + logSuffix, Pos: pos, Reason: reason,
		Remedy: "the disk has changed what was synced: restore the file from a copy"}
}

const scanChunkBytes = 8 << 10

// scan calls f with the header of each batch from pos to the end of the
// segment, until f returns false.
func (g *segment) scan(pos int64, f func(pos int64, h batchHeader) bool) error {
	var chunk []byte
	chunkAt := pos
	for size := g.size.Load(); pos < size; {
		if pos+batch.HeaderSize > size {
			return g.corrupt(pos, "a batch header is cut by the end of the file")
		}
		if pos+batch.HeaderSize > chunkAt+int64(len(chunk)) {
			if chunk == nil {
				chunk = make([]byte, scanChunkBytes)
			}
			chunk = chunk[:min(scanChunkBytes, size-pos)]
			if err := g.readAt(chunk, pos); err != nil {
				return err
			}
			chunkAt = pos
		}
		h, err := parseHeader(chunk[pos-chunkAt:])
		if err != nil {
			return g.corrupt(pos, err.Error())
		}
		if pos+h.size > size {
			return g.corrupt(pos, "a batch is cut by the end of the file")
		}
		if !f(pos, h) {
			return nil
		}
		pos += h.size
	}
	return nil
}

// position returns where the first batch that ends at or after offset begins;
// the segment's size if there is none.
func (g *segment) position(offset int64) (int64, error) {
	if err := g.checkIndex(); err != nil {
		return 0, err
	}
	pos := int64(0)
	entry, ok, err := g.index.floor(func(b []byte) bool {
		rel, _ := parseIndexEntry(b)
		return g.base+rel <= offset
	})
	if err != nil {
		return 0, err
	}
	if ok {
		_, pos = parseIndexEntry(entry)
	}
	found := int64(-1)
	err = g.scan(pos, func(pos int64, h batchHeader) bool {
		if h.last >= offset {
			found = pos
			return false
		}
		return true
	})
	if found < 0 {
		found = g.size.Load()
	}
	return found, err
}

// checkIndex rebuilds the indexes of a sealed segment if one is missing, has a
// broken entry, or lacks the time index entry that sealing adds. It looks once.
func (g *segment) checkIndex() error {
	if g.checked.Load() {
		return nil
	}
	g.rebuild.Lock()
	defer g.rebuild.Unlock()
	if g.checked.Load() {
		return nil
	}
	if g.gone.Load() {
		return fmt.Errorf("segment %s: %w", g.name, fs.ErrNotExist)
	}
	for _, e := range []*entryFile{g.index, g.times} {
		st, err := g.s.fs.Stat(e.name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		empty := err != nil || st.Size == 0 && e == g.times
		if empty && g.size.Load() > 0 || st.Size%int64(e.size) != 0 {
			if _, err := g.rebuildIndexes(true); err != nil {
				return fmt.Errorf("rebuild indexes of %s: %w", g.name, err)
			}
			break
		}
	}
	g.checked.Store(true)
	return nil
}

// rebuildIndexes writes .index and .timeindex anew from the batches. The time
// index of a sealed segment gets its last entry.
func (g *segment) rebuildIndexes(sealed bool) (indexer, error) {
	for _, e := range []*entryFile{g.index, g.times} {
		if err := e.cutTo(0); err != nil {
			return indexer{}, err
		}
	}
	x := newIndexer(g)
	err := g.scan(0, func(pos int64, h batchHeader) bool {
		x.batch(pos, h)
		return true
	})
	if err != nil {
		return x, err
	}
	if sealed {
		x.seal()
	}
	for _, e := range []*entryFile{g.index, g.times} {
		if err := e.flush(true); err != nil {
			return x, err
		}
	}
	return x, nil
}

// indexer decides which batches get index entries, as Kafka's LogSegment.
type indexer struct {
	g          *segment
	maxTs      int64 // largest timestamp so far, -1 if none
	maxTsAt    int64 // last offset of the first batch with it
	lastTimeTs int64 // timestamp of the last time index entry
	since      int64 // bytes since the last index entry
}

func newIndexer(g *segment) indexer {
	return indexer{g: g, maxTs: noTimestamp, maxTsAt: g.base, lastTimeTs: noTimestamp}
}

// batch takes note of a batch, and returns the most entries that an index
// has in memory.
func (x *indexer) batch(pos int64, h batchHeader) (inMemory int) {
	if h.maxTs > x.maxTs {
		x.maxTs, x.maxTsAt = h.maxTs, h.last
		x.g.setMaxTimestamp(x.maxTs, x.maxTsAt)
	}
	if x.since > x.g.s.opts.IndexIntervalBytes {
		inMemory = x.g.index.add(indexEntry(h.last-x.g.base, pos))
		x.time()
		x.since = 0
	}
	x.since += h.size
	return inMemory
}

// time adds a time index entry if the largest timestamp has grown.
func (x *indexer) time() {
	if x.maxTs > x.lastTimeTs {
		x.g.times.add(timeEntry(x.maxTs, x.maxTsAt-x.g.base))
		x.lastTimeTs = x.maxTs
	}
}

// seal adds the last time index entry, from which the largest timestamp of a
// sealed segment is read.
func (x *indexer) seal() { x.time() }
