package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// each runs a test on both real implementations.
func each(t *testing.T, f func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { f(t, OS{}, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		if err := m.MkdirAll("/data"); err != nil {
			t.Fatal(err)
		}
		f(t, m, "/data")
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE)
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	return f
}

func content(t *testing.T, fsys FS, name string) string {
	t.Helper()
	data, err := ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "<none>"
	}
	must(t, err)
	return string(data)
}

func TestBothFileSystemsAgree(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		if _, err := fsys.OpenFile(a, os.O_RDWR); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("open of a missing file: %v", err)
		}
		f := create(t, fsys, a, "hello")
		_, err := f.WriteAt([]byte("!"), 8)
		must(t, err)
		if got := content(t, fsys, a); got != "hello\x00\x00\x00!" {
			t.Fatalf("a hole must read as zeros: %q", got)
		}
		must(t, f.Truncate(2))
		must(t, f.Truncate(4))
		if got := content(t, fsys, a); got != "he\x00\x00" {
			t.Fatalf("growth must not bring old bytes back: %q", got)
		}
		must(t, f.Sync())
		must(t, f.Close())
		must(t, fsys.Rename(a, b))
		must(t, fsys.SyncDir(dir))
		if st, err := fsys.Stat(b); err != nil || st != (Info{Size: 4}) {
			t.Fatalf("stat %+v, %v", st, err)
		}
		must(t, fsys.MkdirAll(filepath.Join(dir, "d", "e")))
		must(t, create(t, fsys, filepath.Join(dir, "d", "x"), "x").Close())
		names, err := fsys.List(dir)
		if must(t, err); !slices.Equal(names, []string{"b", "d"}) {
			t.Fatalf("names %q", names)
		}
		if err := fsys.Remove(filepath.Join(dir, "d")); !errors.Is(err, syscall.ENOTEMPTY) {
			t.Fatalf("remove of a full directory: %v", err)
		}
		must(t, fsys.RemoveAll(filepath.Join(dir, "d")))
		must(t, fsys.RemoveAll(filepath.Join(dir, "d")))
		if _, err := fsys.Stat(filepath.Join(dir, "d")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("stat after removal: %v", err)
		}
		must(t, WriteFileAtomic(fsys, b, []byte("whole")))
		if got := content(t, fsys, b); got != "whole" {
			t.Fatalf("content %q", got)
		}
	})
}

func TestASecondLockNamesTheDirectory(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, ".lock")
		l, err := fsys.Lock(name)
		must(t, err)
		_, err = fsys.Lock(name)
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("second lock: %v", err)
		}
		must(t, l.Close())
		l, err = fsys.Lock(name)
		must(t, err)
		must(t, l.Close())
	})
}

func TestCrashDropsWhatWasNotSynced(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d"))
	must(t, m.SyncDir(""))
	f := create(t, m, "d/named", strings.Repeat("a", 1000))
	must(t, f.Sync())
	must(t, m.SyncDir("d"))
	_, err := f.WriteAt([]byte("bbb"), 10)
	must(t, err)
	g := create(t, m, "d/unnamed", "x")
	must(t, g.Sync()) // bytes synced, name not
	must(t, m.Rename("d/named", "d/renamed"))

	drop := m.CrashClone(DropUnsynced)
	if got := content(t, drop, "d/named"); got != strings.Repeat("a", 1000) {
		t.Fatalf("unsynced bytes or the rename survived: %.20q", got)
	}
	for _, name := range []string{"d/unnamed", "d/renamed"} {
		if got := content(t, drop, name); got != "<none>" {
			t.Fatalf("%s survived without SyncDir", name)
		}
	}
	keep := m.CrashClone(KeepUnsynced)
	if got := content(t, keep, "d/renamed"); got[10:13] != "bbb" || content(t, keep, "d/unnamed") != "x" {
		t.Fatal("kill -9 must lose nothing")
	}
	must(t, m.SyncDir("d"))
	drop = m.CrashClone(DropUnsynced)
	if content(t, drop, "d/unnamed") != "x" || content(t, drop, "d/named") != "<none>" {
		t.Fatal("SyncDir did not make the names durable")
	}
}

func TestTornCrashMixesSectorsAndRepeatsForASeed(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", strings.Repeat("o", 64*SectorBytes))
	must(t, f.Sync())
	must(t, m.SyncDir(""))
	_, err := f.WriteAt(bytes.Repeat([]byte("n"), 64*SectorBytes), 0)
	must(t, err)
	one := content(t, m.CrashClone(Torn(1)), "f")
	if one != content(t, m.CrashClone(Torn(1)), "f") {
		t.Fatal("the same seed gave two outcomes")
	}
	olds, news := 0, 0
	for s := range 64 {
		sector := one[s*SectorBytes : (s+1)*SectorBytes]
		switch {
		case strings.Count(sector, "o") == SectorBytes:
			olds++
		case strings.Count(sector, "n") == SectorBytes:
			news++
		default:
			t.Fatalf("sector %d is torn inside", s)
		}
	}
	if olds < 10 || news < 10 {
		t.Fatalf("%d old and %d new sectors", olds, news)
	}
}

func TestTornRenameNeverLosesBothNames(t *testing.T) {
	m := NewMem()
	must(t, WriteFileAtomic(m, "f", []byte("old")))
	must(t, WriteFileRename(m, "f", []byte("new")))
	seen := map[string]bool{}
	for seed := range uint64(20) {
		seen[content(t, m.CrashClone(Torn(seed)), "f")] = true
	}
	if !seen["old"] || !seen["new"] || len(seen) != 2 {
		t.Fatalf("outcomes %v", seen)
	}
}

func TestFaultyCountsFailsAndCutsShort(t *testing.T) {
	var ops []string
	m := NewMem()
	fsys := &Faulty{FS: m}
	fsys.Hook = func(op Op) error {
		ops = append(ops, string(op.Kind))
		switch op.N {
		case 3:
			return &PartialError{N: 2, Err: syscall.ENOSPC}
		case 4:
			return syscall.EIO
		}
		return nil
	}
	f := create(t, fsys, "f", "abcd")
	if n, err := f.WriteAt([]byte("xyz"), 4); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	if got := content(t, m, "f"); got != "abcdxy" {
		t.Fatalf("content %q", got)
	}
	if !slices.Equal(ops, []string{"create", "write", "write", "sync"}) || fsys.Ops() != 4 {
		t.Fatalf("ops %q", ops)
	}
}
