package store

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/hanbeon/hanbeon/internal/task"
)

// base is where committed rows lie: memory or Pebble.
type base interface {
	// get finds a committed row; the value is valid until the next call.
	get(hash uint64, key []byte) (value []byte, timestampMs int64, ok bool, err error)
	// scan walks the committed rows with from <= key < to in key order.
	scan(from, to []byte) (cursor, error)
	// apply writes the rows, the offset and the time in one atomic step.
	apply(rows *table, changelogOffset, caughtUpMs int64) error
	// caughtUp writes the time alone; caughtUpMs gives it.
	caughtUp(ms int64) error
	caughtUpMs() int64
	offset() (int64, bool)
	restore(records []task.Record, nextOffset int64) error
	wipe() error
	close() error
}

// cursor walks rows in key order; it stands on one when next returns true.
type cursor interface {
	next() bool
	entry() task.Entry
	err() error
	close()
}

// store is the overlay over a base. Reads look into active, then sealed, then base.
type store struct {
	base   base
	active *table
	sealed *table // nil when not sealed
	spare  *table
	closed bool
}

var _ Store = (*store)(nil)

func newStore(b base) *store { return &store{base: b, active: &table{}, spare: &table{}} }

func (s *store) Get(key []byte) ([]byte, int64, bool, error) {
	if s.closed {
		return nil, 0, false, ErrClosed
	}
	hash := hashOf(key)
	t, r := s.active, s.active.get(hash, key)
	if r == nil && s.sealed != nil {
		t, r = s.sealed, s.sealed.get(hash, key)
	}
	if r == nil {
		return s.base.get(hash, key)
	}
	if r.absent {
		return nil, 0, false, nil
	}
	return t.valueOf(r), r.timestampMs, true, nil
}

func (s *store) Put(key, value []byte, timestampMs int64) error {
	if s.closed {
		return ErrClosed
	}
	return s.active.put(hashOf(key), key, value, timestampMs)
}

func (s *store) Delete(key []byte) error { return s.Put(key, nil, 0) }

// TrackChanges implements task.ChangeTracker.
func (s *store) TrackChanges() {
	for _, t := range []*table{s.active, s.sealed, s.spare} {
		if t != nil {
			t.tracked = true
		}
	}
}

// ChangedBytes implements task.ChangeTracker.
func (s *store) ChangedBytes() int {
	n := s.active.changedBytes
	if s.sealed != nil {
		n += s.sealed.changedBytes
	}
	return n
}

// Changes implements task.ChangeTracker.
func (s *store) Changes() iter.Seq[task.Entry] {
	return func(yield func(task.Entry) bool) {
		for _, t := range []*table{s.sealed, s.active} {
			if t == nil {
				continue
			}
			more := t.changes(func(r *row) bool {
				e := task.Entry{Key: t.keyOf(r), TimestampMs: r.timestampMs}
				if !r.absent {
					e.Value = t.valueOf(r)
				}
				return yield(e)
			})
			if !more {
				return
			}
		}
	}
}

func (s *store) Seal() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.sealed != nil:
		return ErrSealed
	}
	s.sealed, s.active, s.spare = s.active, s.spare, nil
	return nil
}

func (s *store) Commit(changelogOffset int64) error {
	if s.closed {
		return ErrClosed
	}
	if s.sealed == nil {
		if err := s.Seal(); err != nil {
			return err
		}
	}
	if n := len(s.sealed.changed); n > 0 {
		return fmt.Errorf("%w: %d rows", ErrUnlogged, n)
	}
	if was, ok := s.base.offset(); s.sealed.len() > 0 || !ok || was != changelogOffset {
		if err := s.base.apply(s.sealed, changelogOffset, time.Now().UnixMilli()); err != nil {
			return err
		}
	}
	s.sealed.reset()
	s.sealed, s.spare = nil, s.sealed
	return nil
}

func (s *store) Rollback() {
	s.active.reset()
	if s.sealed != nil {
		s.sealed.reset()
		s.sealed, s.spare = nil, s.sealed
	}
}

func (s *store) Offset() (int64, bool) { return s.base.offset() }

func (s *store) CaughtUp() error {
	if s.closed {
		return ErrClosed
	}
	return s.base.caughtUp(time.Now().UnixMilli())
}

func (s *store) CaughtUpMs() int64 { return s.base.caughtUpMs() }

func (s *store) Restore(records []task.Record, nextOffset int64) error {
	switch {
	case s.closed:
		return ErrClosed
	case s.Dirty():
		return ErrDirty
	}
	for i := range records {
		if records[i].Key == nil {
			return fmt.Errorf("changelog record at offset %d has no key: the topic is not a changelog of this store", records[i].Offset)
		}
	}
	return s.base.restore(records, nextOffset)
}

func (s *store) Dirty() bool {
	return s.active.len() > 0 || s.sealed != nil && s.sealed.len() > 0
}

func (s *store) UncommittedBytes() int {
	n := s.active.bytes()
	if s.sealed != nil {
		n += s.sealed.bytes()
	}
	return n
}

func (s *store) Wipe() error {
	if s.closed {
		return ErrClosed
	}
	s.Rollback()
	return s.base.wipe()
}

func (s *store) Close() error {
	if s.closed {
		return nil
	}
	s.Rollback()
	s.closed = true
	return s.base.close()
}

// Range merges the overlays, newest first, with the base.
func (s *store) Range(from, to []byte) iter.Seq2[task.Entry, error] {
	return func(yield func(task.Entry, error) bool) {
		if s.closed {
			yield(task.Entry{}, ErrClosed)
			return
		}
		c, err := s.base.scan(from, to)
		if err != nil {
			yield(task.Entry{}, err)
			return
		}
		defer c.close()
		s.merge(s.dirty(from, to), c, yield)
	}
}

// dirtyRow is an uncommitted row in a Range.
type dirtyRow struct {
	task.Entry
	absent bool
}

// dirty lists the uncommitted rows of a range in key order.
func (s *store) dirty(from, to []byte) []dirtyRow {
	rows := rowsOf(s.active, from, to)
	if s.sealed == nil || s.sealed.len() == 0 {
		return rows
	}
	n := len(rows)
	for _, d := range rowsOf(s.sealed, from, to) {
		_, newer := slices.BinarySearchFunc(rows[:n], d.Key, func(r dirtyRow, key []byte) int { return bytes.Compare(r.Key, key) })
		if !newer {
			rows = append(rows, d)
		}
	}
	slices.SortFunc(rows, func(a, b dirtyRow) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}

func rowsOf(t *table, from, to []byte) []dirtyRow {
	var rows []dirtyRow
	for _, i := range t.sorted(from, to) {
		r := &t.rows[i]
		rows = append(rows, dirtyRow{
			Entry:  task.Entry{Key: t.keyOf(r), Value: t.valueOf(r), TimestampMs: r.timestampMs},
			absent: r.absent,
		})
	}
	return rows
}

// merge yields dirty rows and committed ones in key order; a dirty row hides the
// committed row with its key.
func (s *store) merge(dirty []dirtyRow, c cursor, yield func(task.Entry, error) bool) {
	more := c.next()
	for more || len(dirty) > 0 {
		order := 1
		switch {
		case !more:
			order = -1
		case len(dirty) > 0:
			order = bytes.Compare(dirty[0].Key, c.entry().Key)
		}
		if order > 0 {
			if !yield(c.entry(), nil) {
				return
			}
			more = c.next()
			continue
		}
		if !dirty[0].absent && !yield(dirty[0].Entry, nil) {
			return
		}
		dirty = dirty[1:]
		if order == 0 {
			more = c.next()
		}
	}
	if err := c.err(); err != nil {
		yield(task.Entry{}, err)
	}
}
