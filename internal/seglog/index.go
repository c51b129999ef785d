package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"sync"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Sizes of the entries of Kafka's index files.
const (
	indexEntryBytes = 8  // int32 relative last offset of a batch, int32 its position
	timeEntryBytes  = 12 // int64 timestamp, int32 relative offset
	txnEntryBytes   = 34 // see parseAborted
)

// entryFile is an index file: entries of one size, ascending. The newest are
// in memory until a flush, so that no file need be open. One goroutine adds;
// any may flush, sync and search.
type entryFile struct {
	fs   vfs.FS
	name string
	size int

	created func() // called when the file may be new, after it was created

	mu     sync.Mutex
	loaded bool
	exists bool   // as far as known
	inFile int    // entries in the file
	tail   []byte // the entries after those
	dirty  bool   // the file has bytes that were not synced
}

func newEntryFile(fsys vfs.FS, name string, size int, created func()) *entryFile {
	return &entryFile{fs: fsys, name: name, size: size, created: created}
}

// opened is for a file whose number of entries is known.
func (e *entryFile) opened(entries int) *entryFile {
	e.loaded, e.inFile, e.exists = true, entries, entries > 0
	return e
}

// load finds out how many entries the file of a sealed segment has.
func (e *entryFile) load() error {
	e.mu.Lock()
	loaded := e.loaded
	e.mu.Unlock()
	if loaded {
		return nil
	}
	st, err := e.fs.Stat(e.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.loaded {
		e.opened(int(st.Size) / e.size)
		e.exists = err == nil
	}
	return nil
}

// add appends an entry and returns the number of entries in memory.
func (e *entryFile) add(b []byte) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tail = append(e.tail, b...)
	return len(e.tail) / e.size
}

func (e *entryFile) entries() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inFile + len(e.tail)/e.size
}

// flush writes the entries in memory to the file. If create is set the file
// comes to be even if it is empty. Two flushes at once write the same bytes to
// the same place.
func (e *entryFile) flush(create bool) error {
	e.mu.Lock()
	from, data := e.inFile, append([]byte(nil), e.tail...)
	create = create && !e.exists && e.loaded // a lost one is to be rebuilt
	e.mu.Unlock()
	if len(data) == 0 && !create {
		return nil
	}
	f, err := e.fs.OpenFile(e.name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if from == 0 {
		e.created()
	}
	if len(data) > 0 {
		_, err = f.WriteAt(data, int64(from)*int64(e.size))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dirty, e.exists = true, true
	if end := from + len(data)/e.size; end > e.inFile {
		e.tail = append([]byte(nil), e.tail[(end-e.inFile)*e.size:]...)
		e.inFile = end
	}
	return nil
}

// sync makes what was flushed durable.
func (e *entryFile) sync() error {
	e.mu.Lock()
	dirty := e.dirty
	e.dirty = false
	e.mu.Unlock()
	if !dirty {
		return nil
	}
	f, err := e.fs.OpenFile(e.name, os.O_RDWR)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// cutTo makes the file hold exactly n entries, which it must have.
func (e *entryFile) cutTo(n int) error {
	e.mu.Lock()
	e.loaded, e.inFile, e.tail = true, n, nil
	e.dirty = true
	e.mu.Unlock()
	f, err := e.fs.OpenFile(e.name, os.O_RDWR)
	if n == 0 && errors.Is(err, fs.ErrNotExist) {
		e.mu.Lock()
		e.dirty = false
		e.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Truncate(int64(n) * int64(e.size))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// floor returns the last entry for which le holds; le must hold for a prefix.
func (e *entryFile) floor(le func(entry []byte) bool) ([]byte, bool, error) {
	i, entry, err := e.search(func(b []byte) bool { return !le(b) })
	if err != nil || i == 0 && entry == nil {
		return nil, false, err
	}
	return entry, entry != nil, nil
}

// search returns the number of entries before the first for which ge holds,
// and a copy of the entry before that one (nil if there is none).
func (e *entryFile) search(ge func(entry []byte) bool) (int, []byte, error) {
	if err := e.load(); err != nil {
		return 0, nil, err
	}
	e.mu.Lock()
	inFile := e.inFile
	if n := len(e.tail) / e.size; n > 0 && (inFile == 0 || !ge(e.tail[:e.size])) {
		i := sort.Search(n, func(i int) bool { return ge(e.tail[i*e.size : (i+1)*e.size]) })
		var before []byte
		if i > 0 {
			before = append(before, e.tail[(i-1)*e.size:i*e.size]...)
		}
		e.mu.Unlock()
		return inFile + i, before, nil
	}
	e.mu.Unlock()
	if inFile == 0 {
		return 0, nil, nil
	}
	return e.searchFile(inFile, ge)
}

func (e *entryFile) searchFile(n int, ge func(entry []byte) bool) (int, []byte, error) {
	f, err := e.fs.OpenFile(e.name, os.O_RDONLY)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	buf := make([]byte, e.size)
	var rerr error
	i := sort.Search(n, func(i int) bool {
		if rerr != nil {
			return true
		}
		if _, rerr = f.ReadAt(buf, int64(i)*int64(e.size)); rerr != nil {
			return true
		}
		return ge(buf)
	})
	if rerr == nil && i > 0 {
		_, rerr = f.ReadAt(buf, int64(i-1)*int64(e.size))
	}
	if rerr != nil {
		return 0, nil, fmt.Errorf("read index %s: %w", e.name, rerr)
	}
	if i == 0 {
		return 0, nil, nil
	}
	return i, buf, nil
}

// last returns the last entry, or nil.
func (e *entryFile) last() ([]byte, error) {
	_, entry, err := e.search(func([]byte) bool { return false })
	return entry, err
}

// from returns the entries from number i on, one after the other.
func (e *entryFile) from(i int) ([]byte, error) {
	if err := e.load(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	inFile, tail := e.inFile, append([]byte(nil), e.tail...)
	e.mu.Unlock()
	if i >= inFile {
		return tail[min((i-inFile)*e.size, len(tail)):], nil
	}
	f, err := e.fs.OpenFile(e.name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := make([]byte, (inFile-i)*e.size, (inFile-i)*e.size+len(tail))
	if _, err := f.ReadAt(out, int64(i)*int64(e.size)); err != nil {
		return nil, fmt.Errorf("read index %s: %w", e.name, err)
	}
	return append(out, tail...), nil
}

func indexEntry(rel int64, pos int64) []byte {
	b := make([]byte, 0, indexEntryBytes)
	b = binary.BigEndian.AppendUint32(b, uint32(rel))
	return binary.BigEndian.AppendUint32(b, uint32(pos))
}

func parseIndexEntry(b []byte) (rel, pos int64) {
	return int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
}

func timeEntry(ts, rel int64) []byte {
	b := make([]byte, 0, timeEntryBytes)
	b = binary.BigEndian.AppendUint64(b, uint64(ts))
	return binary.BigEndian.AppendUint32(b, uint32(rel))
}

func parseTimeEntry(b []byte) (ts, rel int64) {
	return int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint32(b[8:]))
}
