package store

import (
	"bytes"
	"slices"

	"github.com/hanbeon/hanbeon/internal/task"
)

// NewMemory makes an empty store in memory. It is restored from the beginning of its
// changelog at every start.
func NewMemory() Store { return newStore(&memory{rows: map[string]*memoryRow{}}) }

// memory keeps rows in a map for Get, and in key order for Range. The order is
// brought up to date by Range only, since most stores never need it.
type memory struct {
	rows       map[string]*memoryRow
	ordered    []*memoryRow // sorted by key, deleted rows among them
	added      []*memoryRow // not in ordered yet
	deleted    int          // deleted rows in ordered and added
	changelog  int64
	known      bool
	caughtUpAt int64 // ms
}

type memoryRow struct {
	key         []byte
	value       []byte
	timestampMs int64
	deleted     bool
}

func (m *memory) get(_ uint64, key []byte) ([]byte, int64, bool, error) {
	r := m.rows[string(key)]
	if r == nil {
		return nil, 0, false, nil
	}
	return r.value, r.timestampMs, true, nil
}

func (m *memory) set(key, value []byte, timestampMs int64) {
	r := m.rows[string(key)]
	if value == nil {
		if r != nil {
			delete(m.rows, string(key))
			r.deleted, r.value = true, nil
			m.deleted++
		}
		return
	}
	if r == nil {
		name := string(key)
		r = &memoryRow{key: []byte(name), value: make([]byte, 0, len(value))}
		m.rows[name] = r
		m.added = append(m.added, r)
	}
	r.value = append(r.value[:0], value...)
	r.timestampMs = timestampMs
}

func (m *memory) apply(rows *table, changelogOffset, caughtUpMs int64) error {
	for i := range rows.rows {
		r := &rows.rows[i]
		value := rows.valueOf(r)
		if r.absent {
			value = nil
		}
		m.set(rows.keyOf(r), value, r.timestampMs)
	}
	m.changelog, m.known, m.caughtUpAt = changelogOffset, true, caughtUpMs
	return nil
}

func (m *memory) caughtUp(ms int64) error {
	m.caughtUpAt = ms
	return nil
}

func (m *memory) caughtUpMs() int64 { return m.caughtUpAt }

func (m *memory) restore(records []task.Record, nextOffset int64) error {
	for i := range records {
		m.set(records[i].Key, records[i].Value, records[i].TimestampMs)
	}
	m.changelog, m.known = nextOffset, true
	return nil
}

func (m *memory) offset() (int64, bool) { return m.changelog, m.known }

func (m *memory) wipe() error {
	*m = memory{rows: map[string]*memoryRow{}}
	return nil
}

func (m *memory) close() error { return m.wipe() }

func (m *memory) scan(from, to []byte) (cursor, error) {
	m.order()
	start := 0
	if from != nil {
		start, _ = slices.BinarySearchFunc(m.ordered, from, compareRow)
	}
	end := len(m.ordered)
	if to != nil {
		end, _ = slices.BinarySearchFunc(m.ordered, to, compareRow)
	}
	return &memoryCursor{rows: m.ordered[start:max(start, end)]}, nil
}

func compareRow(r *memoryRow, key []byte) int { return bytes.Compare(r.key, key) }

// order merges the new rows into the ordered ones; a few are moved into place, many
// are sorted. Deleted rows go when they are half of all.
func (m *memory) order() {
	const few = 8
	if m.deleted*2 > len(m.ordered)+len(m.added) {
		gone := func(r *memoryRow) bool { return r.deleted }
		m.ordered = slices.DeleteFunc(m.ordered, gone)
		m.added = slices.DeleteFunc(m.added, gone)
		m.deleted = 0
	}
	if len(m.added) <= few {
		for _, r := range m.added {
			// A deleted row with the same key may stand there; the new one goes before it.
			i, _ := slices.BinarySearchFunc(m.ordered, r.key, compareRow)
			m.ordered = slices.Insert(m.ordered, i, r)
		}
	} else {
		m.ordered = append(m.ordered, m.added...)
		slices.SortFunc(m.ordered, func(a, b *memoryRow) int { return bytes.Compare(a.key, b.key) })
	}
	clear(m.added)
	m.added = m.added[:0]
}

type memoryCursor struct {
	rows []*memoryRow
	at   *memoryRow
}

func (c *memoryCursor) next() bool {
	for len(c.rows) > 0 {
		c.at, c.rows = c.rows[0], c.rows[1:]
		if !c.at.deleted {
			return true
		}
	}
	return false
}

func (c *memoryCursor) entry() task.Entry {
	return task.Entry{Key: c.at.key, Value: c.at.value, TimestampMs: c.at.timestampMs}
}

func (c *memoryCursor) err() error { return nil }
func (c *memoryCursor) close()     {}
