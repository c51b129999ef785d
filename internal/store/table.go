package store

import (
	"bytes"
	"errors"
	"hash/maphash"
	"math"
	"slices"
)

// seed makes the hash differ from process to process. Its only effect is the place
// of a row in a table; nothing is iterated in hash order.
var seed = maphash.MakeSeed()

func hashOf(key []byte) uint64 { return maphash.Bytes(seed, key) }

// errTableFull guards the 32-bit offsets into a table's arena.
var errTableFull = errors.New("uncommitted writes exceed 2 GiB; commit more often")

// table is a hash table of rows whose bytes lie in one arena. It holds no pointers
// per row, so the garbage collector does not look into it; updating a row whose new
// value fits allocates nothing, and reset keeps the memory for the next round.
//
// Overlays and the read cache are tables.
type table struct {
	slots []uint32 // index of a row + 1, 0 for free; linear probing; length a power of two
	rows  []row
	arena []byte

	// changed lists the rows written since the last call of changes, if tracked, in
	// the order of their first write.
	tracked      bool
	changed      []uint32
	changedBytes int
}

// row is a key and what is known of it: a value, or that there is none.
type row struct {
	hash            uint64
	timestampMs     int64
	index           uint32 // its own, in rows
	key, keyLen     uint32
	value, valueLen uint32
	valueCap        uint32
	absent          bool // deleted in an overlay, known to be missing in the cache
	changed         bool // listed in table.changed
}

var empty = []byte{}

const (
	rowBytes  = 56 // a row and its share of slots
	slotsMin  = 64
	keepBytes = 1 << 20 // memory that reset always keeps
	arenaMax  = math.MaxInt32
)

func (t *table) len() int { return len(t.rows) }

// bytes is about the memory that the rows hold.
func (t *table) bytes() int { return len(t.arena) + len(t.rows)*rowBytes }

func (t *table) keyOf(r *row) []byte { return t.arena[r.key : r.key+r.keyLen : r.key+r.keyLen] }

// valueOf is never nil, not even for an empty value in an empty arena.
func (t *table) valueOf(r *row) []byte {
	if r.valueLen == 0 {
		return empty
	}
	return t.arena[r.value : r.value+r.valueLen : r.value+r.valueLen]
}

// get finds a row; the pointer is valid until the next put.
func (t *table) get(hash uint64, key []byte) *row {
	if len(t.rows) == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return nil
		}
		r := &t.rows[s-1]
		if r.hash == hash && bytes.Equal(t.keyOf(r), key) {
			return r
		}
	}
}

// put writes a row; a nil value records that there is none.
func (t *table) put(hash uint64, key, value []byte, timestampMs int64) error {
	if len(t.arena)+len(key)+2*len(value)+8 > arenaMax {
		return errTableFull
	}
	r := t.get(hash, key)
	if r == nil {
		r = t.insert(hash, key)
	}
	if t.tracked && !r.changed {
		r.changed = true
		t.changed = append(t.changed, r.index)
		t.changedBytes += rowBytes + len(key) + len(value)
	}
	r.timestampMs = timestampMs
	r.absent = value == nil
	if len(value) > int(r.valueCap) {
		t.place(r, value)
		return nil
	}
	r.valueLen = uint32(copy(t.arena[r.value:r.value+r.valueCap], value))
	return nil
}

// place gives a row new space for its value, with room to grow when it is not the
// first, so that a value that grows step by step does not fill the arena.
func (t *table) place(r *row, value []byte) {
	room := len(value)
	if r.valueCap > 0 {
		room += room / 2
	}
	room = (room + 7) &^ 7
	at := len(t.arena)
	// The value may lie in the arena itself: growing leaves its bytes in place.
	t.arena = slices.Grow(t.arena, room)[:at+room]
	copy(t.arena[at:], value)
	r.value, r.valueLen, r.valueCap = uint32(at), uint32(len(value)), uint32(room)
}

func (t *table) insert(hash uint64, key []byte) *row {
	if (len(t.rows)+1)*2 > len(t.slots) {
		t.grow()
	}
	r := row{hash: hash, index: uint32(len(t.rows)), key: uint32(len(t.arena)), keyLen: uint32(len(key))}
	t.arena = append(t.arena, key...)
	t.rows = append(t.rows, r)
	t.link(hash, uint32(len(t.rows)))
	return &t.rows[len(t.rows)-1]
}

func (t *table) link(hash uint64, index uint32) {
	mask := uint64(len(t.slots) - 1)
	i := hash & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = index
}

func (t *table) grow() {
	t.slots = make([]uint32, max(slotsMin, 2*len(t.slots)))
	for i := range t.rows {
		t.link(t.rows[i].hash, uint32(i+1))
	}
}

// reset empties the table. It keeps the memory unless the table was much larger
// than what it last held.
func (t *table) reset() {
	if cap(t.arena) > keepBytes && cap(t.arena)/4 > len(t.arena) {
		*t = table{tracked: t.tracked}
		return
	}
	t.changed, t.changedBytes = t.changed[:0], 0
	clear(t.slots)
	t.rows = t.rows[:0]
	t.arena = t.arena[:0]
}

// changes calls f for each changed row until it returns false; the rows for which it
// returned true are no longer changed.
func (t *table) changes(f func(r *row) bool) bool {
	for k, i := range t.changed {
		r := &t.rows[i]
		if !f(r) {
			t.changed = append(t.changed[:0], t.changed[k:]...)
			return false
		}
		r.changed = false
	}
	t.changed, t.changedBytes = t.changed[:0], 0
	return true
}

// sorted lists the indexes of rows with from <= key < to in key order.
func (t *table) sorted(from, to []byte) []uint32 {
	var list []uint32
	for i := range t.rows {
		if within(t.keyOf(&t.rows[i]), from, to) {
			list = append(list, uint32(i))
		}
	}
	slices.SortFunc(list, func(a, b uint32) int {
		return bytes.Compare(t.keyOf(&t.rows[a]), t.keyOf(&t.rows[b]))
	})
	return list
}

func within(key, from, to []byte) bool {
	return (from == nil || bytes.Compare(key, from) >= 0) && (to == nil || bytes.Compare(key, to) < 0)
}
