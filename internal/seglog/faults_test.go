package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// dump returns every file of a tree.
func dump(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fsys.List(dir)
	must(t, err)
	for _, name := range names {
		name = filepath.Join(dir, name)
		st, err := fsys.Stat(name)
		must(t, err)
		if st.IsDir {
			for k, v := range dump(t, fsys, name) {
				out[k] = v
			}
			continue
		}
		data, err := vfs.ReadFile(fsys, name)
		must(t, err)
		out[name] = string(data)
	}
	return out
}

// flip changes one byte of a file.
func flip(t *testing.T, fsys vfs.FS, name string, pos int64) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR)
	must(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, pos)
	must(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b, pos)
	must(t, err)
	must(t, f.Close())
}

const journal1 = testDir + "/journal/00000000000000000001.jnl"

func TestAFailedWriteOrSyncStopsTheStoreForGood(t *testing.T) {
	noSpace := &vfs.PartialError{N: 100, Err: syscall.ENOSPC}
	for name, c := range map[string]struct {
		kind   vfs.OpKind
		suffix string
		cause  error
		errno  error
	}{
		"full disk in the journal":       {vfs.OpWrite, ".jnl", noSpace, syscall.ENOSPC},
		"failed sync of the journal":     {vfs.OpSync, ".jnl", syscall.EIO, syscall.EIO},
		"full disk in a segment":         {vfs.OpWrite, ".log", noSpace, syscall.ENOSPC},
		"failed sync in a checkpoint":    {vfs.OpSync, ".log", syscall.EIO, syscall.EIO},
		"full disk for the checkpoint":   {vfs.OpWrite, "checkpoint.tmp", noSpace, syscall.ENOSPC},
		"no room for the next journal":   {vfs.OpCreate, "2.jnl", syscall.ENOSPC, syscall.ENOSPC},
		"failed sync of a log directory": {vfs.OpSyncDir, "a-0", syscall.EIO, syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			var armed, struck atomic.Bool
			var again atomic.Int32
			fsys := &vfs.Faulty{FS: mem, Hook: func(op vfs.Op) error {
				if armed.Load() && op.Kind == c.kind && strings.HasSuffix(op.Name, c.suffix) {
					if struck.Swap(true) {
						again.Add(1)
					}
					return c.cause
				}
				return nil
			}}
			opts := small(fsys)
			s := mustOpen(t, opts, specs...)
			l := s.Log(1)
			for range 3 {
				wait(t, s, add(t, l, 2, 1, 100))
			}
			acked := l.DurableEnd()
			armed.Store(true)
			var err error
			for i := 0; err == nil && i < 100; i++ {
				raw, h := makeBatch(int64(l.End()), 2, 1, 100)
				var lsn LSN
				if lsn, _, err = l.Append(raw, h); err == nil {
					err = s.Wait(context.Background(), lsn)
				}
				if err == nil {
					acked = l.DurableEnd()
				}
			}
			<-s.Done()
			if !errors.Is(err, ErrFailed) || !errors.Is(s.Err(), c.errno) || !strings.Contains(s.Err().Error(), c.suffix) {
				t.Fatalf("append: %v; store: %v", err, s.Err())
			}
			raw, h := makeBatch(int64(l.End()), 2, 1, 100)
			if _, _, err := l.Append(raw, h); !errors.Is(err, ErrFailed) {
				t.Fatalf("append to a failed store: %v", err)
			}
			if err := s.Wait(context.Background(), s.AppendedLSN()+1); !errors.Is(err, c.errno) {
				t.Fatalf("wait on a failed store: %v", err)
			}
			if err := s.Checkpoint(); !errors.Is(err, ErrFailed) {
				t.Fatalf("checkpoint of a failed store: %v", err)
			}
			if err := s.Close(); !errors.Is(err, ErrFailed) {
				t.Fatalf("close of a failed store: %v", err)
			}
			if again.Load() > 0 {
				t.Fatalf("the failed operation was tried %d more times", again.Load())
			}
			s = mustOpen(t, small(mem.CrashClone(vfs.DropUnsynced)), specs...)
			if got := s.Log(1).End(); got < acked {
				t.Fatalf("recovered to %d, acknowledged %d", got, acked)
			}
			s.Crash()
		})
	}
}

// crashed returns a file system with n synced groups of one batch each.
func crashed(t *testing.T, n int) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	opts := small(mem)
	opts.JournalFileBytes = 1 << 20
	s := mustOpen(t, opts, specs...)
	for range n {
		wait(t, s, add(t, s.Log(1), 1, 1, 100))
	}
	s.Crash()
	return mem
}

func TestBitRotBeforeTheDurablePointIsRefused(t *testing.T) {
	mem := crashed(t, 5)
	at := int64(2 * pageBytes)
	flip(t, mem, journal1, at+groupHeaderBytes+30)
	before := dump(t, mem, testDir)
	_, err := Open(small(mem), specs)
	var corrupt *CorruptError
	if !errors.Is(err, ErrCorrupt) || !errors.As(err, &corrupt) {
		t.Fatalf("open: %v", err)
	}
	if corrupt.File != journal1 || corrupt.Pos != at || corrupt.Remedy == "" {
		t.Fatalf("%+v", corrupt)
	}
	for name, data := range dump(t, mem, testDir) {
		if before[name] != data {
			t.Errorf("%s was changed", name)
		}
	}
	opts := small(mem)
	opts.Salvage = true
	s := mustOpen(t, opts, specs...)
	if s.Log(1).End() != 2 || !s.Recovery().Salvaged {
		t.Fatalf("salvaged to %d, %+v", s.Log(1).End(), s.Recovery())
	}
	s.Crash()
}

func TestATornLastGroupIsCutOff(t *testing.T) {
	for _, pos := range []int64{0, 20, groupHeaderBytes, groupHeaderBytes + 90} {
		mem := crashed(t, 5)
		flip(t, mem, journal1, 4*pageBytes+pos)
		s := mustOpen(t, small(mem), specs...)
		if r := s.Recovery(); s.Log(1).End() != 4 || r.Groups != 4 || r.TornPos != 4*pageBytes || r.Clean {
			t.Fatalf("recovered to %d, %+v", s.Log(1).End(), r)
		}
		wait(t, s, add(t, s.Log(1), 1, 1, 50))
		s.Crash()
		s = mustOpen(t, small(mem), specs...)
		if s.Log(1).End() != 5 {
			t.Fatalf("second recovery to %d", s.Log(1).End())
		}
		s.Crash()
	}
}

// In mode interval several groups are unsynced at once, and a power cut may
// keep the later one: that is no bit rot.
func TestALaterUnsyncedGroupDoesNotProveBitRot(t *testing.T) {
	mem := vfs.NewMem()
	opts := small(mem)
	opts.JournalFileBytes, opts.Mode = 1<<20, ModeNone
	s := mustOpen(t, opts, specs...)
	for range 4 {
		wait(t, s, add(t, s.Log(1), 1, 1, 100))
	}
	s.Crash()
	flip(t, mem, journal1, pageBytes+60)
	s = mustOpen(t, opts, specs...)
	if s.Log(1).End() != 1 {
		t.Fatalf("recovered to %d", s.Log(1).End())
	}
	s.Crash()
}

func TestLostFilesAreRefusedByName(t *testing.T) {
	for name, damage := range map[string]func(*vfs.Mem) (string, error){
		"checkpoint damaged": func(m *vfs.Mem) (string, error) {
			flip(t, m, testDir+"/checkpoint", 33)
			return "checkpoint", nil
		},
		"checkpoint missing": func(m *vfs.Mem) (string, error) { return "checkpoint", m.Remove(testDir + "/checkpoint") },
		"journal missing":    func(m *vfs.Mem) (string, error) { return journal1, m.Remove(journal1) },
		"segment missing": func(m *vfs.Mem) (string, error) {
			name := testDir + "/a-0/00000000000000000000.log"
			return name, m.Remove(name)
		},
		"segment cut": func(m *vfs.Mem) (string, error) {
			name := testDir + "/a-0/00000000000000000000.log"
			f, err := m.OpenFile(name, os.O_RDWR)
			return name, errors.Join(err, f.Truncate(100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			s := mustOpen(t, small(mem), specs...)
			wait(t, s, add(t, s.Log(1), 1, 1, 100))
			must(t, s.Checkpoint())
			wait(t, s, add(t, s.Log(1), 1, 1, 100))
			s.Crash()
			file, err := damage(mem)
			must(t, err)
			if _, err := Open(small(mem), specs); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), file) {
				t.Fatalf("open: %v", err)
			}
		})
	}
}

func TestReplayFindsADamagedBatch(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), specs...)
	for range 30 {
		add(t, s.Log(1), 1, 1, 100)
	}
	flip(t, mem, testDir+"/a-0/00000000000000000012.log", 161+80)
	_, err := contents(s.Log(1))
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Pos != 161 || filepath.Base(corrupt.File) != "00000000000000000012.log" {
		t.Fatalf("replay: %v", err)
	}
	must(t, s.Close())
}

func TestAppendWaitsWhileTheJournalIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var hold atomic.Bool
		fsys := &vfs.Faulty{FS: vfs.NewMem(), Hook: func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".jnl") && hold.Load() {
				<-release
			}
			return nil
		}}
		opts := small(fsys)
		opts.QueueBytes = 1000
		s := mustOpen(t, opts, specs...)
		hold.Store(true)
		const all = 50
		var wg sync.WaitGroup
		wg.Go(func() {
			for range all {
				add(t, s.Log(1), 1, 1, 100)
			}
		})
		synctest.Wait()
		if n := s.AppendedLSN(); n == 0 || n > 7 {
			t.Errorf("%d appends of 181 bytes with a bound of 1000", n)
		}
		close(release)
		wg.Wait()
		wait(t, s, all)
		must(t, s.Close())
	})
}

func TestModeIntervalSyncsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		opts := small(mem)
		opts.Mode = ModeInterval
		s := mustOpen(t, opts, specs...)
		wait(t, s, add(t, s.Log(1), 1, 1, 100)) // at once
		lost := mustOpen(t, small(mem.CrashClone(vfs.DropUnsynced)), specs...)
		if lost.Log(1).End() != 0 {
			t.Error("synced without need")
		}
		lost.Crash()
		time.Sleep(2 * s.opts.SyncInterval) // of the bubble, not of the wall
		kept := mustOpen(t, small(mem.CrashClone(vfs.DropUnsynced)), specs...)
		if kept.Log(1).End() != 1 {
			t.Error("not synced after the interval")
		}
		kept.Crash()
		must(t, s.Close())
	})
}

func TestWaitEndsWithItsContextAndWithTheStore(t *testing.T) {
	s := mustOpen(t, small(vfs.NewMem()), specs...)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Wait(ctx, 99); !errors.Is(err, context.Canceled) {
		t.Fatalf("wait: %v", err)
	}
	done := make(chan error)
	go func() { done <- s.Wait(context.Background(), 99) }()
	must(t, s.Close())
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Fatalf("wait: %v", err)
	}
	raw, h := makeBatch(0, 1, 1, 1)
	if _, _, err := s.Log(1).Append(raw, h); !errors.Is(err, ErrClosed) {
		t.Fatalf("append: %v", err)
	}
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Fatalf("second close: %v", err)
	}
}

func TestDurableEndIsAdvancedBeforeOnDurableAndWait(t *testing.T) {
	opts := small(vfs.NewMem())
	var l *Log
	var last LSN
	opts.OnDurable = func(lsn LSN) {
		if lsn <= last || uint64(l.DurableEnd()) < uint64(lsn) {
			t.Errorf("OnDurable(%d) after %d with durable end %d", lsn, last, l.DurableEnd())
		}
		last = lsn
	}
	s := mustOpen(t, opts, specs...)
	l = s.Log(1)
	for i := range 100 {
		if lsn := add(t, l, 1, 1, 10); i%10 == 0 {
			wait(t, s, lsn)
			if last < lsn {
				t.Fatalf("Wait(%d) returned before OnDurable", lsn)
			}
		}
	}
	must(t, s.Close())
	if last != 100 {
		t.Fatalf("last OnDurable(%d)", last)
	}
}

func TestReadersRunBesideTheWriters(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"mem": vfs.NewMem(), "os": vfs.OS{}} {
		t.Run(name, func(t *testing.T) {
			opts := small(fsys)
			opts.OpenFiles = 3
			if name == "os" {
				opts.Dir = t.TempDir()
				opts.JournalFileBytes = 1 << 20
			}
			s := mustOpen(t, opts, specs...)
			const batches = 400
			var writers, readers sync.WaitGroup
			stop := make(chan struct{})
			for _, spec := range specs {
				l := s.Log(spec.ID)
				writers.Go(func() {
					for i := range batches {
						lsn := add(t, l, 1+i%2, int64(i), 60)
						switch {
						case i%50 == 49:
							wait(t, s, lsn)
						case i%70 == 69:
							must(t, s.Checkpoint())
						case i%90 == 89:
							_, err := l.SetStart(l.End() / 2)
							must(t, err)
						case i%40 == 39:
							must(t, l.AppendAborted(AbortedTxn{1, l.End() - 1, l.End() - 1, l.End()}))
						}
					}
				})
				for range 2 {
					readers.Go(func() { readForever(t, l, stop) })
				}
			}
			writers.Wait()
			close(stop)
			readers.Wait()
			must(t, s.Close())
		})
	}
}

func readForever(t *testing.T, l *Log, stop chan struct{}) {
	from := batch.Offset(0)
	var buf []byte
	for {
		select {
		case <-stop:
			return
		default:
		}
		var err error
		buf, err = l.Read(buf[:0], from, 700, l.DurableEnd(), true)
		if errors.Is(err, ErrOffsetOutOfRange) {
			from = l.Start()
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		for rest := buf; len(rest) > 0; {
			h, err := parseHeader(rest)
			if err == nil {
				err = checkBatchCRC(rest[:h.size])
			}
			if err != nil || h.last < int64(from) {
				t.Errorf("read at %d: batch [%d,%d], %v", from, h.base, h.last, err)
				return
			}
			from, rest = batch.Offset(h.last+1), rest[h.size:]
		}
		if _, err := l.AbortedIn(from, math.MaxInt64); err != nil && !errors.Is(err, ErrOffsetOutOfRange) {
			t.Error(err)
		}
		if _, err := l.Segments(); err != nil {
			t.Error(err)
		}
	}
}

func TestDeleteAndCreateUnderOneName(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), specs...)
	for range 20 {
		add(t, s.Log(1), 1, 1, 100)
	}
	must(t, s.Checkpoint())
	old := s.Log(1)
	add(t, old, 1, 1, 100) // queued when the log goes
	must(t, s.Delete(1))
	if _, err := old.Read(nil, 0, 100, 10, true); !errors.Is(err, ErrDeleted) {
		t.Fatalf("read of a deleted log: %v", err)
	}
	raw, h := makeBatch(int64(old.End()), 1, 1, 1)
	if _, _, err := old.Append(raw, h); !errors.Is(err, ErrDeleted) {
		t.Fatalf("append to a deleted log: %v", err)
	}
	if s.Log(1) != nil {
		t.Fatal("the log is still there")
	}
	if _, err := s.Create(LogSpec{ID: 2, Topic: "a", Partition: 0}); err == nil {
		t.Fatal("an id was taken twice")
	}
	spec := LogSpec{ID: 20, Topic: "a", Partition: 0}
	l, err := s.Create(spec)
	must(t, err)
	if l.End() != 0 {
		t.Fatalf("a new log ends at %d", l.End())
	}
	wait(t, s, add(t, l, 3, 1, 10))
	s.Crash()
	s = mustOpen(t, small(mem), specs[1], specs[2], spec)
	if got := s.Log(20).End(); got != 3 {
		t.Fatalf("recovered to %d", got)
	}
	must(t, s.Close())

	s = mustOpen(t, small(mem), specs[1], specs[2]) // the owner dropped log 20 and crashed before Delete
	names, err := s.Orphans()
	if must(t, err); !slices.Equal(names, []string{"a-0"}) {
		t.Fatalf("orphans %q", names)
	}
	must(t, s.RemoveOrphans())
	must(t, s.Close())
	for name := range dump(t, mem, testDir) {
		if strings.Contains(name, "/a-0") {
			t.Errorf("%s is left", name)
		}
	}
}

// Whoever names a directory in which other things are kept must not lose them.
func TestStrangersInTheDirectoryAreLeftAlone(t *testing.T) {
	mem := vfs.NewMem()
	strangers := []string{"photos-2024/sea.jpg", "photos-2024/00000000000000000000.log", "photos-2025/00000000000000000000.txt", "soft-delete/list.txt", "7-delete/notes.txt"}
	for _, name := range strangers {
		must(t, mem.MkdirAll(filepath.Dir(filepath.Join(testDir, name))))
		must(t, vfs.WriteFileAtomic(mem, filepath.Join(testDir, name), []byte("x")))
	}
	for range 2 {
		s := mustOpen(t, small(mem), specs...)
		must(t, s.RemoveOrphans())
		must(t, s.Close())
	}
	for _, name := range strangers {
		if _, err := mem.Stat(filepath.Join(testDir, name)); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
}

func TestALogWithTheLongestNameCanBeDeleted(t *testing.T) {
	opts := small(vfs.OS{})
	opts.Dir = t.TempDir()
	s := mustOpen(t, opts)
	l, err := s.Create(LogSpec{ID: 1 << 31, Topic: strings.Repeat("x", 249), Partition: 9999})
	must(t, err)
	wait(t, s, add(t, l, 1, 1, 10))
	must(t, s.Delete(1<<31))
	must(t, s.Err())
	must(t, s.Close())
}

func TestNamesThatAreNoPartitionAreRefused(t *testing.T) {
	s := mustOpen(t, small(vfs.NewMem()))
	defer s.Close()
	for i, topic := range []string{"", ".", "..", "a/b", "../x", "ü", strings.Repeat("x", 250)} {
		if _, err := s.Create(LogSpec{ID: LogID(i), Topic: topic}); err == nil {
			t.Errorf("topic %q was accepted", topic)
		}
	}
	if _, err := s.Create(LogSpec{ID: 50, Topic: "a", Partition: -1}); err == nil {
		t.Error("partition -1 was accepted")
	}
}

func TestACleanStartReplaysNothingAndTouchesNoSegment(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), specs...)
	for i := range 300 {
		add(t, s.Log(specs[i%3].ID), 1, 1, 100)
	}
	must(t, s.Close())
	fsys := &vfs.Faulty{FS: mem}
	var ops []string
	fsys.Hook = func(op vfs.Op) error {
		ops = append(ops, fmt.Sprint(op.Kind, " ", op.Name))
		if strings.Contains(op.Name, "a-") {
			t.Errorf("a clean start does %v", op)
		}
		return nil
	}
	s = mustOpen(t, small(fsys), specs...)
	if !s.Recovery().Clean || len(ops) > 12 {
		t.Fatalf("recovery %+v with %q", s.Recovery(), ops)
	}
	s.Crash()
}

func TestJournalFilesAreReusedAndFew(t *testing.T) {
	mem := vfs.NewMem()
	opts := small(mem)
	var created, renamed atomic.Int32
	fsys := &vfs.Faulty{FS: mem, Hook: func(op vfs.Op) error {
		if strings.HasSuffix(op.Name, journalSuffix) {
			switch op.Kind {
			case vfs.OpCreate:
				created.Add(1)
			case vfs.OpRename:
				renamed.Add(1)
			}
		}
		return nil
	}}
	opts.FS = fsys
	s := mustOpen(t, opts, specs...)
	for range 400 {
		wait(t, s, add(t, s.Log(1), 1, 1, 100))
		names, err := mem.List(testDir + "/journal")
		must(t, err)
		if len(names) > opts.JournalFiles+4+keptSpares+1 {
			t.Fatalf("%d journal files", len(names))
		}
	}
	// 400 groups take 80 files. How many are new depends on how far the
	// checkpoints lag behind, but most are not.
	if created.Load() > renamed.Load() || created.Load()+renamed.Load() < 80 {
		t.Fatalf("%d files created, %d reused", created.Load(), renamed.Load())
	}
	s.Crash()
	got, err := Open(opts, specs)
	must(t, err)
	if got.Log(1).End() != 400 {
		t.Fatalf("recovered to %d", got.Log(1).End())
	}
	data, err := contents(got.Log(1))
	must(t, err)
	for i, b := range data {
		want, _ := makeBatch(int64(i), 1, 1, 100)
		if !bytes.Equal(b, want) {
			t.Fatalf("batch %d differs", i)
		}
	}
	must(t, got.Close())
}
