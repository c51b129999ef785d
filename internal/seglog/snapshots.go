package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// keptSnapshots is how many producer snapshots of a log stay on disk: the
// newest, and one to fall back on.
const keptSnapshots = 2

// snapshots are the producer snapshots of one log.
type snapshots struct {
	mu      sync.Mutex
	pending map[batch.Offset][]byte // not yet written
	onDisk  []batch.Offset          // ascending
}

func (l *Log) snapshotName(off batch.Offset) string {
	return filepath.Join(l.dir, fmt.Sprintf("%020d%s", off, snapshotSuffix))
}

// WriteProducerSnapshot stores the owner's producer state as of an offset: the
// state after every batch below it. The file is written in the background,
// once everything appended so far is durable: a snapshot on disk is never
// ahead of the journal. data must not change afterwards.
func (l *Log) WriteProducerSnapshot(off batch.Offset, data []byte) error {
	if err := l.usable(); err != nil {
		return l.wrap("write producer snapshot of", int64(off), err)
	}
	if int64(off) > l.w.end {
		return l.wrap("write producer snapshot of", int64(off), fmt.Errorf("%w: log ends at %d", ErrOffsetOutOfRange, l.w.end))
	}
	l.snapshots.mu.Lock()
	if l.snapshots.pending == nil {
		l.snapshots.pending = map[batch.Offset][]byte{}
	}
	l.snapshots.pending[off] = data
	l.snapshots.mu.Unlock()
	l.s.background.add(task{lsn: l.s.AppendedLSN(), log: l, run: func() error { return l.storeSnapshot(off) }})
	return nil
}

// storeSnapshot writes a pending snapshot.
func (l *Log) storeSnapshot(off batch.Offset) error {
	l.snapshots.mu.Lock()
	data, ok := l.snapshots.pending[off]
	l.snapshots.mu.Unlock()
	if !ok { // written twice
		return nil
	}
	if err := l.s.fs.MkdirAll(l.dir); err != nil { // a log without batches has no directory yet
		return err
	}
	if err := vfs.WriteFileRename(l.s.fs, l.snapshotName(off), data); err != nil {
		return l.wrap("write producer snapshot of", int64(off), err)
	}
	l.dirDirty.Store(true)
	l.s.rootDirty.Store(true)
	l.snapshots.mu.Lock()
	defer l.snapshots.mu.Unlock()
	delete(l.snapshots.pending, off)
	if i, found := slices.BinarySearch(l.snapshots.onDisk, off); !found {
		l.snapshots.onDisk = slices.Insert(l.snapshots.onDisk, i, off)
	}
	return nil
}

// pruneSnapshots removes all but the newest. The caller has synced the
// directory, so that the newest are sure to stay.
func (l *Log) pruneSnapshots() error {
	l.snapshots.mu.Lock()
	n := max(0, len(l.snapshots.onDisk)-keptSnapshots)
	old := slices.Clone(l.snapshots.onDisk[:n])
	l.snapshots.onDisk = slices.Delete(l.snapshots.onDisk, 0, n)
	l.snapshots.mu.Unlock()
	for _, off := range old {
		if err := l.s.fs.Remove(l.snapshotName(off)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ProducerSnapshots returns the offsets of the snapshots, newest first.
func (l *Log) ProducerSnapshots() []batch.Offset {
	l.snapshots.mu.Lock()
	defer l.snapshots.mu.Unlock()
	out := slices.Clone(l.snapshots.onDisk)
	for off := range l.snapshots.pending {
		out = append(out, off)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	slices.Reverse(out)
	return out
}

// ReadProducerSnapshot returns the bytes of a snapshot. They are not checked:
// Kafka's format has its own checksum.
func (l *Log) ReadProducerSnapshot(off batch.Offset) ([]byte, error) {
	l.snapshots.mu.Lock()
	data, ok := l.snapshots.pending[off]
	l.snapshots.mu.Unlock()
	if ok {
		return data, nil
	}
	data, err := vfs.ReadFile(l.s.fs, l.snapshotName(off))
	if err != nil {
		return nil, l.wrap("read producer snapshot of", int64(off), err)
	}
	return data, nil
}

// parseOffsetName reads the offset of a segment's or snapshot's file name.
func parseOffsetName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	return v, err == nil && v >= 0
}
