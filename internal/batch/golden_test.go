package batch

import (
	"bytes"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

// golden returns what Kafka wrote, by name.
func golden(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/kafka-4.3.1.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		if name, digits, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			if cases[name], err = hex.DecodeString(digits); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	return cases
}

func mustGolden(t testing.TB, name string) []byte {
	t.Helper()
	b, ok := golden(t)[name]
	if !ok {
		t.Fatalf("no golden bytes named %q", name)
	}
	return b
}

const kafkaBaseMs = 1_700_000_000_000

// kafkaRecords are what the golden batches hold.
var kafkaRecords = []struct {
	timestampMs int64
	key, value  []byte
	headers     []RecordHeader
}{
	{kafkaBaseMs, []byte("key"), []byte("value"), nil},
	{kafkaBaseMs - 1000, nil, []byte("a longer value, a longer value, a longer value, a longer value"), nil},
	{kafkaBaseMs + 500, []byte{}, nil, []RecordHeader{{"h1", []byte("v1")}, {"h2", nil}}},
}

func TestMarkerIsByteForByteKafkas(t *testing.T) {
	commit := AppendMarker(nil, 4711, 7, ControlCommit, 42, 1234567890123)
	if want := mustGolden(t, "marker-commit"); !bytes.Equal(commit, want) {
		t.Errorf("commit marker\n got %x\nwant %x", commit, want)
	}
	abort := AppendMarker([]byte("prefix"), 1, 0, ControlAbort, -1, 0)[len("prefix"):]
	if want := mustGolden(t, "marker-abort"); !bytes.Equal(abort, want) {
		t.Errorf("abort marker\n got %x\nwant %x", abort, want)
	}
	kind, epoch, err := ParseMarker(commit)
	if kind != ControlCommit || epoch != 42 || err != nil {
		t.Errorf("commit marker read as %v, epoch %d, %v", kind, epoch, err)
	}
	kind, epoch, err = ParseMarker(abort)
	if kind != ControlAbort || epoch != -1 || err != nil {
		t.Errorf("abort marker read as %v, epoch %d, %v", kind, epoch, err)
	}
}

func TestBuilderIsByteForByteKafkas(t *testing.T) {
	var b Builder
	b.Reset(BuilderOptions{
		Attributes:      AttrTransactional,
		ProducerID:      4711,
		Epoch:           7,
		BaseSequence:    2147483646,
		BaseTimestampMs: kafkaBaseMs,
	})
	size := b.Size()
	for _, r := range kafkaRecords {
		size += b.RecordSize(r.timestampMs, r.key, r.value, r.headers)
		b.Append(r.timestampMs, r.key, r.value, r.headers)
		if b.Size() != size {
			t.Fatalf("size %d after a record, foretold %d", b.Size(), size)
		}
	}
	if got, want := b.Build(nil), mustGolden(t, "batch-none"); !bytes.Equal(got, want) {
		t.Errorf("batch\n got %x\nwant %x", got, want)
	}

	b.Reset(PlainBatch(5))
	b.Append(5, nil, nil, nil)
	got := b.Build(nil)
	want := mustGolden(t, "batch-plain")
	if !bytes.Equal(got, want) {
		t.Errorf("plain batch\n got %x\nwant %x", got, want)
	}
}

func TestKafkasBatchesAreReadInEveryCodec(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		raw := mustGolden(t, "batch-"+codec.String())
		h, whole, rest, err := Split(raw)
		if err != nil || len(whole) != len(raw) || len(rest) != 0 || !CheckCRC(whole) {
			t.Fatalf("%v: split into %d and %d bytes, CRC %v, %v", codec, len(whole), len(rest), CheckCRC(whole), err)
		}
		if h.Codec() != codec || !h.IsTransactional() || h.IsControl() || !h.HasProducer() || h.Count != 3 {
			t.Errorf("%v: header %+v", codec, h)
		}
		if h.LastSequence() != 0 {
			t.Errorf("%v: last sequence %d, want the wrap to 0", codec, h.LastSequence())
		}
		i := 0
		for r, err := range Records(raw) {
			if err != nil {
				t.Fatalf("%v: record %d: %v", codec, i, err)
			}
			want := kafkaRecords[i]
			if h.TimestampMs(&r) != want.timestampMs || !same(r.Key, want.key) || !same(r.Value, want.value) ||
				!reflect.DeepEqual(r.Headers, want.headers) || int(r.OffsetDelta) != i {
				t.Errorf("%v: record %d is %+v", codec, i, r)
			}
			i++
		}
		if i != 3 {
			t.Errorf("%v: %d records", codec, i)
		}
		if _, invalid := Validate(bytes.Clone(raw), lenient()); invalid != nil {
			t.Errorf("%v: %v", codec, invalid)
		}
	}
}

// same also tells null from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestInternalRecordsAreByteForByteKafkas(t *testing.T) {
	name := func(s string) *string { return &s }
	ongoing := TxnState{
		ProducerID: 4711, Epoch: 7, TimeoutMs: 60000, Status: TxnOngoing,
		Partitions:   []TopicPartition{{"bb", 1}, {"a", 2}, {"a", 0}, {"a", 2}},
		LastUpdateMs: kafkaBaseMs, StartMs: kafkaBaseMs - 1000,
		PreviousProducerID: 4000, NextProducerID: 5000, ClientTransactionVersion: 2, NextEpoch: -1, LastEpoch: -1,
	}
	resting := TxnState{ProducerID: 1, TimeoutMs: 1, LastUpdateMs: 2, StartMs: -1,
		PreviousProducerID: -1, NextProducerID: -1, NextEpoch: -1, LastEpoch: -1}
	complete := resting
	complete.Status = TxnCompleteCommit
	group := GroupValue{
		ProtocolType: "consumer", Generation: 3, Protocol: name("range"), Leader: name("m1"), StateMs: kafkaBaseMs,
		Members: []GroupMember{{MemberID: "m1", InstanceID: name("i1"), ClientID: "c", ClientHost: "/127.0.0.1",
			RebalanceTimeoutMs: 300000, SessionTimeoutMs: 45000, Subscription: []byte{1, 2}, Assignment: []byte{3}}},
	}
	offset := OffsetValue{Offset: 99, LeaderEpoch: 5, Metadata: "meta", CommitMs: kafkaBaseMs, ExpireMs: -1}
	withTopic := offset
	withTopic.TopicID[7], withTopic.TopicID[15] = 1, 2
	expiring := offset
	expiring.ExpireMs = kafkaBaseMs + 1000

	for _, c := range []struct {
		name string
		got  []byte
	}{
		{"txn-key", TxnKey("my-id")},
		{"txn-value-v0-ongoing", MarshalTxnValue(ongoing, 0)},
		{"txn-value-v1-ongoing", MarshalTxnValue(ongoing, 1)},
		{"txn-value-v1-empty", MarshalTxnValue(resting, 1)},
		{"txn-value-v1-complete", MarshalTxnValue(complete, 1)},
		{"offset-key", MarshalOffsetKey(OffsetKey{"g", "topic", 3})},
		{"offset-value-v4", MarshalOffsetValue(offset)},
		{"offset-value-v4-topicid", MarshalOffsetValue(withTopic)},
		{"offset-value-v1", MarshalOffsetValue(expiring)},
		{"group-key", MarshalGroupKey("g")},
		{"group-value-v3", MarshalGroupValue(group)},
		{"group-value-v3-empty", MarshalGroupValue(GroupValue{ProtocolType: "consumer", Generation: 4, StateMs: 7})},
	} {
		if want := mustGolden(t, c.name); !bytes.Equal(c.got, want) {
			t.Errorf("%s\n got %x\nwant %x", c.name, c.got, want)
		}
	}
}
