package seglog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

const testDir = "/data"

// makeBatch returns a batch whose record bytes are filler: the store does not
// look into them.
func makeBatch(base int64, count int, maxTs int64, payload int) ([]byte, batch.Header) {
	be := binary.BigEndian
	b := make([]byte, batch.HeaderSize+payload)
	be.PutUint64(b, uint64(base))
	be.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	be.PutUint32(b[23:], uint32(count-1))
	be.PutUint64(b[27:], uint64(maxTs))
	be.PutUint64(b[35:], uint64(maxTs))
	be.PutUint64(b[43:], ^uint64(0))
	be.PutUint16(b[51:], 0xffff)
	be.PutUint32(b[53:], 0xffffffff)
	be.PutUint32(b[57:], uint32(count))
	for i := range payload {
		b[batch.HeaderSize+i] = byte(int64(i)*7 + base*13 + 1)
	}
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b, batch.Header{BaseOffset: batch.Offset(base), Length: int32(len(b) - 12), Magic: 2,
		LastOffsetDelta: int32(count - 1), BaseTimestampMs: maxTs, MaxTimestampMs: maxTs, Count: int32(count)}
}

// small are options with which a few kilobytes pass every boundary.
func small(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: testDir, SegmentBytes: 2000, IndexIntervalBytes: 300,
		JournalFileBytes: 5 * pageBytes, PreallocateBytes: 2 * pageBytes, IndexFlushEntries: 3, OpenFiles: 2}
}

var specs = []LogSpec{
	{ID: 1, Topic: "a", Partition: 0},
	{ID: 2, Topic: "a", Partition: 1},
	{ID: 7, Topic: "__transaction_state", Partition: 11, SegmentBytes: 900},
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, opts Options, logs ...LogSpec) *Store {
	t.Helper()
	s, err := Open(opts, logs)
	must(t, err)
	return s
}

// add appends a batch of n records at the log's end.
func add(t testing.TB, l *Log, n int, maxTs int64, payload int) LSN {
	t.Helper()
	raw, h := makeBatch(int64(l.End()), n, maxTs, payload)
	lsn, _, err := l.Append(raw, h)
	must(t, err)
	return lsn
}

func wait(t testing.TB, s *Store, lsn LSN) {
	t.Helper()
	must(t, s.Wait(context.Background(), lsn))
}

// contents returns all batches of a log.
func contents(l *Log) ([][]byte, error) {
	var out [][]byte
	for b, err := range l.Batches(0) {
		if err != nil {
			return nil, err
		}
		out = append(out, bytes.Clone(b))
	}
	return out, nil
}

func TestWhatWasAppendedIsReadAgain(t *testing.T) {
	for _, mode := range []Mode{ModeSync, ModeInterval, ModeNone} {
		t.Run(mode.String(), func(t *testing.T) {
			opts := small(vfs.NewMem())
			opts.Mode = mode
			s := mustOpen(t, opts, specs...)
			var want [][]byte
			l := s.Log(1)
			var last LSN
			for i := range 60 {
				raw, h := makeBatch(int64(l.End()), 1+i%3, int64(1000+i), 50+i*3)
				lsn, _, err := l.Append(raw, h)
				must(t, err)
				want = append(want, raw)
				last = lsn
			}
			wait(t, s, last)
			if l.DurableEnd() != l.End() || s.DurableLSN() != last {
				t.Fatalf("durable end %d of %d, LSN %d of %d", l.DurableEnd(), l.End(), s.DurableLSN(), last)
			}
			check := func(l *Log) {
				t.Helper()
				got, err := contents(l)
				must(t, err)
				if !slices.EqualFunc(got, want, bytes.Equal) {
					t.Fatalf("%d batches, want %d", len(got), len(want))
				}
			}
			check(l)
			must(t, s.Close())
			s = mustOpen(t, opts, specs...)
			if !s.Recovery().Clean || s.Epoch() != 1 {
				t.Fatalf("recovery %+v, epoch %d", s.Recovery(), s.Epoch())
			}
			check(s.Log(1))
			s.Crash()
			s = mustOpen(t, opts, specs...)
			check(s.Log(1))
			must(t, s.Close())
		})
	}
}

func TestReadStopsAtBounds(t *testing.T) {
	s := mustOpen(t, small(vfs.NewMem()), specs...)
	defer s.Close()
	l := s.Log(1)
	for range 20 {
		add(t, l, 5, 1, 100) // 161 bytes each; 12 to a segment
	}
	read := func(from, upTo batch.Offset, maxBytes int, atLeastOne bool) (bases []int64) {
		t.Helper()
		b, err := l.Read([]byte("x"), from, maxBytes, upTo, atLeastOne)
		must(t, err)
		for b = b[1:]; len(b) > 0; {
			h, err := parseHeader(b)
			must(t, err)
			bases = append(bases, h.base)
			b = b[h.size:]
		}
		return bases
	}
	for _, c := range []struct {
		from, upTo batch.Offset
		max        int
		one        bool
		want       string
	}{
		{0, 100, 400, false, "[0 5]"},
		{7, 100, 400, true, "[5 10]"},      // the batch that holds 7
		{7, 100, 10, false, "[]"},          // too large
		{7, 100, 10, true, "[5]"},          // but at least one
		{7, 100, 0, true, "[5]"},           //
		{7, 9, 1000, true, "[]"},           // its last offset is 9: not below upTo
		{7, 10, 1000, true, "[5]"},         //
		{50, 100, 100000, true, "[50 55]"}, // one segment only
		{60, 100, 161, true, "[60]"},       //
		{100, 100, 100, true, "[]"},        // the end
	} {
		if got := fmt.Sprint(read(c.from, c.upTo, c.max, c.one)); got != c.want {
			t.Errorf("read [%d,%d) max %d, at least one %v: %s, want %s", c.from, c.upTo, c.max, c.one, got, c.want)
		}
	}
	if _, err := l.Read(nil, 101, 1, 200, true); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("read past the end: %v", err)
	}
}

func TestABatchThatDoesNotFitIsRefusedAndHarmless(t *testing.T) {
	s := mustOpen(t, small(vfs.NewMem()), specs...)
	defer s.Close()
	raw, h := makeBatch(5, 1, 1, 10)
	if _, _, err := s.Log(1).Append(raw, h); !errors.Is(err, ErrBadBatch) {
		t.Fatalf("wrong base offset: %v", err)
	}
	raw, h = makeBatch(0, 1, 1, 10)
	if _, _, err := s.Log(1).Append(raw[:len(raw)-1], h); !errors.Is(err, ErrBadBatch) {
		t.Fatalf("cut batch: %v", err)
	}
	wait(t, s, add(t, s.Log(1), 1, 1, 10))
}

func TestASecondOpenerIsTurnedAway(t *testing.T) {
	for name, opts := range map[string]Options{"mem": small(vfs.NewMem()), "os": {Dir: filepath.Join(t.TempDir(), "x")}} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, opts, specs...)
			if _, err := Open(opts, specs); !errors.Is(err, vfs.ErrLocked) {
				t.Fatalf("second open: %v", err)
			}
			must(t, s.Close())
			must(t, mustOpen(t, opts, specs...).Close())
		})
	}
}
