package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// restore takes a log back to its checkpoint: what was written to its files
// since is not synced and may be torn in any way. A log the checkpoint does
// not know is empty; a directory of its name is from an earlier incarnation.
func (r *recovery) restore(l *Log) error {
	rec, known := r.records[l.spec.ID]
	files := r.byOffset[l]
	if !known {
		files.snapshots = nil
		return r.s.removeDir(l.dir)
	}
	l.w.start, l.w.end = rec.Start, rec.End
	l.start.Store(rec.Start)
	l.end.Store(rec.End)
	if err := r.removeAfter(l, rec.Segment); err != nil {
		return err
	}
	var segs []*segment
	for _, base := range files.segments {
		if base <= rec.Segment {
			g := newSegment(l, base)
			g.size.Store(files.sizes[base])
			segs = append(segs, g)
		}
	}
	l.segments.Store(&segs)
	if rec.Segment < 0 {
		return nil
	}
	return r.restoreActive(l, segs[len(segs)-1], rec)
}

// removeAfter deletes the files of segments after the last checkpointed one,
// indexes without a segment, and temporary files.
func (r *recovery) removeAfter(l *Log, last int64) error {
	files := r.byOffset[l]
	remove := func(name string) error {
		r.changed[l] = true
		err := r.s.fs.Remove(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, name := range files.strays {
		if err := remove(filepath.Join(l.dir, name)); err != nil {
			return err
		}
	}
	for _, base := range slices.Concat(files.segments, files.others) {
		if _, whole := files.sizes[base]; base <= last && whole {
			continue
		}
		name := newSegment(l, base).name
		for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix, txnSuffix} {
			if err := remove(name + suffix); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreActive cuts the last segment and its indexes to the checkpointed size.
func (r *recovery) restoreActive(l *Log, g *segment, rec logRecord) error {
	if g.size.Load() > rec.Pos {
		r.changed[l] = true
		g.dirty.Store(true)
		if err := g.use(func(f vfs.File) error { return f.Truncate(rec.Pos) }); err != nil {
			return err
		}
		g.size.Store(rec.Pos)
	}
	g.checked.Store(true)
	g.setMaxTimestamp(rec.MaxTs, rec.MaxTsOffset)
	l.w.seg, l.w.pos = g, rec.Pos
	l.w.x = indexer{g: g, maxTs: rec.MaxTs, maxTsAt: rec.MaxTsOffset, lastTimeTs: rec.LastTimeTs, since: int64(rec.SinceIndex)}
	whole := true
	for _, want := range []struct {
		e *entryFile
		n uint32
	}{{g.index, rec.IndexEntries}, {g.times, rec.TimeEntries}, {g.txns, rec.TxnEntries}} {
		ok, err := r.restoreIndex(l, want.e, int(want.n))
		if err != nil {
			return err
		}
		whole = whole && ok
	}
	if !whole {
		r.changed[l] = true
		x, err := g.rebuildIndexes(false)
		if err != nil {
			return err
		}
		l.w.x = x
	}
	l.w.indexN, l.w.timeN, l.w.txnN = g.index.entries(), g.times.entries(), g.txns.entries()
	last, err := g.txns.last()
	if err != nil || last == nil {
		return err
	}
	t, err := parseAborted(last)
	if err != nil {
		return &CorruptError{File: g.txns.name, Reason: err.Error(), Remedy: "restore the file from a copy"}
	}
	l.w.lastAbort = int64(t.LastOffset)
	return nil
}

// restoreIndex reports false if the file is too short and must be rebuilt.
func (r *recovery) restoreIndex(l *Log, e *entryFile, n int) (bool, error) {
	size, err := r.fileSize(e.name)
	if err != nil {
		return false, err
	}
	want := int64(n) * int64(e.size)
	switch {
	case size < want:
		return false, nil
	case size > want:
		r.changed[l] = true
		return true, e.cutTo(n)
	}
	e.opened(n)
	return true, nil
}

// fileSize is 0 for a missing file.
func (r *recovery) fileSize(name string) (int64, error) {
	st, err := r.s.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return st.Size, err
}

// settle syncs a log that recovery changed, and drops the producer snapshots
// of a future that did not survive. Their removal must be durable before
// appends can reach their offsets again.
func (r *recovery) settle(l *Log) error {
	files := r.byOffset[l]
	slices.Sort(files.snapshots)
	for _, off := range files.snapshots {
		if off <= batch.Offset(l.w.end) {
			l.snapshots.onDisk = append(l.snapshots.onDisk, off)
			continue
		}
		r.changed[l] = true
		if err := r.s.fs.Remove(l.snapshotName(off)); err != nil {
			return err
		}
	}
	l.durableEnd.Store(l.w.end)
	l.committed, l.synced = l.w, l.w
	if !r.changed[l] || r.s.opts.Failpoints.CheckpointBeforeSync {
		return nil
	}
	for _, g := range *l.segments.Load() {
		if err := g.sync(); err != nil {
			return err
		}
	}
	l.dirDirty.Store(false)
	if err := r.s.fs.SyncDir(l.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
