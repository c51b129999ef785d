package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

const (
	journalDirName = "journal"
	journalSuffix  = ".jnl"

	keptSpares   = 2       // retired files kept for reuse: their blocks are allocated
	keptBufBytes = 8 << 20 // a larger group buffer is not kept
)

// journal is the write side of the journal. The committer owns it, except for
// the list of files.
type journal struct {
	s    *Store
	dir  string
	salt uint64

	file   vfs.File
	number uint64
	pos    int64 // where the next group goes
	size   int64 // of the file: allocated, zeros or stale bytes past pos

	seq        uint64 // of the next group
	durableSeq uint64 // of the last group that was synced
	buf        []byte

	files struct {
		sync.Mutex
		live   []uint64 // older than the current one and not yet retired, ascending
		spares []uint64 // retired, to be renamed for reuse
	}
}

func journalName(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", number, journalSuffix))
}

// listJournal returns the numbers of the files in the journal's directory.
func listJournal(fsys vfs.FS, dir string) ([]uint64, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, journalSuffix)
		if v, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && len(digits) == 20 {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out, nil
}

// begin makes a file the current one, by renaming a spare or creating it. Its
// name is durable before anything is written to it: otherwise a synced group
// could be in a file that is gone after a crash.
func (j *journal) begin(number uint64) error {
	name := journalName(j.dir, number)
	j.files.Lock()
	spare := uint64(0)
	if n := len(j.files.spares); n > 0 {
		spare = j.files.spares[n-1]
		j.files.spares = j.files.spares[:n-1]
	}
	j.files.Unlock()
	flag := createFlags
	if spare != 0 {
		if err := j.s.fs.Rename(journalName(j.dir, spare), name); err != nil {
			return err
		}
		flag = os.O_RDWR
	}
	file, err := j.s.fs.OpenFile(name, flag)
	if err != nil {
		return err
	}
	size, err := file.Size()
	if err == nil {
		err = j.s.fs.SyncDir(j.dir)
	}
	if err != nil {
		file.Close()
		return err
	}
	j.file, j.number, j.pos, j.size = file, number, 0, size/pageBytes*pageBytes
	return nil
}

// rotate goes on in the next file. The current one is synced first, so that
// groups of an older file are never less durable than those of a newer.
func (j *journal) rotate() error {
	if err := j.sync(); err != nil {
		return err
	}
	if err := j.file.Close(); err != nil {
		return err
	}
	j.files.Lock()
	j.files.live = append(j.files.live, j.number)
	j.files.Unlock()
	return j.begin(j.number + 1)
}

// encode builds a group from items in j.buf, without its header.
func (j *journal) encode(items []item) {
	if cap(j.buf) > keptBufBytes {
		j.buf = nil
	}
	j.buf = beginGroup(j.buf[:0])
	for i := range items {
		it := &items[i]
		j.buf = appendEntry(j.buf, entry{Kind: it.kind, Log: it.log.spec.ID, Offset: it.offset, Payload: it.payload})
	}
}

// fits tells whether the encoded group fits the current file. An empty file
// takes any group.
func (j *journal) fits() bool {
	return j.pos == 0 || j.pos+int64(len(j.buf)) <= j.s.opts.JournalFileBytes
}

// write writes the encoded group.
func (j *journal) write() error {
	j.buf = finishGroup(j.buf, groupHeader{File: j.number, Seq: j.seq, DurableSeq: j.durableSeq, Salt: j.salt})
	if _, err := j.file.WriteAt(j.buf, j.pos); err != nil {
		return err
	}
	j.pos += int64(len(j.buf))
	j.seq++
	if j.pos < j.size {
		return nil
	}
	// Zeros ahead: a sync of bytes within the allocated size has no metadata
	// to write, and takes about two thirds of the time.
	ahead := min(j.s.opts.PreallocateBytes, j.s.opts.JournalFileBytes-j.pos)
	j.size = j.pos
	if ahead <= 0 {
		return nil
	}
	zeros := make([]byte, min(ahead, 256<<10))
	for end := j.pos + ahead; j.size < end; j.size += int64(len(zeros)) {
		zeros = zeros[:min(int64(len(zeros)), end-j.size)]
		if _, err := j.file.WriteAt(zeros, j.size); err != nil {
			return err
		}
	}
	return nil
}

// sync makes every group written so far durable.
func (j *journal) sync() error {
	if j.durableSeq+1 == j.seq {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.durableSeq = j.seq - 1
	return nil
}

// retire lets the files below a number go: a checkpoint covers them.
func (j *journal) retire(below uint64) error {
	j.files.Lock()
	var surplus []uint64
	live := j.files.live[:0]
	for _, number := range j.files.live {
		switch {
		case number >= below:
			live = append(live, number)
		case len(j.files.spares) < keptSpares:
			j.files.spares = append(j.files.spares, number)
		default:
			surplus = append(surplus, number)
		}
	}
	j.files.live = live
	j.files.Unlock()
	for _, number := range surplus {
		if err := j.s.fs.Remove(journalName(j.dir, number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
