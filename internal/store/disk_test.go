package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestFullDiskIsAnErrorAndNotTheEndOfTheProgram makes every change of the files of one
// kind fail from some moment on. The store must neither panic nor hang, and what is on
// the disk must be one whole commit.
func TestFullDiskIsAnErrorAndNotTheEndOfTheProgram(t *testing.T) {
	for _, kind := range []string{".log", "MANIFEST", ".sst", ""} {
		t.Run("files "+kind, func(t *testing.T) {
			var full atomic.Bool
			disk := vfs.NewCrashableMem()
			faulty := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, kind) {
					return syscall.ENOSPC
				}
				return nil
			}))
			s, err := OpenPebble("store", PebbleOptions{FS: faulty, MemTableBytes: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() { failed <- commitUntilFailure(s, &full) }()
			select {
			case err := <-failed:
				if err == nil {
					t.Error("the full disk was not noticed")
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the store hangs")
			}
			after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			checkWholeCommit(t, after)
		})
	}
}

// Whoever waits for a store that is in use would wait for ever.
func TestLockFileThatCannotBeMadeIsNotTakenForAStoreInUse(t *testing.T) {
	full := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, "LOCK") {
			return &fs.PathError{Op: "open", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	if _, err := OpenPebble("store", PebbleOptions{FS: full}); errors.Is(err, ErrLocked) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ENOSPC and not ErrLocked", err)
	}
}

func checkWholeCommit(t *testing.T, disk vfs.FS) {
	s, err := OpenPebble("store", PebbleOptions{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	offset, _ := s.Offset()
	rows := 0
	for e, err := range s.Range(nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		rows++
		if e.TimestampMs != offset {
			t.Errorf("row of commit %d under offset %d", e.TimestampMs, offset)
		}
	}
	if rows != 5 {
		t.Errorf("%d rows under offset %d", rows, offset)
	}
}

func commitUntilFailure(s Store, full *atomic.Bool) error {
	for n := range int64(300) {
		if n == 100 {
			full.Store(true)
		}
		for key := range 5 {
			value := fmt.Appendf(nil, "%d %s", n, bytes.Repeat([]byte("x"), 500))
			if err := s.Put(fmt.Append(nil, key), value, n); err != nil {
				return err
			}
		}
		if err := s.Commit(n); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return s.Close()
}
