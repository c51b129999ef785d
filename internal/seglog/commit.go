package seglog

import (
	"context"
	"time"
)

// cutRequest asks the committer to commit what is queued and to begin a
// checkpoint right behind it.
type cutRequest struct {
	clean bool
	done  chan error // capacity 1
}

// commitLoop is the committer: the only goroutine that touches the journal.
func (s *Store) commitLoop() {
	defer s.goroutines.Done()
	var tick <-chan time.Time
	if s.opts.Mode == ModeInterval {
		ticker := time.NewTicker(s.opts.SyncInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	var spare []item
	for {
		var request *cutRequest
		var err error
		select {
		case <-s.queue.wake:
		case request = <-s.cutRequests:
		case <-s.checkpointed: // perhaps another is due
		case <-tick:
			err = s.journal.sync()
		case <-s.quit:
			return
		case <-s.done:
			return
		}
		items := s.queue.take(spare)
		for rest := items; err == nil && len(rest) > 0; {
			n := s.groupLen(rest)
			err = s.commitGroup(rest[:n])
			rest = rest[n:]
		}
		spare = items
		if err == nil && (request != nil || s.checkpointDue()) {
			err = s.cut(request)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// groupLen is how many items go into the next group.
func (s *Store) groupLen(items []item) int {
	bytes := 0
	for i := range items {
		bytes += items[i].bytes()
		if i > 0 && bytes > s.opts.GroupBytes {
			return i
		}
	}
	return len(items)
}

// commitGroup writes, syncs and reports one group.
func (s *Store) commitGroup(items []item) error {
	j := s.journal
	j.encode(items)
	if !j.fits() {
		if err := s.awaitCheckpoints(); err != nil {
			return err
		}
		if err := j.rotate(); err != nil {
			return err
		}
	}
	if err := j.write(); err != nil {
		return err
	}
	if s.opts.Failpoints.AckBeforeSync {
		s.report(items)
	}
	if s.opts.Mode == ModeSync {
		if err := j.sync(); err != nil {
			return err
		}
	}
	if !s.opts.Failpoints.AckBeforeSync {
		s.report(items)
	}
	return nil
}

// report makes a group's appends visible as durable: first every log's
// durable end, then OnDurable, then Wait.
func (s *Store) report(items []item) {
	bytes := 0
	for i := range items {
		it := &items[i]
		it.log.committed = it.after
		it.log.durableEnd.Store(it.after.end)
		bytes += it.bytes()
	}
	lsn := items[len(items)-1].lsn
	s.durable.Store(uint64(lsn))
	s.queue.committed(bytes)
	if s.opts.OnDurable != nil {
		s.opts.OnDurable(lsn)
	}
	s.reported.Store(uint64(lsn))
	// Walk-through of the race with Wait: it loads the channel, then checks
	// reported. Either it sees the new value, or its channel is the one
	// closed here.
	next := make(chan struct{})
	close(*s.groupDone.Swap(&next))
	s.background.durable(lsn)
}

// Wait returns when everything up to lsn is durable (in the sense of the
// mode), and OnDurable for it has returned. It fails when the context ends or
// when the store fails or is closed first.
func (s *Store) Wait(ctx context.Context, lsn LSN) error {
	for {
		group := *s.groupDone.Load()
		if LSN(s.reported.Load()) >= lsn {
			return nil
		}
		select {
		case <-group:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return s.Err()
		case <-s.quit:
			if LSN(s.reported.Load()) >= lsn {
				return nil
			}
			return ErrClosed
		}
	}
}

// checkpointDue tells whether journal files wait for a checkpoint and none is
// under way.
func (s *Store) checkpointDue() bool {
	return s.journal.number > s.covered.Load() && s.checkpointsOpen.Load() == 0
}

// awaitCheckpoints blocks the committer, and with it in the end the appends,
// while too many journal files wait for a checkpoint.
func (s *Store) awaitCheckpoints() error {
	for s.journal.number+1-s.covered.Load() >= uint64(s.opts.JournalFiles) {
		if s.checkpointsOpen.Load() == 0 {
			if err := s.cut(nil); err != nil {
				return err
			}
		}
		select {
		case <-s.checkpointed:
		case <-s.quit:
			return ErrClosed
		case <-s.done:
			return s.Err()
		}
	}
	return nil
}

// cut takes the state of all logs as of the last group and hands it to the
// background goroutine.
func (s *Store) cut(request *cutRequest) error {
	j := s.journal
	if err := j.sync(); err != nil {
		return err
	}
	c := &cut{file: j.number, pos: j.pos, seq: j.seq, states: map[*Log]logState{}}
	if request != nil {
		c.clean, c.done = request.clean, request.done
	}
	s.logsMu.RLock()
	for _, l := range s.logs {
		c.states[l] = l.committed
	}
	s.logsMu.RUnlock()
	s.checkpointsOpen.Add(1)
	s.background.add(task{run: func() error { return s.checkpoint(c) }})
	return nil
}
