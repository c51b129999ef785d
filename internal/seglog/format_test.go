package seglog

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
)

// The golden bytes are those of docs/format/journal.md and checkpoint.md: a
// change here needs a new version byte.

var goldenHeader = groupHeader{File: 3, Seq: 5, DurableSeq: 4, Salt: 0x0102030405060708}

func goldenEntries() []entry {
	raw, _ := makeBatch(258, 2, 1000, 4)
	return []entry{
		{Kind: entryAppend, Log: 7, Offset: 258, Payload: raw},
		{Kind: entrySetStart, Log: 9, Offset: 16, Payload: []byte{}},
		{Kind: entryAborted, Log: 7, Offset: 259, Payload: appendAborted(nil, AbortedTxn{11, 250, 259, 250})},
	}
}

func encodeGroup(h groupHeader, entries []entry) []byte {
	b := beginGroup(nil)
	for _, e := range entries {
		b = appendEntry(b, e)
	}
	return finishGroup(b, h)
}

const goldenGroup = "484e424a 01 000000 0000000000000003 0000000000000005 0000000000000004 0102030405060708 0000009f 6c07af5a" +
	// append
	"01 000000 00000007 0000000000000102 00000041" +
	"0000000000000102 00000035 00000000 02 9edbeebe 0000 00000001 00000000000003e8 00000000000003e8" +
	"ffffffffffffffff ffff ffffffff 00000002 1b222930" +
	// set-start
	"02 000000 00000009 0000000000000010 00000000" +
	// aborted
	"03 000000 00000007 0000000000000103 00000022" +
	"0000 000000000000000b 00000000000000fa 0000000000000103 00000000000000fa"

func TestGoldenGroup(t *testing.T) {
	got := encodeGroup(goldenHeader, goldenEntries())
	if len(got) != pageBytes {
		t.Fatalf("%d bytes", len(got))
	}
	want := strings.ReplaceAll(goldenGroup, " ", "")
	if hex.EncodeToString(got[:len(want)/2]) != want || len(bytes.TrimLeft(got[len(want)/2:], "\x00")) > 0 {
		t.Fatalf("got %x", bytes.TrimRight(got, "\x00"))
	}
	h, rest, err := parseGroup(got)
	must(t, err)
	h.Length = 0
	if h != goldenHeader {
		t.Fatalf("%+v", h)
	}
	for _, want := range goldenEntries() {
		var e entry
		e, rest, err = nextEntry(rest)
		must(t, err)
		if e.Kind != want.Kind || e.Log != want.Log || e.Offset != want.Offset || !bytes.Equal(e.Payload, want.Payload) {
			t.Fatalf("got %+v, want %+v", e, want)
		}
	}
	if len(rest) > 0 {
		t.Fatalf("%d bytes left", len(rest))
	}
}

func TestEveryChangedByteOfAGroupIsSeen(t *testing.T) {
	b := encodeGroup(goldenHeader, goldenEntries())
	n := len(strings.ReplaceAll(goldenGroup, " ", "")) / 2
	for i := range n {
		b[i] ^= 1
		if _, _, err := parseGroup(b); err == nil {
			t.Errorf("byte %d may change unseen", i)
		}
		b[i] ^= 1
	}
	if _, _, err := parseGroup(b[:n-1]); err == nil {
		t.Error("a cut group was accepted")
	}
}

func TestWrongEntriesAreRefused(t *testing.T) {
	raw, _ := makeBatch(5, 1, 1, 8)
	aborted := appendAborted(nil, AbortedTxn{1, 2, 3, 2})
	for name, e := range map[string]entry{
		"unknown kind":            {Kind: 9},
		"batch of another offset": {Kind: entryAppend, Offset: 4, Payload: raw},
		"cut batch":               {Kind: entryAppend, Offset: 5, Payload: raw[:len(raw)-1]},
		"no batch":                {Kind: entryAppend, Offset: 5},
		"start with payload":      {Kind: entrySetStart, Offset: 5, Payload: raw},
		"negative start":          {Kind: entrySetStart, Offset: -1},
		"other last offset":       {Kind: entryAborted, Offset: 4, Payload: aborted},
		"cut transaction":         {Kind: entryAborted, Offset: 3, Payload: aborted[:33]},
	} {
		if _, _, err := nextEntry(appendEntry(nil, e)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for cut := range entryHeaderBytes {
		if _, _, err := nextEntry(make([]byte, cut)); err == nil {
			t.Errorf("entry header cut at %d was accepted", cut)
		}
	}
}

var goldenCheckpoint = checkpoint{
	Clean: true, Epoch: 6, Salt: 0x0102030405060708, File: 9, Pos: 8192, Seq: 77,
	Logs: []logRecord{
		{ID: 1, Start: 0, End: 0, Segment: -1, MaxTs: -1, LastTimeTs: -1},
		{ID: 4, IndexEntries: 2, TimeEntries: 3, TxnEntries: 1, Start: 10, End: 300, Segment: 200, Pos: 5000,
			MaxTs: 1700, MaxTsOffset: 280, LastTimeTs: 1650, SinceIndex: 812},
	},
}

const goldenCheckpointHex = "484e4243 01 01 0000 00000006 00000002 0102030405060708 0000000000000009 0000000000002000 000000000000004d" +
	"00000001 00000000 00000000 00000000 0000000000000000 0000000000000000 ffffffffffffffff 0000000000000000" +
	"ffffffffffffffff 0000000000000000 ffffffffffffffff 00000000 00000000" +
	"00000004 00000002 00000003 00000001 000000000000000a 000000000000012c 00000000000000c8 0000000000001388" +
	"00000000000006a4 0000000000000118 0000000000000672 0000032c 00000000" +
	"2ad506cd"

func TestGoldenCheckpoint(t *testing.T) {
	got := goldenCheckpoint.marshal()
	if hex.EncodeToString(got) != strings.ReplaceAll(goldenCheckpointHex, " ", "") {
		t.Fatalf("got %x", got)
	}
	cp, err := parseCheckpoint(got)
	must(t, err)
	if !bytes.Equal(cp.marshal(), got) || !slices.Equal(cp.Logs, goldenCheckpoint.Logs) {
		t.Fatalf("%+v", cp)
	}
	for i := range got {
		got[i] ^= 1
		if _, err := parseCheckpoint(got); err == nil {
			t.Errorf("byte %d may change unseen", i)
		}
		got[i] ^= 1
		if _, err := parseCheckpoint(got[:i]); err == nil {
			t.Errorf("cut at %d was accepted", i)
		}
	}
}

func FuzzGroup(f *testing.F) {
	f.Add(encodeGroup(goldenHeader, goldenEntries()))
	f.Add(encodeGroup(groupHeader{}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, err := parseGroup(b)
		if err != nil {
			return
		}
		var entries []entry
		for len(rest) > 0 {
			var e entry
			if e, rest, err = nextEntry(rest); err != nil {
				return
			}
			entries = append(entries, e)
		}
		want := b[:groupHeaderBytes+int(h.Length)]
		got := encodeGroup(h, entries)[:len(want)]
		if !bytes.Equal(got, want) {
			t.Fatalf("%x was read and written as %x", want, got)
		}
	})
}

func FuzzEntry(f *testing.F) {
	for _, e := range goldenEntries() {
		f.Add(appendEntry(nil, e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, rest, err := nextEntry(b)
		if err != nil {
			return
		}
		again, left, err := nextEntry(appendEntry(nil, e))
		if err != nil || len(left) > 0 || again.Kind != e.Kind || again.Offset != e.Offset ||
			!bytes.Equal(again.Payload, e.Payload) || len(rest)+len(e.Payload)+entryHeaderBytes != len(b) {
			t.Fatalf("%+v, %v", e, err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	f.Add(goldenCheckpoint.marshal())
	f.Add((&checkpoint{}).marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		cp, err := parseCheckpoint(b)
		if err == nil && !bytes.Equal(cp.marshal(), b) {
			t.Fatalf("%x was read and written as %x", b, cp.marshal())
		}
	})
}

func FuzzTxnIndexEntry(f *testing.F) {
	f.Add(appendAborted(nil, AbortedTxn{1, 2, 3, math.MaxInt64}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAborted(b)
		if err == nil && !bytes.Equal(appendAborted(nil, a), b[:txnEntryBytes]) {
			t.Fatalf("%x was read as %+v", b, a)
		}
	})
}

// FuzzOpen opens a directory whose journal holds arbitrary bytes behind a
// valid start: it may refuse, never panic, and what it accepts works.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, int64(pageBytes))
	f.Add(encodeGroup(goldenHeader, goldenEntries()), int64(0))
	f.Add([]byte{1, 2, 3}, int64(groupHeaderBytes))
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		if at < 0 || at > 8*pageBytes || len(b) > 4*pageBytes {
			return
		}
		mem := crashed(t, 2)
		file, err := mem.OpenFile(journal1, 2)
		must(t, err)
		_, err = file.WriteAt(b, at)
		must(t, err)
		s, err := Open(small(mem), specs)
		if err != nil {
			return
		}
		if end := s.Log(1).End(); end > 2 {
			t.Fatalf("recovered to %d", end)
		}
		wait(t, s, add(t, s.Log(1), 1, 1, 20))
		must(t, s.Close())
		must(t, mustOpen(t, Options{FS: mem, Dir: testDir}, specs...).Close())
	})
}
