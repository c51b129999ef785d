package txn

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// The bytes follow Kafka's TransactionLogKey and TransactionLogValue.
func TestRecordBytes(t *testing.T) {
	ongoing := metadata{producerID: 1000, previousID: 1000, nextID: -1, epoch: 3, lastEpoch: -1, timeoutMs: 60_000,
		state: Ongoing, partitions: tps("t-0", "t-2", "u-1"), startMs: 1, updateMs: 2, clientVersion: 2}
	empty := newMetadata(1000, 60_000, 2)
	empty.epoch, empty.clientVersion = 0, 0
	rotating := stateAt(PrepareCommit, 32767)
	rotating.nextID, rotating.lastEpoch, rotating.clientVersion = 9, 32766, 2
	complete := stateAt(CompleteCommit, 1)
	for _, c := range []struct {
		name string
		md   metadata
		want string
	}{
		{"Empty: partitions are null, no tags but those that differ from their default", empty,
			"0001" + "00000000000003e8" + "0000" + "0000ea60" + "00" + "00" +
				"0000000000000002" + "ffffffffffffffff" + "00"},
		{"Ongoing", ongoing,
			"0001" + "00000000000003e8" + "0003" + "0000ea60" + "01" +
				"03" + "0274" + "03" + "00000000" + "00000002" + "00" + "0275" + "02" + "00000001" + "00" +
				"0000000000000002" + "0000000000000001" +
				"02" + "0008" + "00000000000003e8" + "0202" + "0002"},
		{"PrepareCommit with rotation and the last epoch", rotating,
			"0001" + "0000000000000007" + "7fff" + "0000ea60" + "02" +
				"02" + "0274" + "03" + "00000000" + "00000001" + "00" +
				"00000000000003e8" + "00000000000001f4" +
				"04" + "0008" + "0000000000000007" + "0108" + "0000000000000009" + "0202" + "0002" + "904e02" + "7ffe"},
		{"CompleteCommit: partitions are an empty list, not null", complete,
			"0001" + "0000000000000007" + "0001" + "0000ea60" + "04" + "01" +
				"00000000000003e8" + "00000000000001f4" + "01" + "0008" + "0000000000000007"},
	} {
		if got := hex.EncodeToString(encodeValue(c.md)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	if got := hex.EncodeToString(encodeKey("ab")); got != "00000002"+"6162" {
		t.Errorf("key %s", got)
	}
}

func TestRecordsOfVersion0AreRead(t *testing.T) {
	v := kmsg.NewTxnMetadataValue()
	v.Version, v.ProducerID, v.ProducerEpoch, v.TimeoutMillis, v.State = 0, 5, 6, 7, 1
	v.StartTimestamp, v.LastUpdateTimestamp = 8, 9
	topic := kmsg.NewTxnMetadataValueTopic()
	topic.Topic, topic.Partitions = "t", []int32{2, 0, 2}
	v.Topics = append(v.Topics, topic)
	md, err := decodeValue(v.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := metadata{producerID: 5, epoch: 6, timeoutMs: 7, state: Ongoing, startMs: 8, updateMs: 9,
		previousID: -1, nextID: -1, lastEpoch: -1, partitions: tps("t-0", "t-2")}
	if !reflect.DeepEqual(md, want) {
		t.Errorf("got %+v, want %+v", md, want)
	}
}

// Kafka's own reader skips the tag of the last epoch; here a reader without it
// is kmsg, which puts what it does not know aside.
func TestOtherReadersReadTheRecords(t *testing.T) {
	md := stateAt(PrepareAbort, 4)
	md.lastEpoch = 3
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(encodeValue(md)); err != nil {
		t.Fatal(err)
	}
	if v.ProducerID != 7 || v.ProducerEpoch != 4 || v.State != kmsg.TransactionStatePrepareAbort || v.PreviousProducerID != 7 ||
		v.NextProducerID != -1 || v.NextProducerEpoch != -1 || len(v.Topics) != 1 || v.UnknownTags.Len() != 1 {
		t.Errorf("read %+v", v)
	}
}

func TestRecordsSurviveARoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		md := metadata{
			producerID:    batch.ProducerID(rapid.Int64Min(0).Draw(rt, "pid")),
			previousID:    batch.ProducerID(rapid.Int64Min(-1).Draw(rt, "previous")),
			nextID:        batch.ProducerID(rapid.Int64Min(-1).Draw(rt, "next")),
			epoch:         batch.Epoch(rapid.Int16Min(0).Draw(rt, "epoch")),
			lastEpoch:     batch.Epoch(rapid.Int16Min(-1).Draw(rt, "last")),
			timeoutMs:     rapid.Int32().Draw(rt, "timeout"),
			state:         rapid.SampledFrom(allStates).Draw(rt, "state"),
			startMs:       rapid.Int64().Draw(rt, "start"),
			updateMs:      rapid.Int64().Draw(rt, "update"),
			clientVersion: rapid.Int16().Draw(rt, "version"),
		}
		if !md.state.resting() {
			for range rapid.IntRange(0, 5).Draw(rt, "n") {
				md.partitions = append(md.partitions, batch.TopicPartition{
					Topic: rapid.StringN(1, 5, 20).Draw(rt, "topic"), Partition: rapid.Int32Min(0).Draw(rt, "partition")})
			}
			md.partitions = sortedUnique(md.partitions)
		}
		got, err := decodeValue(encodeValue(md))
		if err != nil || !reflect.DeepEqual(got, md) {
			rt.Fatalf("got %+v (%v), want %+v", got, err, md)
		}
	})
}

func TestBadRecordsAreNamed(t *testing.T) {
	key := encodeKey("a")
	value := func(change func(*metadata)) []byte {
		md := stateAt(Ongoing, 1)
		change(&md)
		return encodeValue(md)
	}
	good := value(func(*metadata) {})
	for _, c := range []struct {
		name string
		r    Record
		want error
	}{
		{"no key", Record{Value: good}, batch.ErrCorrupt},
		{"newer key", Record{Key: []byte{0, 1, 0, 1, 'a'}, Value: good}, batch.ErrUnknownVersion},
		{"short key", Record{Key: []byte{0, 0, 0, 9, 'a'}, Value: good}, batch.ErrCorrupt},
		{"key without id", Record{Key: []byte{0, 0, 0, 0}, Value: good}, batch.ErrCorrupt},
		{"empty value", Record{Key: key, Value: []byte{}}, batch.ErrCorrupt},
		{"newer value", Record{Key: key, Value: append([]byte{0, 2}, good[2:]...)}, batch.ErrUnknownVersion},
		{"negative version", Record{Key: key, Value: append([]byte{255, 255}, good[2:]...)}, batch.ErrUnknownVersion},
		{"short value", Record{Key: key, Value: good[:20]}, batch.ErrCorrupt},
		{"state Dead", Record{Key: key, Value: value(func(md *metadata) { md.state = Dead })}, batch.ErrCorrupt},
		{"state 99", Record{Key: key, Value: value(func(md *metadata) { md.state = 99 })}, batch.ErrCorrupt},
		{"no producer id", Record{Key: key, Value: value(func(md *metadata) { md.producerID = -1 })}, batch.ErrCorrupt},
		{"no epoch", Record{Key: key, Value: value(func(md *metadata) { md.epoch = -1 })}, batch.ErrCorrupt},
		{"negative partition", Record{Key: key, Value: value(func(md *metadata) { md.partitions = []batch.TopicPartition{{Topic: "t", Partition: -1}} })}, batch.ErrCorrupt},
	} {
		b := newBench(t)
		b.seed("a", stateAt(Empty, 5))
		before := fingerprint(b.m)
		err := b.m.Apply(77, c.r)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if fingerprint(b.m) != before {
			t.Errorf("%s: changed the state", c.name)
		}
	}
}

func TestRecordsRestoreTheState(t *testing.T) {
	b := newBench(t)
	for i, s := range allStates {
		b.seed(fmt.Sprint(s), stateAt(s, batch.Epoch(i)))
	}
	restored := New(b.cfg)
	for r := range b.m.Records() {
		if err := restored.Apply(0, r); err != nil {
			t.Fatal(err)
		}
	}
	if fingerprint(restored) != fingerprint(b.m) || restored.Len() != len(allStates) {
		t.Error("another state")
	}
	for range b.m.Records() {
		break // a consumer may stop
	}
}

func TestABrokenTransitionStopsTheShard(t *testing.T) {
	b := newBench(t)
	b.seed("a", stateAt(Ongoing, 5))
	b.m.entries["a"].md.startMs = -5 // nothing that a command leads to
	b.m.entries["a"].md.partitions = nil
	eff := b.m.Decide(0, EndTxn{Token: 1, TransactionalID: "a", ProducerID: 7, Epoch: 5, Version: 5})
	if eff.Fatal == nil || len(eff.Records)+len(eff.Replies)+len(eff.Markers) > 0 {
		t.Errorf("effects %+v", eff)
	}
	if eff := b.m.Decide(0, nil); eff.Fatal == nil {
		t.Error("a nil command passes")
	}
}

func TestExpiryComesInBoundedBatches(t *testing.T) {
	b := newBench(t)
	for i := range maxExpiredPerTick + 5 {
		b.seed(fmt.Sprintf("id-%04d", i), stateAt(Empty, 5))
	}
	b.nowMs += b.m.cfg.IDExpirationMs
	eff := b.m.Decide(b.nowMs, Tick{})
	if len(eff.Records) != maxExpiredPerTick || eff.DeadlineMs != b.nowMs {
		t.Fatalf("%d tombstones, next at %d, now %d", len(eff.Records), eff.DeadlineMs, b.nowMs)
	}
	for _, r := range eff.Records {
		b.apply(r)
	}
	if eff := b.do(Tick{}); len(eff.Records) != 5 || b.m.Len() != 0 || eff.DeadlineMs != 0 {
		t.Errorf("%d more, %d left, next at %d", len(eff.Records), b.m.Len(), eff.DeadlineMs)
	}
}

// FuzzApply feeds records to a machine and then commands: neither may panic, and
// what was taken must be written back as it was read.
func FuzzApply(f *testing.F) {
	for _, s := range allStates {
		f.Add(encodeKey("a"), encodeValue(stateAt(s, 5)))
	}
	rotating := stateAt(PrepareCommit, 32767)
	rotating.nextID, rotating.lastEpoch, rotating.clientVersion = 9, 32766, 2
	f.Add(encodeKey("a"), encodeValue(rotating))
	f.Add([]byte{0, 0, 0, 1, 'a'}, []byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := New(newBench(t).cfg)
		if err := m.Apply(0, Record{Key: key, Value: value}); err != nil {
			if !errors.Is(err, batch.ErrCorrupt) && !errors.Is(err, batch.ErrUnknownVersion) {
				t.Fatalf("untyped error %v", err)
			}
			if m.Len() != 0 {
				t.Fatal("a bad record was taken")
			}
			return
		}
		for id, e := range m.entries {
			again, err := decodeValue(encodeValue(e.md))
			if err != nil || !reflect.DeepEqual(again, e.md) {
				t.Fatalf("%+v became %+v (%v)", e.md, again, err)
			}
			m.Decide(1, Resume{})
			for v := int16(4); v <= 5; v++ {
				m.Decide(2, EndTxn{TransactionalID: id, ProducerID: e.md.producerID, Epoch: e.md.epoch, Version: v})
			}
			m.Decide(3, Init{TransactionalID: id, TimeoutMs: 1, ProducerID: -1, Epoch: -1})
			m.Decide(4, AddPartitions{TransactionalID: id, ProducerID: e.md.producerID, Epoch: e.md.epoch, Partitions: tps("t-0")})
			m.Decide(1<<62, Tick{})
			m.Describe(id)
		}
	})
}
