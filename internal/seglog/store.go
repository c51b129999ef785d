package seglog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Store holds the logs of one directory and their journal.
type Store struct {
	opts  Options
	fs    vfs.FS
	lock  io.Closer
	epoch int32

	logsMu sync.RWMutex
	logs   map[LogID]*Log
	byDir  map[string]*Log

	queue      *queue
	journal    *journal
	background *background
	pool       *pool
	recovery   Recovery

	durable   atomic.Uint64                 // LSN of the last group
	reported  atomic.Uint64                 // … whose OnDurable has returned
	groupDone atomic.Pointer[chan struct{}] // closed and replaced after each group

	cutRequests     chan *cutRequest
	checkpointed    chan struct{} // capacity 1: a checkpoint has ended
	checkpointsOpen atomic.Int32
	covered         atomic.Uint64 // first journal file the last checkpoint needs
	rootDirty       atomic.Bool   // names in Dir are not yet synced

	failed     atomic.Pointer[failedError]
	done       chan struct{} // closed when the store fails
	quit       chan struct{} // closed by Close and Crash
	closing    atomic.Bool
	failOnce   sync.Once
	quitOnce   sync.Once
	goroutines sync.WaitGroup
}

// Recovery says what Open found and did.
type Recovery struct {
	Clean      bool   // the last shutdown was clean: nothing was replayed
	Groups     int    // group commits applied from the journal
	Entries    int    // entries in them
	Bytes      int64  // bytes of journal read
	TornFile   string // journal file in which the valid part ends
	TornPos    int64  // and where
	TornReason string // why nothing more was applied; empty if the journal just ends there
	Salvaged   bool   // a corrupt group was cut off because Options.Salvage is set
}

// Recovery reports how this run began.
func (s *Store) Recovery() Recovery { return s.recovery }

// Epoch counts the starts of the store, from 0: it serves as leader epoch.
func (s *Store) Epoch() int32 { return s.epoch }

// DurableLSN is the LSN of the last append that is durable in the sense of the
// mode.
func (s *Store) DurableLSN() LSN { return LSN(s.durable.Load()) }

// AppendedLSN is the LSN of the last append.
func (s *Store) AppendedLSN() LSN { return LSN(s.queue.lsn.Load()) }

// Done is closed when the store fails.
func (s *Store) Done() <-chan struct{} { return s.done }

// Err is nil until the store fails; then it is the cause, wrapped in ErrFailed.
func (s *Store) Err() error {
	if err := s.failed.Load(); err != nil {
		return err
	}
	return nil
}

// fail stops the store for good. What was written is unknown after a failed
// write or sync, so it is neither retried nor rolled back.
func (s *Store) fail(cause error) error {
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrDeleted) {
		return cause
	}
	s.failOnce.Do(func() {
		err := &failedError{cause: fmt.Errorf("store %s: %w", s.opts.Dir, cause)}
		s.failed.Store(err)
		s.queue.stop(err)
		close(s.done)
	})
	return s.Err()
}

func (s *Store) running() bool {
	select {
	case <-s.quit:
		return false
	case <-s.done:
		return false
	default:
		return true
	}
}

func (s *Store) usable() error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.closing.Load() {
		return ErrClosed
	}
	return nil
}

// Log returns an open log, or nil.
func (s *Store) Log(id LogID) *Log {
	s.logsMu.RLock()
	defer s.logsMu.RUnlock()
	return s.logs[id]
}

// validate refuses names that do not make a directory of their own.
func (spec LogSpec) validate() error {
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}
	if spec.Topic == "" || len(spec.Topic) > 249 || spec.Topic == "." || spec.Topic == ".." ||
		strings.ContainsFunc(spec.Topic, bad) || spec.Partition < 0 {
		return fmt.Errorf("log %d: %q is no topic and partition: a topic has 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'", spec.ID, spec)
	}
	return nil
}

// Create adds an empty log. The caller has made its own record of the log
// durable; the store needs nothing synced, since an unknown log is empty. A
// directory of the same name is from an earlier incarnation, and is removed.
func (s *Store) Create(spec LogSpec) (*Log, error) {
	if err := s.usable(); err != nil {
		return nil, fmt.Errorf("create %s: %w", spec, err)
	}
	if err := spec.validate(); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	l := s.newLog(spec)
	s.logsMu.Lock()
	if other := s.taken(spec); other != nil {
		s.logsMu.Unlock()
		return nil, fmt.Errorf("create %s as log %d: log %d is %s", spec, spec.ID, other.spec.ID, other.spec)
	}
	s.logs[spec.ID], s.byDir[spec.String()] = l, l
	s.logsMu.Unlock()
	if err := s.removeDir(l.dir); err != nil {
		return nil, fmt.Errorf("create %s: %w", spec, s.fail(err))
	}
	return l, nil
}

func (s *Store) taken(spec LogSpec) *Log {
	if l := s.logs[spec.ID]; l != nil {
		return l
	}
	return s.byDir[spec.String()]
}

func (s *Store) newLog(spec LogSpec) *Log {
	l := &Log{s: s, spec: spec, dir: logDir(s.opts.Dir, spec)}
	l.segments.Store(&[]*segment{})
	l.segmentBytesMax.Store(spec.SegmentBytes)
	l.w.lastAbort = -1
	l.committed, l.synced = l.w, l.w
	return l
}

func (s *Store) removeDir(dir string) error {
	if _, err := s.fs.Stat(dir); err != nil {
		return nil
	}
	s.rootDirty.Store(true)
	return s.fs.RemoveAll(dir)
}

// Delete removes a log and its directory. The caller has made its own record
// of the deletion durable, and the log's owner has stopped. Readers under way
// get ErrDeleted.
func (s *Store) Delete(id LogID) error {
	if err := s.usable(); err != nil {
		return fmt.Errorf("delete log %d: %w", id, err)
	}
	s.logsMu.Lock()
	l := s.logs[id]
	delete(s.logs, id)
	s.logsMu.Unlock()
	if l == nil {
		return fmt.Errorf("delete log %d: there is none", id)
	}
	if err := l.moveAway(); err != nil {
		return fmt.Errorf("delete %s: %w", l.spec, s.fail(err))
	}
	s.logsMu.Lock()
	delete(s.byDir, l.spec.String()) // only now may another log take the name
	s.logsMu.Unlock()
	return nil
}

// moveAway takes a deleted log's directory out of the way, and has it removed.
func (l *Log) moveAway() error {
	s := l.s
	l.deleted.Store(true)
	l.dirUse.Lock()
	defer l.dirUse.Unlock()
	for _, g := range *l.segments.Load() {
		s.pool.forget(g)
		if err := g.close(false); err != nil {
			return err
		}
	}
	if _, err := s.fs.Stat(l.dir); err != nil {
		return nil // nothing was ever written
	}
	// Not with the topic in it: the longest one leaves no room in a file name.
	doomed := filepath.Join(s.opts.Dir, fmt.Sprintf("%d%s", l.spec.ID, deleteSuffix))
	if err := s.fs.Rename(l.dir, doomed); err != nil {
		return err
	}
	s.rootDirty.Store(true)
	s.background.add(task{run: func() error { return s.fs.RemoveAll(doomed) }})
	return nil
}

// Orphans returns the partition directories in Dir that no log claims: what a
// crash between the owner's record of a deletion and Delete leaves behind. An
// empty one is left where it is.
func (s *Store) Orphans() ([]string, error) {
	names, err := s.fs.List(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	s.logsMu.RLock()
	defer s.logsMu.RUnlock()
	return slices.DeleteFunc(names, func(name string) bool {
		if i := strings.LastIndexByte(name, '-'); i <= 0 || !isDigits(name[i+1:]) || s.byDir[name] != nil {
			return true
		}
		return !s.holdsPartition(name)
	}), nil
}

// holdsPartition reports whether a directory in Dir holds files of a partition
// and nothing else. A name alone proves nothing: whoever keeps other things in
// Dir must not lose them.
func (s *Store) holdsPartition(name string) bool {
	dir := filepath.Join(s.opts.Dir, name)
	st, err := s.fs.Stat(dir)
	if err != nil || !st.IsDir {
		return false
	}
	files, err := s.fs.List(dir)
	return err == nil && len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool {
		file = strings.TrimSuffix(file, ".tmp")
		return !slices.ContainsFunc([]string{logSuffix, indexSuffix, timeSuffix, txnSuffix, snapshotSuffix}, func(suffix string) bool {
			_, ok := parseOffsetName(file, suffix)
			return ok
		})
	})
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// RemoveOrphans deletes what Orphans returns.
func (s *Store) RemoveOrphans() error {
	names, err := s.Orphans()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.removeDir(filepath.Join(s.opts.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Checkpoint makes everything appended so far durable outside the journal, and
// waits for it.
func (s *Store) Checkpoint() error {
	if err := s.usable(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return s.requestCut(false)
}

func (s *Store) requestCut(clean bool) error {
	r := &cutRequest{clean: clean, done: make(chan error, 1)}
	select {
	case s.cutRequests <- r:
	case <-s.done:
		return s.Err()
	case <-s.quit:
		return ErrClosed
	}
	select {
	case err := <-r.done:
		return err
	case <-s.done:
		return s.Err()
	case <-s.quit:
		return ErrClosed
	}
}

// Close commits what is queued, writes a checkpoint with the mark of a clean
// shutdown, so that the next Open has nothing to replay, and releases the
// directory. The owners write their producer snapshots before. After a failure
// it only releases, and returns the failure.
func (s *Store) Close() error {
	if s.closing.Swap(true) {
		return ErrClosed
	}
	s.queue.stop(ErrClosed)
	err := s.Err()
	if err == nil {
		err = s.requestCut(true)
	}
	if rerr := s.release(); err == nil {
		err = rerr
	}
	return err
}

// Crash is for tests: it stops without writing anything more, as a killed
// process would, and releases the directory.
func (s *Store) Crash() {
	s.closing.Store(true)
	s.queue.stop(ErrClosed)
	s.release()
}

// release stops the goroutines and closes every file and the lock.
func (s *Store) release() error {
	s.quitOnce.Do(func() { close(s.quit) })
	s.goroutines.Wait()
	err := s.pool.closeAll()
	if s.journal.file != nil {
		if cerr := s.journal.file.Close(); err == nil {
			err = cerr
		}
		s.journal.file = nil
	}
	if lerr := s.lock.Close(); err == nil {
		err = lerr
	}
	return err
}
