package seglog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Open opens the store in a directory, creating it if need be, and recovers
// the given logs. Logs that are not given are forgotten: their directories
// stay (see Orphans), but can not be opened again.
//
// It fails with a *vfs.LockedError if the directory is in use, and with
// ErrCorrupt, having changed nothing, if the disk lost something that had been
// synced.
func Open(opts Options, logs []LogSpec) (*Store, error) {
	s, err := open(opts.withDefaults(), logs)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", opts.Dir, err)
	}
	return s, nil
}

func open(opts Options, specs []LogSpec) (_ *Store, err error) {
	s := &Store{
		opts: opts, fs: opts.FS,
		logs: map[LogID]*Log{}, byDir: map[string]*Log{},
		queue:        newQueue(opts.QueueBytes),
		cutRequests:  make(chan *cutRequest),
		checkpointed: make(chan struct{}, 1),
		done:         make(chan struct{}),
		quit:         make(chan struct{}),
	}
	s.journal = &journal{s: s, dir: filepath.Join(opts.Dir, journalDirName)}
	s.background = newBackground(s)
	s.pool = &pool{s: s, max: opts.OpenFiles}
	group := make(chan struct{})
	s.groupDone.Store(&group)
	for _, spec := range specs {
		if err := spec.validate(); err != nil {
			return nil, err
		}
		if other := s.taken(spec); other != nil {
			return nil, fmt.Errorf("log %d %s is given twice, also as log %d %s", spec.ID, spec, other.spec.ID, other.spec)
		}
		l := s.newLog(spec)
		s.logs[spec.ID], s.byDir[spec.String()] = l, l
	}
	if err := vfs.MkdirAllSync(s.fs, s.journal.dir); err != nil {
		return nil, err
	}
	if s.lock, err = s.fs.Lock(filepath.Join(opts.Dir, ".lock")); err != nil {
		return nil, err
	}
	r := &recovery{s: s, byOffset: map[*Log]*logFiles{}}
	if err := r.run(); err != nil {
		s.pool.closeAll()
		if s.journal.file != nil {
			s.journal.file.Close()
		}
		s.lock.Close()
		return nil, err
	}
	s.goroutines.Add(2)
	go s.commitLoop()
	go s.background.loop()
	return s, nil
}

// recovery is one run of Open. It first reads and checks everything, and only
// then changes files.
type recovery struct {
	s        *Store
	cp       *checkpoint
	records  map[LogID]logRecord
	byOffset map[*Log]*logFiles
	changed  map[*Log]bool
	journals []uint64 // files found

	recovered []*Log
}

// logFiles is what a log's directory holds.
type logFiles struct {
	exists    bool
	segments  []int64
	sizes     map[int64]int64 // of the .log files
	snapshots []batch.Offset
	strays    []string // temporary files
	others    []int64  // base offsets that have index files
}

func (r *recovery) run() error {
	s := r.s
	r.changed = map[*Log]bool{}
	cp, err := r.readCheckpoint()
	if err != nil {
		return err
	}
	if r.journals, err = listJournal(s.fs, s.journal.dir); err != nil {
		return err
	}
	for _, l := range r.logs() {
		if r.byOffset[l], err = r.list(l); err != nil {
			return l.wrap("list", 0, err)
		}
	}
	if cp == nil {
		if err := r.checkFresh(); err != nil {
			return err
		}
		cp = &checkpoint{Epoch: -1}
	}
	r.cp, r.records = cp, cp.byID()
	if err := r.checkSegments(); err != nil {
		return err
	}
	if cp.File > 0 {
		if err := r.checkJournal(); err != nil {
			return err
		}
	}
	s.recovery.Clean = cp.Clean && s.recovery.Groups == 0
	for _, l := range r.logs() {
		if err := r.restore(l); err != nil {
			return l.wrap("recover", l.w.end, err)
		}
	}
	if s.recovery.Groups > 0 {
		if err := r.replay(); err != nil {
			return err
		}
	}
	return r.finish()
}

// logs returns the logs in a fixed order.
func (r *recovery) logs() []*Log {
	out := make([]*Log, 0, len(r.s.logs))
	for _, l := range r.s.logs {
		out = append(out, l)
	}
	slices.SortFunc(out, compareLogs)
	return out
}

// readCheckpoint returns nil if there is none.
func (r *recovery) readCheckpoint() (*checkpoint, error) {
	name := filepath.Join(r.s.opts.Dir, checkpointName)
	data, err := vfs.ReadFile(r.s.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cp, err := parseCheckpoint(data)
	if err != nil {
		return nil, &CorruptError{File: name, Reason: err.Error(), Remedy: "restore the whole directory from a copy"}
	}
	return cp, nil
}

// checkFresh makes sure that a directory without a checkpoint holds no data:
// the first Open writes one before it accepts anything.
func (r *recovery) checkFresh() error {
	missing := func(found string) error {
		return &CorruptError{File: filepath.Join(r.s.opts.Dir, checkpointName),
			Reason: "the file is missing, but " + found,
			Remedy: "restore the whole directory from a copy, or choose an empty one"}
	}
	for _, number := range r.journals {
		f, err := r.s.fs.OpenFile(journalName(r.s.journal.dir, number), 0)
		if err != nil {
			return err
		}
		head := make([]byte, groupHeaderBytes)
		f.ReadAt(head, 0) // a short or failed read leaves zeros, which are no group
		f.Close()
		if _, err := parseGroupHeader(head); err == nil {
			return missing("there is a journal")
		}
	}
	for _, l := range r.logs() {
		if files := r.byOffset[l]; len(files.segments) > 0 {
			return missing("there are segments of " + l.spec.String())
		}
	}
	return nil
}

func (r *recovery) list(l *Log) (*logFiles, error) {
	out := &logFiles{sizes: map[int64]int64{}}
	names, err := r.s.fs.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	out.exists = true
	for _, name := range names {
		if base, ok := parseOffsetName(name, logSuffix); ok {
			st, err := r.s.fs.Stat(filepath.Join(l.dir, name))
			if err != nil {
				return nil, err
			}
			out.segments = append(out.segments, base)
			out.sizes[base] = st.Size
		} else if off, ok := parseOffsetName(name, snapshotSuffix); ok {
			out.snapshots = append(out.snapshots, batch.Offset(off))
		} else if strings.HasSuffix(name, ".tmp") {
			out.strays = append(out.strays, name)
		}
		for _, suffix := range []string{indexSuffix, timeSuffix, txnSuffix} {
			if base, ok := parseOffsetName(name, suffix); ok {
				out.others = append(out.others, base)
			}
		}
	}
	return out, err
}

// checkSegments verifies that everything the checkpoint knows is there.
func (r *recovery) checkSegments() error {
	for _, l := range r.logs() {
		rec, ok := r.records[l.spec.ID]
		if !ok || rec.Segment < 0 {
			continue
		}
		size, ok := r.byOffset[l].sizes[rec.Segment]
		name := newSegment(l, rec.Segment).name + logSuffix
		if !ok || size < rec.Pos {
			reason := "the file is missing"
			if ok {
				reason = fmt.Sprintf("the file ends here, but %d bytes were synced", rec.Pos)
			}
			return &CorruptError{File: name, Pos: size, Reason: reason,
				Remedy: "synced data is lost and nothing was changed: restore the file from a copy"}
		}
		txns := newSegment(l, rec.Segment).txns
		size, err := r.fileSize(txns.name)
		if err != nil {
			return err
		}
		if size < int64(rec.TxnEntries)*txnEntryBytes {
			return &CorruptError{File: txns.name, Pos: size,
				Reason: fmt.Sprintf("the file ends here, but %d aborted transactions were synced", rec.TxnEntries),
				Remedy: "without it aborted records would be read as committed: restore the file from a copy"}
		}
	}
	return nil
}

// checkJournal reads the journal once without changing anything: every entry
// must follow on its log, and where the valid part ends must be a torn tail.
func (r *recovery) checkJournal() error {
	s := r.s
	ends := map[LogID]int64{}
	for id, rec := range r.records {
		ends[id] = rec.End
	}
	if !slices.Contains(r.journals, r.cp.File) {
		return &CorruptError{File: journalName(s.journal.dir, r.cp.File), Reason: "the file is missing",
			Remedy: "restore the journal from a copy"}
	}
	err := r.walk(func(jr *journalReader, e entry) error {
		end := ends[e.Log]
		switch {
		case s.logs[e.Log] == nil: // deleted since
			return nil
		case e.Kind == entryAppend && int64(e.Offset) == end:
			h, err := parseHeader(e.Payload)
			ends[e.Log] = h.last + 1
			return err
		case e.Kind == entrySetStart && int64(e.Offset) <= end, e.Kind == entryAborted && int64(e.Offset) < end:
			return nil
		}
		return jr.wrong(fmt.Errorf("%s entry of log %d at offset %d does not follow on the log's end %d", e.Kind, e.Log, e.Offset, end))
	}, func(jr *journalReader) error {
		s.recovery.TornFile, s.recovery.TornPos = journalName(jr.dir, jr.number), jr.pos
		if jr.torn {
			s.recovery.TornReason = jr.reason
		}
		corrupt, err := jr.rot()
		if err != nil {
			return err
		}
		if corrupt != nil && !s.opts.Salvage {
			return corrupt
		}
		s.recovery.Salvaged = corrupt != nil
		return nil
	})
	return err
}

// walk calls each with every valid entry in order, and end where they end.
func (r *recovery) walk(each func(*journalReader, entry) error, end func(*journalReader) error) error {
	s := r.s
	jr := newJournalReader(s.fs, s.journal.dir, r.cp)
	defer jr.close()
	s.recovery.Groups, s.recovery.Entries, s.recovery.Bytes = 0, 0, 0
	for {
		entries, err := jr.next()
		if err != nil {
			return err
		}
		if entries == nil {
			return end(jr)
		}
		s.recovery.Groups++
		s.recovery.Bytes += int64(len(entries))
		for len(entries) > 0 {
			var e entry
			if e, entries, err = nextEntry(entries); err != nil {
				return jr.wrong(err)
			}
			if err := each(jr, e); err != nil {
				return err
			}
			s.recovery.Entries++
		}
	}
}

// replay applies the journal.
func (r *recovery) replay() error {
	return r.walk(func(_ *journalReader, e entry) error {
		l := r.s.logs[e.Log]
		if l == nil { // deleted since
			return nil
		}
		r.changed[l] = true
		if err := l.apply(e); err != nil {
			return l.wrap("replay "+e.Kind.String(), int64(e.Offset), err)
		}
		return nil
	}, func(*journalReader) error { return nil })
}

// apply does what an entry says, without journalling it.
func (l *Log) apply(e entry) error {
	switch e.Kind {
	case entryAppend:
		h, err := parseHeader(e.Payload)
		if err != nil {
			return err
		}
		_, err = l.write(e.Payload, h)
		return err
	case entrySetStart:
		l.w.start = max(l.w.start, int64(e.Offset))
		l.start.Store(l.w.start)
	case entryAborted:
		t, err := parseAborted(e.Payload)
		if err != nil {
			return err
		}
		l.indexAborted(t)
	}
	return nil
}

// finish makes the recovered state the new checkpoint and begins a journal.
func (r *recovery) finish() error {
	s := r.s
	c := &cut{seq: 1, states: map[*Log]logState{}}
	r.recovered = r.logs()
	for _, l := range r.recovered {
		if err := r.settle(l); err != nil {
			return l.wrap("recover", l.w.end, err)
		}
		c.states[l] = l.w
	}
	var salt [8]byte
	rand.Read(salt[:])
	j := s.journal
	j.salt, j.seq = binary.BigEndian.Uint64(salt[:]), 1
	next := r.cp.File
	if n := len(r.journals); n > 0 {
		next = max(next, r.journals[n-1])
	}
	if err := j.begin(next + 1); err != nil {
		return err
	}
	c.file = j.number
	s.epoch = r.cp.Epoch + 1
	if s.rootDirty.Swap(false) {
		if err := s.fs.SyncDir(s.opts.Dir); err != nil {
			return err
		}
	}
	if err := s.writeCheckpoint(c); err != nil {
		return err
	}
	s.covered.Store(c.file)
	j.files.live = r.journals
	s.background.add(task{run: func() error { return r.tidy(c.file) }})
	return nil
}

// tidy removes what the new checkpoint makes superfluous.
func (r *recovery) tidy(file uint64) error {
	s := r.s
	if err := s.journal.retire(file); err != nil {
		return err
	}
	for _, l := range r.recovered {
		if err := s.background.run(task{log: l, run: func() error { return l.trim(l.synced.start) }}); err != nil {
			return err
		}
	}
	names, err := s.fs.List(s.opts.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, deleteSuffix); ok && isDigits(id) && s.holdsPartition(name) {
			if err := s.fs.RemoveAll(filepath.Join(s.opts.Dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
