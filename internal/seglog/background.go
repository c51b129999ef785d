package seglog

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

const checkpointName = "checkpoint"

// task is work for the background goroutine, due once lsn is durable.
type task struct {
	lsn LSN
	log *Log // if set, the task is dropped when the log is deleted
	run func() error
}

// background runs tasks in order, one at a time: checkpoints, deletion of
// segments and directories, producer snapshots. It never waits for the
// committer, which may wait for it.
type background struct {
	s    *Store
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	tasks []task
}

func newBackground(s *Store) *background {
	return &background{s: s, wake: make(chan struct{}, 1)}
}

func (b *background) add(t task) {
	b.mu.Lock()
	b.tasks = append(b.tasks, t)
	b.mu.Unlock()
	b.poke()
}

func (b *background) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// durable wakes the goroutine if tasks wait for the journal.
func (b *background) durable(LSN) {
	b.mu.Lock()
	waiting := len(b.tasks) > 0
	b.mu.Unlock()
	if waiting {
		b.poke()
	}
}

// next takes out the first task that is due.
func (b *background) next() (task, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	durable := b.s.DurableLSN()
	for i, t := range b.tasks {
		if t.lsn <= durable {
			b.tasks = slices.Delete(b.tasks, i, i+1)
			return t, true
		}
	}
	return task{}, false
}

func (b *background) loop() {
	defer b.s.goroutines.Done()
	for {
		select {
		case <-b.wake:
		case <-b.s.quit:
			return
		case <-b.s.done:
			return
		}
		for t, ok := b.next(); ok && b.s.running(); t, ok = b.next() {
			if err := b.run(t); err != nil {
				b.s.fail(err)
				return
			}
		}
	}
}

func (b *background) run(t task) error {
	if t.log == nil {
		return t.run()
	}
	t.log.dirUse.RLock() // Delete waits: it moves the directory
	defer t.log.dirUse.RUnlock()
	if t.log.deleted.Load() {
		return nil
	}
	return t.run()
}

// cut is the state of all logs at a place in the journal.
type cut struct {
	file   uint64
	pos    int64
	seq    uint64
	states map[*Log]logState
	clean  bool
	done   chan error // may be nil
}

// checkpoint makes everything before the cut durable outside the journal.
func (s *Store) checkpoint(c *cut) error {
	err := s.makeDurable(c)
	if err == nil {
		err = s.writeCheckpoint(c)
	}
	if err == nil {
		err = s.journal.retire(c.file)
	}
	for _, l := range slices.SortedFunc(maps.Keys(c.states), compareLogs) {
		if start := c.states[l].start; err == nil && start > 0 {
			err = s.background.run(task{log: l, run: func() error { return l.trim(start) }})
		}
	}
	if err == nil {
		s.covered.Store(c.file)
	} else {
		err = s.fail(fmt.Errorf("checkpoint: %w", err))
	}
	s.checkpointsOpen.Add(-1)
	select {
	case s.checkpointed <- struct{}{}:
	default:
	}
	if c.done != nil {
		c.done <- err
	}
	return err
}

// makeDurable syncs the segments and directories of every log that changed.
func (s *Store) makeDurable(c *cut) error {
	logs := slices.SortedFunc(maps.Keys(c.states), compareLogs)
	if s.opts.Snapshot != nil && !c.clean {
		for _, l := range logs {
			if c.states[l].end != l.synced.end {
				s.opts.Snapshot(l.spec.ID)
			}
		}
	}
	if s.opts.Failpoints.CheckpointBeforeSync {
		return nil
	}
	for _, l := range logs {
		if err := s.syncLog(l, c.states[l]); err != nil {
			return l.wrap("sync", c.states[l].end, err)
		}
	}
	if s.rootDirty.Swap(false) {
		return s.fs.SyncDir(s.opts.Dir)
	}
	return nil
}

func compareLogs(a, b *Log) int { return int(int64(a.spec.ID) - int64(b.spec.ID)) }

// syncLog syncs a log's segments up to a state, and its directory.
func (s *Store) syncLog(l *Log, state logState) error {
	l.dirUse.RLock()
	defer l.dirUse.RUnlock()
	if l.deleted.Load() {
		return nil
	}
	if state.seg != l.synced.seg || state.pos != l.synced.pos || state.txnN != l.synced.txnN {
		for _, g := range *l.segments.Load() {
			if g.base > state.seg.base {
				break
			}
			if err := g.sync(); err != nil {
				return err
			}
		}
	}
	l.synced = state
	if l.dirDirty.Swap(false) {
		if err := s.fs.SyncDir(l.dir); err != nil {
			return err
		}
		return l.pruneSnapshots()
	}
	return nil
}

// writeCheckpoint replaces the checkpoint file.
func (s *Store) writeCheckpoint(c *cut) error {
	if err := s.Err(); err != nil {
		return err // perhaps a sync has failed whose file now looks clean
	}
	out := &checkpoint{Clean: c.clean, Epoch: s.epoch, Salt: s.journal.salt, File: c.file, Pos: c.pos, Seq: c.seq}
	for _, l := range slices.SortedFunc(maps.Keys(c.states), compareLogs) {
		out.Logs = append(out.Logs, c.states[l].record(l.spec.ID))
	}
	return vfs.WriteFileAtomic(s.fs, filepath.Join(s.opts.Dir, checkpointName), out.marshal())
}

// record is the state as it goes into a checkpoint.
func (w logState) record(id LogID) logRecord {
	r := logRecord{ID: id, Start: w.start, End: w.end, Segment: -1, MaxTs: noTimestamp, LastTimeTs: noTimestamp}
	if w.seg == nil {
		return r
	}
	r.IndexEntries, r.TimeEntries, r.TxnEntries = uint32(w.indexN), uint32(w.timeN), uint32(w.txnN)
	r.Segment, r.Pos = w.seg.base, w.pos
	r.MaxTs, r.MaxTsOffset, r.LastTimeTs = w.x.maxTs, w.x.maxTsAt, w.x.lastTimeTs
	r.SinceIndex = uint32(w.x.since)
	return r
}
