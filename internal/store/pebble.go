package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hanbeon/hanbeon/internal/task"
)

// What lies in the Pebble database of a store, format version 1:
//
//	key                  value
//	0x00 "format"        "hanbeon state store" 0x01 (the version)
//	0x00 "offset"        int64, big endian: the next changelog offset to restore
//	0x00 "time"          int64, big endian: when the store last held all that its
//	                     changelog held, in ms since the epoch; may be missing
//	0x01 <row key>       int64, big endian: timestamp in ms; then the row's value
const (
	prefixMeta = 0x00
	prefixRow  = 0x01

	formatMagic   = "hanbeon state store"
	formatVersion = 1
)

var (
	keyFormat = []byte("\x00format")
	keyOffset = []byte("\x00offset")
	keyTime   = []byte("\x00time")

	rowsStart = []byte{prefixRow}
	rowsEnd   = []byte{prefixRow + 1}
)

// PebbleOptions sets up a store on disk. The zero value is fine.
type PebbleOptions struct {
	// Shared is the block and file cache for all stores of a process. Nil gives
	// the store small ones of its own.
	Shared *Shared
	// ReadCacheBytes bounds the rows kept in front of Pebble; 0 means 4 MiB, a
	// negative number none.
	ReadCacheBytes int
	// MemTableBytes bounds Pebble's memory for committed rows not yet in a table
	// file (two of them may exist for a moment); 0 means 4 MiB.
	MemTableBytes int
	// Logger gets Pebble's error messages; nil drops them. Errors that matter are
	// also returned.
	Logger *slog.Logger
	// FS is the file system; nil means the real one.
	FS vfs.FS
}

const (
	defaultReadCacheBytes = 4 << 20
	defaultMemTableBytes  = 4 << 20
)

// pebbleBase keeps rows in Pebble. A commit is one batch in Pebble's log, which is
// not synced and, below 32 KiB, not even written at once. So a crash (kill -9 too) may
// take the newest commits, but data and offset go together, since the log is cut
// between batches. Then restore replays from the older offset: that is cheap, and a
// sync for every commit is not.
type pebbleBase struct {
	dir    string
	db     *pebble.DB
	lock   *pebble.Lock
	shared *Shared // own caches to close, or nil
	cache  *readCache

	changelog  int64
	known      bool
	caughtUpAt int64 // ms, 0 if not known

	keyBuf   []byte
	valueBuf []byte
	damage   damage // once set, only Close is possible
}

func (p *pebbleBase) get(hash uint64, key []byte) ([]byte, int64, bool, error) {
	if value, timestampMs, ok := p.cache.get(hash, key); ok {
		return value, timestampMs, value != nil, nil
	}
	if err := p.damage.get(); err != nil {
		return nil, 0, false, err
	}
	p.keyBuf = append(append(p.keyBuf[:0], prefixRow), key...)
	stored, closer, err := p.db.Get(p.keyBuf)
	if errors.Is(err, pebble.ErrNotFound) {
		p.cache.put(hash, key, nil, 0)
		return nil, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, p.failed("read", err)
	}
	value, timestampMs, err := p.split(stored)
	p.valueBuf = append(p.valueBuf[:0], value...)
	if errClose := closer.Close(); err == nil && errClose != nil {
		err = p.failed("read", errClose)
	}
	if err != nil {
		return nil, 0, false, err
	}
	p.cache.put(hash, key, p.valueBuf, timestampMs)
	return p.valueBuf, timestampMs, true, nil
}

// split takes a stored value apart.
func (p *pebbleBase) split(stored []byte) (value []byte, timestampMs int64, err error) {
	if len(stored) < 8 {
		return nil, 0, corrupt(p.dir, fmt.Errorf("a row of %d bytes is shorter than its timestamp", len(stored)))
	}
	return stored[8:], int64(binary.BigEndian.Uint64(stored)), nil
}

func (p *pebbleBase) apply(rows *table, changelogOffset, caughtUpMs int64) error {
	return p.write(changelogOffset, caughtUpMs, func(b *pebble.Batch) {
		for i := range rows.rows {
			r := &rows.rows[i]
			setRow(b, rows.keyOf(r), rows.valueOf(r), r.timestampMs, r.absent)
		}
	}, func() {
		for i := range rows.rows {
			r := &rows.rows[i]
			value := rows.valueOf(r)
			if r.absent {
				value = nil
			}
			p.cache.put(r.hash, rows.keyOf(r), value, r.timestampMs)
		}
	})
}

func (p *pebbleBase) restore(records []task.Record, nextOffset int64) error {
	return p.write(nextOffset, p.caughtUpAt, func(b *pebble.Batch) {
		for i := range records {
			r := &records[i]
			setRow(b, r.Key, r.Value, r.TimestampMs, r.Value == nil)
		}
	}, p.cache.reset)
}

func setRow(b *pebble.Batch, key, value []byte, timestampMs int64, absent bool) {
	if absent {
		op := b.DeleteDeferred(1 + len(key))
		op.Key[0] = prefixRow
		copy(op.Key[1:], key)
		_ = op.Finish() // fails for indexed batches only
		return
	}
	op := b.SetDeferred(1+len(key), 8+len(value))
	op.Key[0] = prefixRow
	copy(op.Key[1:], key)
	binary.BigEndian.PutUint64(op.Value, uint64(timestampMs))
	copy(op.Value[8:], value)
	_ = op.Finish()
}

func (p *pebbleBase) caughtUp(ms int64) error {
	if !p.known {
		return nil // nothing was ever restored or committed: there is nothing to miss
	}
	return p.write(p.changelog, ms, func(*pebble.Batch) {}, func() {})
}

func (p *pebbleBase) caughtUpMs() int64 { return p.caughtUpAt }

func setNumber(b *pebble.Batch, key []byte, n int64) {
	op := b.SetDeferred(len(key), 8)
	copy(op.Key, key)
	binary.BigEndian.PutUint64(op.Value, uint64(n))
	_ = op.Finish() // fails for indexed batches only
}

// write commits one batch with offset and time, and then brings the cache up to date.
func (p *pebbleBase) write(changelogOffset, caughtUpMs int64, fill func(*pebble.Batch), committed func()) (err error) {
	if err := p.damage.get(); err != nil {
		return err
	}
	// Pebble reports a failed log write by its logger's Fatalf, and by panics.
	defer p.catch("commit", &err)
	b := p.db.NewBatch()
	fill(b)
	setNumber(b, keyOffset, changelogOffset)
	setNumber(b, keyTime, caughtUpMs)
	if err := b.Commit(pebble.NoSync); err != nil {
		return p.failed("commit", err)
	}
	if err := b.Close(); err != nil {
		return p.failed("commit", err)
	}
	// It may have gone to a frozen disk.
	if err := p.damage.get(); err != nil {
		return p.failed("commit", err)
	}
	p.changelog, p.known, p.caughtUpAt = changelogOffset, true, caughtUpMs
	committed()
	return nil
}

// catch turns a panic of Pebble into an error; the store is of no use afterwards.
func (p *pebbleBase) catch(op string, err *error) {
	if r := recover(); r != nil {
		p.damage.stuck.Store(true)
		*err = fmt.Errorf("%s of state store %s: %v", op, p.dir, r)
		p.damage.set(*err)
	}
}

func (p *pebbleBase) offset() (int64, bool) { return p.changelog, p.known }

func (p *pebbleBase) wipe() (err error) {
	if err := p.damage.get(); err != nil {
		return err
	}
	defer p.catch("wipe", &err)
	b := p.db.NewBatch()
	if err := errors.Join(b.DeleteRange(rowsStart, rowsEnd, nil), b.Delete(keyOffset, nil), b.Delete(keyTime, nil)); err != nil {
		return p.failed("wipe", err)
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return p.failed("wipe", err)
	}
	if err := errors.Join(b.Close(), p.damage.get()); err != nil {
		return p.failed("wipe", err)
	}
	p.cache.reset()
	p.changelog, p.known, p.caughtUpAt = 0, false, 0
	return nil
}

func (p *pebbleBase) close() error {
	if p.damage.stuck.Load() {
		return p.damage.get() // closing could hang
	}
	err := p.db.Close()
	if errLock := p.lock.Close(); err == nil {
		err = errLock
	}
	if p.shared != nil {
		p.shared.Close()
	}
	if err != nil {
		return p.failed("close", err)
	}
	return nil
}

func (p *pebbleBase) scan(from, to []byte) (cursor, error) {
	if err := p.damage.get(); err != nil {
		return nil, err
	}
	opts := &pebble.IterOptions{LowerBound: append([]byte{prefixRow}, from...), UpperBound: rowsEnd}
	if to != nil {
		opts.UpperBound = append([]byte{prefixRow}, to...)
	}
	it, err := p.db.NewIter(opts)
	if err != nil {
		return nil, p.failed("read", err)
	}
	return &pebbleCursor{base: p, it: it}, nil
}

type pebbleCursor struct {
	base    *pebbleBase
	it      *pebble.Iterator
	started bool
	at      task.Entry
	failed  error
}

func (c *pebbleCursor) next() bool {
	if c.failed != nil {
		return false
	}
	ok := false
	if c.started {
		ok = c.it.Next()
	} else {
		ok, c.started = c.it.First(), true
	}
	if !ok {
		return false
	}
	stored, err := c.it.ValueAndErr()
	if err != nil {
		c.failed = c.base.failed("read", err)
		return false
	}
	c.at.Key = c.it.Key()[1:]
	c.at.Value, c.at.TimestampMs, c.failed = c.base.split(stored)
	return c.failed == nil
}

func (c *pebbleCursor) entry() task.Entry { return c.at }

func (c *pebbleCursor) err() error {
	if c.failed != nil {
		return c.failed
	}
	if err := c.it.Error(); err != nil {
		return c.base.failed("read", err)
	}
	return nil
}

// close leaves out the iterator's error, which err has reported.
func (c *pebbleCursor) close() { _ = c.it.Close() }

// failed names the operation and the directory, and tells damage from the rest.
func (p *pebbleBase) failed(op string, err error) error {
	if pebble.IsCorruptionError(err) {
		return corrupt(p.dir, err)
	}
	return fmt.Errorf("%s of state store %s: %w", op, p.dir, err)
}

func corrupt(dir string, err error) error {
	return fmt.Errorf("%w: %s: %w; remove the directory, and the store is restored from its changelog", ErrCorrupt, dir, err)
}
