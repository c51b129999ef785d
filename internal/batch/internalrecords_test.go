package batch

import (
	"errors"
	"reflect"
	"testing"
)

func TestTxnValuesSurviveAllVersions(t *testing.T) {
	for name, b := range golden(t) {
		if len(name) < 10 || name[:10] != "txn-value-" {
			continue
		}
		s, err := UnmarshalTxnValue(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		version := int16(b[1])
		if again := MarshalTxnValue(s, version); !reflect.DeepEqual(again, b) {
			t.Errorf("%s: came back as %x", name, again)
		}
	}
	v0, err := UnmarshalTxnValue(mustGolden(t, "txn-value-v0-ongoing"))
	if err != nil || v0.PreviousProducerID != -1 || v0.NextProducerID != -1 || v0.NextEpoch != -1 || v0.ClientTransactionVersion != 0 {
		t.Errorf("version 0 without tags is %+v, %v", v0, err)
	}
	want := []TopicPartition{{"a", 0}, {"a", 2}, {"bb", 1}}
	if !reflect.DeepEqual(v0.Partitions, want) {
		t.Errorf("partitions %v, want %v", v0.Partitions, want)
	}
}

func TestOffsetValuesOfOldVersionsHaveNoEpochAndNoExpiry(t *testing.T) {
	for name, want := range map[string]OffsetValue{
		"offset-value-v0": {Offset: 99, LeaderEpoch: -1, Metadata: "meta", CommitMs: kafkaBaseMs, ExpireMs: -1},
		"offset-value-v1": {Offset: 99, LeaderEpoch: -1, Metadata: "meta", CommitMs: kafkaBaseMs, ExpireMs: kafkaBaseMs + 1000},
		"offset-value-v2": {Offset: 99, LeaderEpoch: -1, Metadata: "meta", CommitMs: kafkaBaseMs, ExpireMs: -1},
		"offset-value-v3": {Offset: 99, LeaderEpoch: 5, Metadata: "meta", CommitMs: kafkaBaseMs, ExpireMs: -1},
		"offset-value-v4": {Offset: 99, LeaderEpoch: 5, Metadata: "meta", CommitMs: kafkaBaseMs, ExpireMs: -1},
		"offset-value-v4-topicid": {Offset: 99, LeaderEpoch: 5, Metadata: "meta", CommitMs: kafkaBaseMs, ExpireMs: -1,
			TopicID: [16]byte{7: 1, 15: 2}},
	} {
		got, err := UnmarshalOffsetValue(mustGolden(t, name))
		if err != nil || got != want {
			t.Errorf("%s is %+v, %v", name, got, err)
		}
	}
}

func TestGroupValuesOfEveryVersionAreRead(t *testing.T) {
	for _, name := range []string{"group-value-v0", "group-value-v1", "group-value-v2", "group-value-v3", "group-value-v4"} {
		g, err := UnmarshalGroupValue(mustGolden(t, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		version := name[len(name)-1] - '0'
		if g.ProtocolType != "consumer" || g.Generation != 3 || *g.Protocol != "range" || *g.Leader != "m1" || len(g.Members) != 1 {
			t.Fatalf("%s is %+v", name, g)
		}
		m := g.Members[0]
		if m.MemberID != "m1" || m.SessionTimeoutMs != 45000 || string(m.Subscription) != "\x01\x02" || string(m.Assignment) != "\x03" {
			t.Errorf("%s: member %+v", name, m)
		}
		if (m.InstanceID != nil) != (version >= 3) || (g.StateMs == -1) != (version < 2) {
			t.Errorf("%s: instance %v, state since %d", name, m.InstanceID, g.StateMs)
		}
		if want := map[bool]int32{true: 45000, false: 300000}[version == 0]; m.RebalanceTimeoutMs != want {
			t.Errorf("%s: rebalance timeout %d", name, m.RebalanceTimeoutMs)
		}
	}
}

func TestKeysAreToldApartByTheirType(t *testing.T) {
	offset, group, txn := MarshalOffsetKey(OffsetKey{"g", "t", 1}), MarshalGroupKey("g"), TxnKey("id")
	for _, c := range []struct {
		key  []byte
		want int16
	}{{offset, KeyTypeOffsetCommit}, {group, KeyTypeGroupMetadata}} {
		if got, err := KeyType(c.key); got != c.want || err != nil {
			t.Errorf("type %d, %v; want %d", got, err, c.want)
		}
	}
	if k, err := ParseOffsetKey(offset); err != nil || k != (OffsetKey{"g", "t", 1}) {
		t.Errorf("%+v, %v", k, err)
	}
	if g, err := ParseGroupKey(group); err != nil || g != "g" {
		t.Errorf("%q, %v", g, err)
	}
	if id, err := ParseTxnKey(txn); err != nil || id != "id" {
		t.Errorf("%q, %v", id, err)
	}
}

func TestUnknownVersionsHaveATypedErrorAndBadBytesAnother(t *testing.T) {
	parsers := map[string]func([]byte) error{
		"TransactionLogKey":   func(b []byte) error { _, err := ParseTxnKey(b); return err },
		"TransactionLogValue": func(b []byte) error { _, err := UnmarshalTxnValue(b); return err },
		"OffsetCommitKey":     func(b []byte) error { _, err := ParseOffsetKey(b); return err },
		"OffsetCommitValue":   func(b []byte) error { _, err := UnmarshalOffsetValue(b); return err },
		"GroupMetadataKey":    func(b []byte) error { _, err := ParseGroupKey(b); return err },
		"GroupMetadataValue":  func(b []byte) error { _, err := UnmarshalGroupValue(b); return err },
	}
	for record, parse := range parsers {
		for _, b := range [][]byte{{0, 99}, {0xff, 0xff}} {
			err := parse(b)
			var unknown *UnknownVersionError
			if !errors.As(err, &unknown) || unknown.Record != record || !errors.Is(err, ErrUnknownVersion) {
				t.Errorf("%s, version %x: %v", record, b, err)
			}
		}
		for _, b := range [][]byte{nil, {0}, {0, 2}, {0, 0}, {0, 1}} {
			if err := parse(b); err == nil {
				t.Errorf("%s read %x", record, b)
			}
		}
	}
	if _, err := UnmarshalTxnValue(MarshalTxnValue(TxnState{Status: 9}, 1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("unknown state: %v", err)
	}
}
