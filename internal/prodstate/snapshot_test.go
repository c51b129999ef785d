package prodstate

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// kafkaSnapshot was written by ProducerStateManager.takeSnapshot of Apache Kafka
// 4.3.1: producer 1 with a plain batch and one of an open transaction, producer
// 2 with nothing but a marker.
const kafkaSnapshot = "0001756168af00000002" +
	"00000000000000010002" + "00000005000000000000000f00000000" + "00000000000005dc" + "ffffffff" + "000000000000000f" +
	"00000000000000020003" + "ffffffffffffffffffffffff00000000" + "00000000000006a4" + "00000007" + "ffffffffffffffff"

func decodeHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKafkasSnapshotIsReadAndWrittenTheSame(t *testing.T) {
	kafkas := decodeHex(t, kafkaSnapshot)
	m, err := Restore(kafkas, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []ActiveProducer{
		{ProducerID: 1, Epoch: 2, LastSequence: 5, LastTimestampMs: 1500, CoordinatorEpoch: -1, TxnStartOffset: 15, LastDataOffset: 15},
		{ProducerID: 2, Epoch: 3, LastSequence: -1, LastTimestampMs: 1700, CoordinatorEpoch: 7, TxnStartOffset: -1, LastDataOffset: -1},
	}
	got := m.Describe()
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("restored %+v", got)
	}
	if lso := m.LastStable(17); lso != 15 {
		t.Errorf("last stable offset %d", lso)
	}
	// With one batch for each producer there is nothing that Kafka would not write.
	if again := m.Snapshot(); !bytes.Equal(again, kafkas) {
		t.Errorf("written as %x\nwant       %x", again, kafkas)
	}
}

// Kafka's reader takes the last entry of a producer: that must be the one that
// Kafka itself would have written, and only it may carry the transaction.
func TestTheLastEntryOfAProducerIsKafkas(t *testing.T) {
	m := New(Options{})
	data := func(base batch.Offset, sequence int32, attributes batch.Attributes, ms int64) {
		m.Apply(base, batch.Header{ProducerID: 1, Epoch: 2, BaseSequence: sequence, Count: 1,
			Attributes: attributes, MaxTimestampMs: ms}, nil)
	}
	data(10, 0, 0, 100)
	data(11, 1, batch.AttrTransactional, 200)
	data(12, 2, batch.AttrTransactional, 300)
	entries := m.Snapshot()[snapshotHeaderSize:]
	if len(entries) != 3*snapshotEntrySize {
		t.Fatalf("%d bytes of entries", len(entries))
	}
	for i, want := range []struct {
		offset, txn batch.Offset
		ms          int64
	}{{10, -1, 100}, {11, -1, 200}, {12, 11, 300}} {
		e := entries[i*snapshotEntrySize:]
		offset, ms := batch.Offset(binary.BigEndian.Uint64(e[14:])), int64(binary.BigEndian.Uint64(e[26:]))
		txn := batch.Offset(binary.BigEndian.Uint64(e[38:]))
		if offset != want.offset || ms != want.ms || txn != want.txn {
			t.Errorf("entry %d: offset %d at %d ms, transaction %d; want %+v", i, offset, ms, txn, want)
		}
	}

	marker := batch.Header{ProducerID: 1, Epoch: 2, Attributes: batch.AttrControl | batch.AttrTransactional, MaxTimestampMs: 400}
	m.Apply(13, marker, &Marker{Type: batch.ControlCommit, CoordinatorEpoch: 6})
	entries = m.Snapshot()[snapshotHeaderSize:]
	last := entries[len(entries)-snapshotEntrySize:]
	want := "00000000000000010002" + "00000002000000000000000c00000000" + "0000000000000190" + "00000006" + "ffffffffffffffff"
	if got := hex.EncodeToString(last); len(entries) != 4*snapshotEntrySize || got != want {
		t.Errorf("last of %d entries\n got %s\nwant %s", len(entries)/snapshotEntrySize, got, want)
	}
}

// testLoadFromEmptySnapshotFile, -TruncatedSnapshotFile, -CorruptSnapshotFile.
func TestBadSnapshotsAreCorrupt(t *testing.T) {
	good := decodeHex(t, kafkaSnapshot)
	reseal := func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[snapshotPosCRC:], batch.CRC(b[snapshotPosBody:]))
		return b
	}
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	cases := map[string][]byte{
		"empty":                          nil,
		"version 0":                      change(1, 0),
		"version 2":                      change(1, 2),
		"a flipped bit":                  change(len(good)-1, 0),
		"a wrong count":                  reseal(change(9, 3)),
		"a huge count":                   reseal(change(6, 0xff)),
		"bytes left over":                reseal(append(bytes.Clone(good), 0)),
		"a negative producer":            reseal(change(10, 0xff)),
		"a negative delta":               reseal(change(10+22, 0xff)),
		"a delta below zero":             reseal(change(10+25, 0x7f)),
		"a negative sequence":            reseal(change(10+10, 0x80)),
		"zeros from a preallocated file": make([]byte, len(good)),
	}
	for cut := 1; cut < len(good); cut++ {
		if _, err := Restore(good[:cut], Options{}); !errors.Is(err, batch.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
	for name, b := range cases {
		if _, err := Restore(b, Options{}); !errors.Is(err, batch.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A state that was restored says and does the same as the one it came from, so
// the snapshot of a snapshot is the snapshot.
func FuzzRestore(f *testing.F) {
	f.Add(decodeHex(f, kafkaSnapshot))
	m := New(Options{})
	for i := range batch.Offset(7) {
		m.Apply(i, batch.Header{ProducerID: 5, Epoch: 1, BaseSequence: int32(i), Attributes: batch.AttrTransactional}, nil)
	}
	f.Add(m.Snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= snapshotHeaderSize {
			b = bytes.Clone(b)
			binary.BigEndian.PutUint32(b[snapshotPosCRC:], batch.CRC(b[snapshotPosBody:]))
		}
		m, err := Restore(b, Options{})
		if err != nil {
			if !errors.Is(err, batch.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		m.LastStable(100)
		m.OpenTransactions()
		first := m.Snapshot()
		again, err := Restore(first, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if second := again.Snapshot(); !bytes.Equal(first, second) {
			t.Fatalf("snapshot\n%x\ncame back as\n%x", first, second)
		}
	})
}
