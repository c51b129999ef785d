package group

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// FuzzApply: no record, however broken, makes the machine panic, and what it
// takes it can give back.
func FuzzApply(f *testing.F) {
	id, protocol := "g", "range"
	f.Add(batch.MarshalGroupKey(id), batch.MarshalGroupValue(batch.GroupValue{
		ProtocolType: "consumer", Generation: 3, Protocol: &protocol, Leader: &id,
		Members: []batch.GroupMember{{MemberID: "m", InstanceID: &id, SessionTimeoutMs: 6000, Subscription: []byte{0, 0, 0, 0, 0, 1, 0, 1, 't'}}},
	}), int64(-1), false)
	f.Add(offsetKey(id, batch.TopicPartition{Topic: "t"}), batch.MarshalOffsetValue(batch.OffsetValue{Offset: 7, ExpireMs: -1}), int64(5), true)
	f.Add(offsetKey(id, batch.TopicPartition{Topic: "t"}), []byte(nil), int64(-1), false)
	f.Fuzz(func(t *testing.T, key, value []byte, pid int64, txn bool) {
		m := New(Config{MaxSize: 2})
		if len(value) == 0 {
			value = nil
		}
		for off := range 2 {
			// A broken record is refused; what came before it stays.
			_ = m.Apply(batch.Offset(off), Record{key, value}, batch.ProducerID(pid), 0, txn)
		}
		again := New(Config{})
		for l := range m.Records() {
			if err := again.Apply(l.Offset, l.Record, l.ProducerID, l.Epoch, l.ProducerID >= 0); err != nil {
				t.Fatalf("gave a record that it does not take: %v", err)
			}
		}
		if a, b := hardState(m), hardState(again); len(a) != len(b) {
			t.Fatalf("%q, then %q", a, b)
		}
		m.Loaded(1000)
		for _, nowMs := range []int64{1000, 1 << 40} {
			if eff := m.Decide(nowMs, Tick{}); eff.Fatal != nil {
				t.Fatal(eff.Fatal)
			}
		}
		m.Decide(1<<40, List{Request: kmsg.NewPtrListGroupsRequest()})
		m.ApplyMarker(9, batch.ProducerID(pid), 0, txn)
	})
}

// fuzzRequests are the requests that FuzzDecide knows, with their newest version.
var fuzzRequests = []struct {
	request func() kmsg.Request
	newest  int16
}{
	{func() kmsg.Request { return kmsg.NewPtrJoinGroupRequest() }, 9},
	{func() kmsg.Request { return kmsg.NewPtrSyncGroupRequest() }, 5},
	{func() kmsg.Request { return kmsg.NewPtrHeartbeatRequest() }, 4},
	{func() kmsg.Request { return kmsg.NewPtrLeaveGroupRequest() }, 5},
	{func() kmsg.Request { return kmsg.NewPtrOffsetCommitRequest() }, 10},
	{func() kmsg.Request { return kmsg.NewPtrTxnOffsetCommitRequest() }, 6},
	{func() kmsg.Request { return kmsg.NewPtrOffsetFetchRequest() }, 10},
	{func() kmsg.Request { return kmsg.NewPtrOffsetDeleteRequest() }, 0},
	{func() kmsg.Request { return kmsg.NewPtrDescribeGroupsRequest() }, 6},
	{func() kmsg.Request { return kmsg.NewPtrListGroupsRequest() }, 5},
	{func() kmsg.Request { return kmsg.NewPtrDeleteGroupsRequest() }, 3},
}

// fuzzCommands are the commands of one decoded request.
func fuzzCommands(w *world, req kmsg.Request) []Command {
	v := req.GetVersion()
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		return []Command{Join{w.open("join", v), r, "client", "host", "id" + string(rune('a'+w.token%26))}}
	case *kmsg.SyncGroupRequest:
		return []Command{Sync{w.open("sync", v), r}}
	case *kmsg.HeartbeatRequest:
		return []Command{Heartbeat{w.open("heartbeat", v), r}}
	case *kmsg.LeaveGroupRequest:
		return []Command{Leave{w.open("leave", v), r}}
	case *kmsg.OffsetCommitRequest:
		return []Command{OffsetCommit{w.open("commit", v), r}}
	case *kmsg.TxnOffsetCommitRequest:
		return []Command{TxnOffsetCommit{w.open("txncommit", v), r}}
	case *kmsg.OffsetDeleteRequest:
		return []Command{OffsetDelete{w.open("offsetdelete", v), r}}
	case *kmsg.DescribeGroupsRequest:
		return []Command{Describe{w.open("describe", v), r}}
	case *kmsg.ListGroupsRequest:
		return []Command{List{w.open("list", v), r}}
	case *kmsg.DeleteGroupsRequest:
		return []Command{Delete{w.open("delete", v), r}}
	case *kmsg.OffsetFetchRequest:
		var out []Command
		for _, c := range OffsetFetchCommands(r) {
			c.Token = w.open("fetch", v)
			out = append(out, c)
		}
		return out
	}
	return nil
}

// FuzzDecide: no sequence of requests that decode, however senseless, breaks an
// invariant. The input is a list of (api, version, int16 size, body).
func FuzzDecide(f *testing.F) {
	f.Add(fuzzSeed())
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWorld(t, Config{MaxSize: 3})
		for len(in) >= 4 && w.token < 64 {
			kind := fuzzRequests[int(in[0])%len(fuzzRequests)]
			req := kind.request()
			req.SetVersion(int16(in[1]) % (kind.newest + 1))
			size := min(int(binary.BigEndian.Uint16(in[2:])), len(in)-4)
			body := in[4 : 4+size]
			in = in[4+size:]
			if req.ReadFrom(body) != nil {
				continue
			}
			for _, c := range fuzzCommands(w, req) {
				w.do(c)
			}
			w.advance(int64(size), func(Effects) {})
		}
		w.replay(w.log)
		w.advance(10_000_000, func(Effects) {})
	})
}

func fuzzSeed() []byte {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 3, "g", "consumer", 6000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("m")}}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 5, "g", "client-idb", 1
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.Version, commit.Group, commit.MemberID, commit.Generation, commit.ProducerID = 5, "g", "client-idb", 1, 7
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 3}}}}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version, fetch.RequireStable = 8, true
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g"}}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group, leave.MemberID = 2, "g", "client-idb"
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Version, del.Groups = 2, []string{"g"}
	var out []byte
	for _, req := range []kmsg.Request{join, sync, commit, fetch, leave, del} {
		for i, kind := range fuzzRequests {
			if kind.request().Key() == req.Key() {
				body := req.AppendTo(nil)
				out = append(out, byte(i), byte(req.GetVersion()))
				out = binary.BigEndian.AppendUint16(out, uint16(len(body)))
				out = append(out, body...)
			}
		}
	}
	return out
}
