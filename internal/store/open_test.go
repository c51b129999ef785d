package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hanbeon/hanbeon/internal/task"
)

func TestOpenDirectoryTwiceIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenPebble(dir, PebbleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenPebble(dir, PebbleOptions{})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second open: %v, want ErrLocked with the directory", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenPebble(dir, PebbleOptions{}); err != nil {
		t.Fatalf("after close: %v", err)
	}
	s.Close()
}

func TestOpenForeignDirectoryIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenPebble(dir, PebbleOptions{})
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("got %v, want ErrForeign naming the file", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the directory was changed: %v", entries)
	}
}

func TestOpenPebbleDatabaseOfAnotherProgramIsRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{Logger: &pebbleLogger{damage: &damage{}}})
	if err != nil {
		t.Fatal(err)
	}
	db.Set([]byte("theirs"), nil, pebble.Sync)
	db.Close()
	if _, err := OpenPebble(dir, PebbleOptions{}); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v, want ErrForeign", err)
	}
}

func TestOpenLaterFormatVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenPebble(dir, PebbleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	db := s.(*store).base.(*pebbleBase).db
	db.Set(keyFormat, append([]byte(formatMagic), formatVersion+1), pebble.Sync)
	s.Close()
	if _, err := OpenPebble(dir, PebbleOptions{}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("got %v, want ErrForeign naming the version", err)
	}
}

// The bytes on disk are a format: a change of one of them needs a new version.
func TestRowsOnDiskHaveTheDocumentedBytes(t *testing.T) {
	s, err := OpenPebble(t.TempDir(), PebbleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Put([]byte("word"), []byte{0, 7}, 0x0102030405); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(258); err != nil {
		t.Fatal(err)
	}
	if err := s.(*store).base.caughtUp(0x010203040506); err != nil {
		t.Fatal(err)
	}
	it, err := s.(*store).base.(*pebbleBase).db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	var got strings.Builder
	for ok := it.First(); ok; ok = it.Next() {
		fmt.Fprintf(&got, "%q %q\n", it.Key(), it.Value())
	}
	const want = `"\x00format" "hanbeon state store\x01"
"\x00offset" "\x00\x00\x00\x00\x00\x00\x01\x02"
"\x00time" "\x00\x00\x01\x02\x03\x04\x05\x06"
"\x01word" "\x00\x00\x00\x01\x02\x03\x04\x05\x00\a"
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// The time tells what a store may have missed, so only what catches up may move it.
func TestTimeOfTheLastCatchUpSurvivesAndARestoreUnderWayKeepsIt(t *testing.T) {
	dir := t.TempDir()
	reopen := func(s Store) Store {
		if s != nil {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := OpenPebble(dir, PebbleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := reopen(nil)
	if ms := s.CaughtUpMs(); ms != 0 {
		t.Errorf("a new store was caught up at %d", ms)
	}
	if err := s.(*store).base.apply(&table{}, 5, 1000); err != nil {
		t.Fatal(err)
	}
	s = reopen(s)
	if err := s.Restore([]task.Record{{Key: []byte("k"), Value: []byte("v")}}, 9); err != nil {
		t.Fatal(err)
	}
	s = reopen(s)
	if at, ms := s.(*store).base.(*pebbleBase).changelog, s.CaughtUpMs(); at != 9 || ms != 1000 {
		t.Errorf("after a part of a restore: offset %d, caught up at %d; want 9 and 1000", at, ms)
	}
	if err := s.CaughtUp(); err != nil {
		t.Fatal(err)
	}
	s = reopen(s)
	if s.CaughtUpMs() <= 1000 {
		t.Errorf("caught up at %d after the end of the restore", s.CaughtUpMs())
	}
	if err := s.Wipe(); err != nil {
		t.Fatal(err)
	}
	s = reopen(s)
	if s.CaughtUpMs() != 0 {
		t.Errorf("an emptied store was caught up at %d", s.CaughtUpMs())
	}
	_ = s.Close()
}

// TestDamagedStoreIsReportedOrReadsAnEarlierCommit damages each file of a store in
// turn. Whatever is damaged, the store must not panic, and must not show rows that
// do not belong to its offset.
func TestDamagedStoreIsReportedOrReadsAnEarlierCommit(t *testing.T) {
	golden := t.TempDir()
	s, err := OpenPebble(golden, PebbleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(3) {
		for i := range 200 {
			s.Put(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value %d", n), n)
		}
		if err := s.Commit(n); err != nil {
			t.Fatal(err)
		}
		if n == 1 { // so that there are table files too
			if err := s.(*store).base.(*pebbleBase).db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Close()
	files, err := os.ReadDir(golden)
	if err != nil {
		t.Fatal(err)
	}
	reported := 0
	for _, file := range files {
		if strings.HasPrefix(file.Name(), "LOCK") {
			continue
		}
		for _, damage := range []string{"remove", "truncate", "flip", "zero"} {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
				t.Fatal(err)
			}
			damageFile(t, filepath.Join(dir, file.Name()), damage)
			err := checkDamaged(dir)
			if err == nil {
				continue
			}
			reported++
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "remove the directory") {
				t.Errorf("%s %s: %v; want ErrCorrupt with directory and remedy", damage, file.Name(), err)
			}
		}
	}
	if reported < 3 {
		t.Errorf("only %d damages were noticed: the test damages nothing", reported)
	}
}

func damageFile(t *testing.T, path, damage string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch damage {
	case "remove":
		err = os.Remove(path)
	case "truncate":
		err = os.Truncate(path, int64(len(data)/2))
	case "flip":
		for i := len(data) / 4; i < len(data); i += 1 + len(data)/7 {
			data[i] ^= 0x40
		}
		err = os.WriteFile(path, data, 0o600)
	case "zero":
		clear(data)
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkDamaged reads a store like the one of the test above.
func checkDamaged(dir string) error {
	s, err := OpenPebble(dir, PebbleOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	offset, known := s.Offset()
	rows := 0
	for e, err := range s.Range(nil, nil) {
		if err != nil {
			return err
		}
		rows++
		if e.TimestampMs != offset || string(e.Value) != fmt.Sprintf("value %d", offset) {
			return fmt.Errorf("row %s of commit %d under offset %d", e.Key, e.TimestampMs, offset)
		}
	}
	if known != (rows == 200) || !known && rows != 0 {
		return fmt.Errorf("%d rows under offset %d (%v)", rows, offset, known)
	}
	return nil
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	for _, o := range openers() {
		s, _ := o.open(t)
		s.Close()
		_, _, _, errGet := s.Get(nil)
		for _, err := range []error{errGet, s.Put(nil, nil, 0), s.Commit(0), s.Seal(), s.Wipe(), s.Restore(nil, 0)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", o.name, err)
			}
		}
		for _, err := range s.Range(nil, nil) {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s: Range: %v, want ErrClosed", o.name, err)
			}
		}
	}
}
