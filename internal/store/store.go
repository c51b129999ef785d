// Package store holds the state stores of stream tasks: in memory, and on disk with
// Pebble. Both keep uncommitted writes in an overlay in memory, and move them into
// the store in one atomic step together with the offset that the changelog has
// reached. So the store never runs ahead of the committed changelog, and after any
// crash the missing tail is replayed from the stored offset; nothing is wiped.
package store

import (
	"errors"

	"github.com/hanbeon/hanbeon/internal/task"
)

// Store is a key-value store of one task. It belongs to one goroutine at a time.
type Store interface {
	task.KeyValueStore
	task.ChangeTracker

	// Seal closes the current overlay: the next Commit applies exactly what was
	// written before Seal, and later writes go to a new overlay. It is for
	// processing on while a transaction's end is under way. A second Seal before
	// Commit or Rollback is an error. Without Seal, Commit applies everything.
	Seal() error
	// Commit moves the (sealed) overlay and the changelog offset into the store,
	// in one atomic step. The offset is the next one to read in a restore. A crash
	// may take the newest commits of a store on disk, each of them as a whole.
	Commit(changelogOffset int64) error
	// Rollback drops all uncommitted writes, sealed or not.
	Rollback()
	// Offset is the changelog offset of the last Commit or Restore; false before
	// the first.
	Offset() (int64, bool)
	// Restore applies changelog records directly, with the offset, atomically. A
	// nil value deletes. The store must not be Dirty.
	Restore(records []task.Record, nextOffset int64) error
	// CaughtUp notes that the store holds all that its changelog holds at this
	// moment, as it does after a restore to the end. Commit notes it too.
	CaughtUp() error
	// CaughtUpMs is when that was noted last, in ms since the epoch; 0 if never.
	CaughtUpMs() int64
	// Dirty says whether there are uncommitted writes.
	Dirty() bool
	// UncommittedBytes is about the memory that uncommitted writes hold.
	UncommittedBytes() int
	// Wipe removes all rows and the offset, for a restore from the beginning when
	// the changelog no longer holds the stored offset.
	Wipe() error
	// Close drops uncommitted writes and closes the store.
	Close() error
}

// Errors that a caller may branch on.
var (
	// ErrCorrupt is a damaged store. The error text names the directory and says
	// what to do: remove it, and the store is restored from its changelog.
	ErrCorrupt = errors.New("state store is corrupt")
	// ErrLocked is a directory that another process, or another store of this
	// process, has open.
	ErrLocked = errors.New("state store is in use")
	// ErrForeign is a directory that holds something else, or a store of a later
	// version.
	ErrForeign = errors.New("not a state store of this version")
	// ErrClosed is any use after Close.
	ErrClosed = errors.New("state store is closed")
	// ErrSealed is a second Seal before the first was committed or rolled back.
	ErrSealed = errors.New("state store is already sealed")
	// ErrUnlogged is a Commit of changes that did not go to the changelog: a restore
	// would lose them. The task's Flush must come before, and no record between.
	ErrUnlogged = errors.New("state store has changes that are not in the changelog")
	// ErrDirty is a Restore over uncommitted writes.
	ErrDirty = errors.New("state store has uncommitted writes")
)
