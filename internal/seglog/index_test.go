package seglog

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// The files of a small log, byte by byte, as Kafka's LogSegment would write
// them: kafka-dump-log reads them.
func TestSegmentFilesAreKafkas(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), LogSpec{ID: 1, Topic: "t", Partition: 3, SegmentBytes: 1000})
	l := s.Log(1)
	var all []byte
	for i, ts := range []int64{100, 90, 120, 110, 130, 140} { // 161 bytes each: six fill a segment
		raw, h := makeBatch(int64(2*i), 2, ts, 100)
		_, rolled, err := l.Append(raw, h)
		must(t, err)
		if rolled {
			t.Fatalf("rolled at batch %d", i)
		}
		all = append(all, raw...)
	}
	must(t, l.AppendAborted(AbortedTxn{ProducerID: 7, FirstOffset: 2, LastOffset: 11, LastStableOffset: 2}))
	raw, h := makeBatch(12, 2, 150, 100)
	_, rolled, err := l.Append(raw, h)
	must(t, err)
	if !rolled {
		t.Fatal("not rolled")
	}
	must(t, l.WriteProducerSnapshot(12, []byte("snapshot")))
	must(t, s.Close())
	dir := testDir + "/t-3/"
	for name, want := range map[string]string{
		// An entry for a batch once more than 300 bytes lie before it since the last one.
		"00000000000000000000.index": "00000005" + "00000142" + "00000009" + "00000284",
		// Largest timestamp so far with each; the last one when the segment was sealed.
		"00000000000000000000.timeindex": "0000000000000078" + "00000005" + "0000000000000082" + "00000009" +
			"000000000000008c" + "0000000b",
		"00000000000000000000.txnindex":  "0000" + "0000000000000007" + "0000000000000002" + "000000000000000b" + "0000000000000002",
		"00000000000000000000.log":       hex.EncodeToString(all),
		"00000000000000000012.log":       hex.EncodeToString(raw),
		"00000000000000000012.index":     "",
		"00000000000000000012.timeindex": "",
		"00000000000000000012.snapshot":  hex.EncodeToString([]byte("snapshot")),
	} {
		data, err := vfs.ReadFile(mem, dir+name)
		must(t, err)
		if got := hex.EncodeToString(data); got != want {
			t.Errorf("%s\n got %s\nwant %s", name, got, want)
		}
	}
	names, err := mem.List(dir)
	must(t, err)
	if len(names) != 8 {
		t.Errorf("files %q", names)
	}
}

// Leaves a store for Kafka's own tools to read: HANBEON_KEEP_LOGS=dir.
func TestKeepLogsForKafkasTools(t *testing.T) {
	dir := os.Getenv("HANBEON_KEEP_LOGS")
	if dir == "" {
		t.Skip("HANBEON_KEEP_LOGS is not set")
	}
	opts := Options{Dir: dir, SegmentBytes: 20000}
	s := mustOpen(t, opts, specs...)
	l := s.Log(1)
	for i := range 1000 {
		build(t, l, int64(1000+i%70), int64(2000+i), int64(1500))
		if i%20 == 19 {
			must(t, l.AppendAborted(AbortedTxn{9, l.End() - 3, l.End() - 1, l.End() - 3}))
		}
		if i == 700 {
			wait(t, s, s.AppendedLSN())
			s.Crash()
			s = mustOpen(t, opts, specs...)
			l = s.Log(1)
		}
	}
	must(t, s.Close())
}

func TestLostIndexesAreRebuilt(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), specs...)
	l := s.Log(1)
	for i := range 55 {
		add(t, l, 1, int64(1000+i), 100)
	}
	must(t, s.Close())
	before := dump(t, mem, testDir+"/a-0")
	for name, data := range before {
		if strings.HasSuffix(name, "index") {
			f, err := mem.OpenFile(name, 2)
			must(t, err)
			must(t, f.Truncate(int64(max(0, len(data)-5))))
			if strings.Contains(name, "0012.") {
				must(t, mem.Remove(name))
			}
		}
	}
	s = mustOpen(t, small(mem), specs...)
	l = s.Log(1)
	data, err := contents(l)
	must(t, err)
	if len(data) != 55 {
		t.Fatalf("%d batches", len(data))
	}
	must(t, s.Close())
	for name, data := range dump(t, mem, testDir+"/a-0") {
		if before[name] != data {
			t.Errorf("%s was rebuilt as %x, was %x", name, data, before[name])
		}
	}
}

// build appends a real batch with records at the given times.
func build(t *testing.T, l *Log, times ...int64) {
	t.Helper()
	var b batch.Builder
	b.Reset(batch.PlainBatch(times[0]))
	for _, ts := range times {
		b.Append(ts, nil, []byte("some value of a record"), nil)
	}
	raw := b.Build(nil)
	batch.SetBaseOffset(raw, l.End())
	h, err := batch.ParseHeader(raw)
	must(t, err)
	_, _, err = l.Append(raw, h)
	must(t, err)
}

func TestTimestampsAreFoundToTheRecord(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewMem()
		s := mustOpen(t, small(mem), specs...)
		l := s.Log(1)
		var times []int64
		for len(times) < 150 {
			batchTimes := make([]int64, 1+rng.IntN(5))
			for i := range batchTimes {
				batchTimes[i] = 1000 + int64(len(times)) + rng.Int64N(40)
			}
			build(t, l, batchTimes...)
			times = append(times, batchTimes...)
		}
		start := rng.IntN(60)
		lsn, err := l.SetStart(batch.Offset(start))
		must(t, err)
		wait(t, s, lsn)
		check := func(l *Log) {
			for range 60 {
				ms, upTo := 990+rng.Int64N(220), start+rng.IntN(len(times)-start+1)
				want := slices.IndexFunc(times[start:upTo], func(ts int64) bool { return ts >= ms })
				off, ts, ok, err := l.OffsetForTimestamp(ms, batch.Offset(upTo))
				must(t, err)
				if ok != (want >= 0) || ok && (int(off) != start+want || ts != times[off]) {
					t.Fatalf("seed %d: first at or after %d in [%d,%d): %d at %d, %v; want %d", seed, ms, start, upTo, off, ts, ok, start+want)
				}
			}
			off, ms, err := l.MaxTimestamp()
			must(t, err)
			if want := slices.Max(times[start:]); ms != want || times[off] != want {
				t.Fatalf("seed %d: largest %d at %d, want %d", seed, ms, off, want)
			}
		}
		check(l)
		must(t, s.Close())
		s = mustOpen(t, small(mem), specs...)
		check(s.Log(1))
		off, ms, err := s.Log(2).MaxTimestamp()
		if must(t, err); off != -1 || ms != -1 {
			t.Fatalf("empty log: %d, %d", off, ms)
		}
		must(t, s.Close())
	}
}

func TestAbortedInFindsWhatAReaderMustKnow(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), specs...)
	l := s.Log(1)
	var all []AbortedTxn
	for i := range 60 {
		add(t, l, 1, int64(i), 150)
		if i%4 == 3 {
			first := batch.Offset(i - i%11)
			all = append(all, AbortedTxn{ProducerID: batch.ProducerID(i), FirstOffset: first, LastOffset: batch.Offset(i), LastStableOffset: first})
			must(t, l.AppendAborted(all[len(all)-1]))
			must(t, l.AppendAborted(all[len(all)-1])) // as on replay: changes nothing
		}
	}
	lsn := s.AppendedLSN()
	must(t, l.AppendAborted(all[0]))
	if s.AppendedLSN() != lsn {
		t.Fatal("an entry that is there was journalled again")
	}
	check := func(l *Log) {
		t.Helper()
		for from := batch.Offset(0); from < 60; from++ {
			for upTo := from; upTo <= 60; upTo += 7 {
				got, err := l.AbortedIn(from, upTo)
				must(t, err)
				for _, a := range all {
					if needed := a.LastOffset >= from && a.FirstOffset < upTo; needed != slices.Contains(got, a) {
						t.Fatalf("[%d,%d): %+v needed: %v", from, upTo, a, needed)
					}
				}
			}
		}
	}
	check(l)
	must(t, s.Checkpoint())
	check(l)
	s.Crash()
	s = mustOpen(t, small(mem), specs...)
	check(s.Log(1))
	if err := s.Log(1).AppendAborted(AbortedTxn{1, 3, 60, 3}); err == nil {
		t.Error("a marker past the end was accepted")
	}
	must(t, s.Close())
}

func TestOnlyTheNewestSnapshotsStayAndNoneOfALostFuture(t *testing.T) {
	mem := vfs.NewMem()
	asked := make(chan LogID, 100)
	opts := small(mem)
	opts.Snapshot = func(id LogID) { asked <- id }
	s := mustOpen(t, opts, specs...)
	l := s.Log(1)
	for range 5 {
		wait(t, s, add(t, l, 1, 1, 10))
		must(t, l.WriteProducerSnapshot(l.End(), fmt.Append(nil, "at ", l.End())))
	}
	if got := l.ProducerSnapshots(); !slices.Equal(got, []batch.Offset{5, 4, 3, 2, 1}) {
		t.Fatalf("snapshots %d", got)
	}
	must(t, s.Checkpoint())
	if id := <-asked; id != 1 {
		t.Fatalf("asked log %d", id)
	}
	if got := l.ProducerSnapshots(); !slices.Equal(got, []batch.Offset{5, 4}) {
		t.Fatalf("snapshots %d", got)
	}
	data, err := l.ReadProducerSnapshot(4)
	if must(t, err); !bytes.Equal(data, []byte("at 4")) {
		t.Fatalf("%q", data)
	}
	if err := l.WriteProducerSnapshot(6, nil); err == nil {
		t.Fatal("a snapshot of the future was accepted")
	}
	s.Crash()
	must(t, vfs.WriteFileAtomic(mem, testDir+"/a-0/00000000000000000006.snapshot", []byte("lost")))
	s = mustOpen(t, small(mem), specs...)
	if got := s.Log(1).ProducerSnapshots(); !slices.Equal(got, []batch.Offset{5, 4}) {
		t.Fatalf("snapshots after recovery %d", got)
	}
	must(t, s.Close())
}

func TestSetStartDeletesWholeSegments(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), specs...)
	l := s.Log(1)
	for range 60 { // 12 to a segment
		add(t, l, 1, 1, 100)
	}
	lsn, err := l.SetStart(30)
	must(t, err)
	wait(t, s, lsn)
	must(t, s.Checkpoint())
	segs, err := l.Segments()
	must(t, err)
	if segs[0].Base != 24 || l.Start() != 30 || segs[0].Next != 36 || segs[0].Bytes != 12*161 || l.Size() != 36*161 {
		t.Fatalf("start %d, segments %+v", l.Start(), segs)
	}
	names, err := mem.List(testDir + "/a-0")
	must(t, err)
	if strings.HasPrefix(names[0], "00000000000000000012") {
		t.Fatalf("files %q", names)
	}
	if _, err := l.SetStart(61); err == nil {
		t.Fatal("a start past the end was accepted")
	}
	if got, err := l.SetStart(7); err != nil || got != lsn || l.Start() != 30 {
		t.Fatalf("lower start: %d, %v", got, err)
	}
	if got, err := l.AbortedIn(0, math.MaxInt64); err != nil || got != nil {
		t.Fatalf("%v, %v", got, err)
	}
	must(t, s.Close())
	s = mustOpen(t, small(mem), specs...)
	if s.Log(1).Start() != 30 {
		t.Fatalf("start after reopen %d", s.Log(1).Start())
	}
	must(t, s.Close())
}

func TestRollByTheOwnerSurvivesOrIsUndone(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, small(mem), specs...)
	l := s.Log(1)
	roll := func(want bool) {
		t.Helper()
		if got, err := l.Roll(); err != nil || got != want {
			t.Fatalf("rolled %v, %v", got, err)
		}
	}
	roll(false)
	add(t, l, 1, 1, 100)
	roll(true)
	roll(false)
	must(t, s.Checkpoint())
	wait(t, s, add(t, l, 1, 1, 100))
	roll(true)
	must(t, s.Close()) // the last segment is empty
	for i := range 3 {
		s = mustOpen(t, small(mem), specs...)
		l = s.Log(1)
		data, err := contents(l)
		if must(t, err); int(l.End()) != len(data) || len(data) < 2 {
			t.Fatalf("%d batches up to %d", len(data), l.End())
		}
		wait(t, s, add(t, l, 1, 1, 100))
		if i == 1 {
			s.Crash()
		} else {
			must(t, s.Close())
		}
	}
}
