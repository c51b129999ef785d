// Package seglog stores many partition logs in Kafka's segment format behind
// one shared journal with group commit.
//
// An append goes to two places: to the partition's segment file, where readers
// find it (page cache only), and to the journal's queue. One committer takes
// everything queued, writes it as one contiguous group and syncs once; so
// appends to N partitions cost one sync, not N, and no timer delays them: while
// one group syncs, the next gathers. Segment files are synced only by a
// checkpoint, which lets the journal before it go.
//
// # The guarantee
//
// After a crash of any kind, Open restores a prefix of the append order over
// all logs together, and the prefix holds at least everything that was
// reported durable. Segment files past the last checkpoint are not trusted,
// not even after a mere kill: each log is cut back to its checkpointed
// position and the journal is applied again.
//
// The formats are in docs/format/journal.md and docs/format/checkpoint.md.
// Segments, indexes, transaction indexes and the names of snapshots are
// Kafka's (LogSegment, OffsetIndex, TimeIndex, AbortedTxn).
package seglog

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Mode says when an append counts as durable.
type Mode int

const (
	// ModeSync: after fdatasync of the journal. The default, and the only
	// mode that is exactly-once across a power cut.
	ModeSync Mode = iota
	// ModeInterval: after the write to the page cache; the journal is synced
	// every SyncInterval. A power cut may lose that much; a killed process
	// loses nothing.
	ModeInterval
	// ModeNone: like ModeInterval, but the journal is synced only when a
	// file of it is full, by a checkpoint and at the end.
	ModeNone
)

// String is the mode's name in the configuration.
func (m Mode) String() string {
	switch m {
	case ModeSync:
		return "sync"
	case ModeInterval:
		return "interval"
	case ModeNone:
		return "none"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// LSN is a position in the order of all appends of this run; the first append
// after Open has LSN 1.
type LSN uint64

// LogID identifies one incarnation of a partition. It must never be used
// again, not even for a topic of the same name.
type LogID uint32

// LogSpec describes a log.
type LogSpec struct {
	ID           LogID
	Topic        string
	Partition    int32
	SegmentBytes int64 // size at which to roll; 0 means Options.SegmentBytes
}

// String is the partition's directory name, as in Kafka.
func (l LogSpec) String() string { return fmt.Sprintf("%s-%d", l.Topic, l.Partition) }

// Options configure a Store. The zero value of every field but Dir is sane.
type Options struct {
	FS   vfs.FS // default vfs.OS
	Dir  string
	Mode Mode

	SyncInterval       time.Duration // of ModeInterval; default 1 s
	SegmentBytes       int64         // default 1 GiB; at most 2 GiB - 1
	IndexIntervalBytes int64         // an index entry about every so many bytes; default 4096

	JournalFileBytes  int64 // default 64 MiB; a full file starts a checkpoint
	PreallocateBytes  int64 // by how much a journal file is extended with zeros; default 1 MiB
	JournalFiles      int   // most files not yet covered by a checkpoint before commits wait; default 4
	GroupBytes        int   // about the most bytes of one group; default 4 MiB
	QueueBytes        int   // queued bytes at which Append waits; default 32 MiB
	OpenFiles         int   // most segment files held open; default 1024
	IndexFlushEntries int   // index entries held in memory per segment before they go to the file; default 1024

	// OnDurable is called by the committer after each group commit, in
	// order, when DurableEnd of every log in the group is advanced and
	// before any Wait for it returns. It must not block: commits wait for it.
	OnDurable func(lsn LSN)
	// Snapshot asks the owner of a log to write a producer snapshot soon. It
	// is called when a checkpoint begins, for every log that changed, and
	// must not block.
	Snapshot func(id LogID)

	// Salvage lets Open cut the journal at a corrupt group instead of
	// refusing. What follows the group, acknowledged or not, is lost.
	Salvage bool

	// Failpoints break the guarantee on purpose, for negative controls.
	Failpoints Failpoints
}

// Failpoints are switches for tests of the tests. All false in production.
type Failpoints struct {
	// AckBeforeSync reports a group as durable before it is synced.
	AckBeforeSync bool
	// CheckpointBeforeSync writes a checkpoint without syncing the segments.
	CheckpointBeforeSync bool
}

const maxSegmentBytes = math.MaxInt32 // index positions are int32

func (o Options) withDefaults() Options {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	defInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.SyncInterval <= 0 {
		o.SyncInterval = time.Second
	}
	def(&o.SegmentBytes, 1<<30)
	o.SegmentBytes = min(o.SegmentBytes, maxSegmentBytes)
	def(&o.IndexIntervalBytes, 4096)
	def(&o.JournalFileBytes, 64<<20)
	def(&o.PreallocateBytes, 1<<20)
	o.PreallocateBytes = max(pageBytes, o.PreallocateBytes/pageBytes*pageBytes)
	defInt(&o.JournalFiles, 4)
	o.JournalFiles = max(o.JournalFiles, 2)
	defInt(&o.GroupBytes, 4<<20)
	defInt(&o.QueueBytes, 32<<20)
	defInt(&o.OpenFiles, 1024)
	defInt(&o.IndexFlushEntries, 1024)
	return o
}

// Errors a caller may branch on.
var (
	ErrClosed           = errors.New("seglog: store is closed")
	ErrFailed           = errors.New("seglog: store has failed")
	ErrCorrupt          = errors.New("seglog: corrupt")
	ErrDeleted          = errors.New("seglog: log is deleted")
	ErrOffsetOutOfRange = errors.New("seglog: offset out of range")
	ErrBadBatch         = errors.New("seglog: batch does not fit the log")
)

// CorruptError says which file is damaged where, and what to do. It matches
// ErrCorrupt.
type CorruptError struct {
	File   string
	Pos    int64 // byte position in the file
	Reason string
	Remedy string // may be empty
}

// Error names file, position, reason and remedy.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("corrupt: %s at byte %d: %s", e.File, e.Pos, e.Reason)
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// failedError is the state of a failed store. It matches ErrFailed and its cause.
type failedError struct{ cause error }

func (e *failedError) Error() string {
	return fmt.Sprintf("store has failed and accepts nothing more, restart after fixing the cause: %v", e.cause)
}

func (e *failedError) Unwrap() []error { return []error{ErrFailed, e.cause} }

// AbortedTxn is an entry of a transaction index (Kafka's AbortedTxn).
type AbortedTxn struct {
	ProducerID       batch.ProducerID
	FirstOffset      batch.Offset // of the transaction's first record
	LastOffset       batch.Offset // of its marker
	LastStableOffset batch.Offset // of the partition when the marker was appended
}
