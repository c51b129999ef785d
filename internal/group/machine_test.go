package group

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

func TestDecideBeforeLoadedIsFatal(t *testing.T) {
	if eff := New(Config{}).Decide(1, Tick{}); eff.Fatal == nil {
		t.Error("no Fatal")
	}
}

func TestUnknownCommandIsFatal(t *testing.T) {
	m := New(Config{})
	m.Loaded(1)
	if eff := m.Decide(1, nil); eff.Fatal == nil {
		t.Error("no Fatal")
	}
}

func TestIdleMachineHasNoDeadline(t *testing.T) {
	m := New(Config{})
	if at := m.Loaded(1000); at != 0 {
		t.Errorf("deadline %d", at)
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = "g"
	if eff := m.Decide(1000, Heartbeat{1, req}); eff.DeadlineMs != 0 || len(eff.Appends) != 0 {
		t.Errorf("%+v", eff)
	}
}

func TestApplyNamesWhatItRefuses(t *testing.T) {
	offset := offsetKey("g", batch.TopicPartition{Topic: "t"})
	member := batch.GroupMember{MemberID: "m"}
	twice := batch.MarshalGroupValue(batch.GroupValue{Members: []batch.GroupMember{member, member}})
	for name, c := range map[string]struct {
		r    Record
		want error
	}{
		"no key":                   {Record{}, batch.ErrCorrupt},
		"key cut short":            {Record{Key: offset[:5]}, batch.ErrCorrupt},
		"value cut short":          {Record{Key: offset, Value: []byte{0, 3, 1}}, batch.ErrCorrupt},
		"value of a later version": {Record{Key: offset, Value: []byte{0, 5, 1}}, batch.ErrUnknownVersion},
		"member twice":             {Record{Key: batch.MarshalGroupKey("g"), Value: twice}, batch.ErrCorrupt},
		"record type of KIP-848":   {Record{Key: []byte{0, 3, 0, 1, 'g'}, Value: []byte{0, 0}}, nil},
	} {
		m := New(Config{})
		err := m.Apply(42, c.r, -1, -1, false)
		if !errors.Is(err, c.want) || (err != nil && !strings.Contains(err.Error(), "offset 42")) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if len(m.groups) != 0 {
			t.Errorf("%s: left a group behind", name)
		}
	}
}

// Buffers of requests and records are used again after Decide and Apply.
func TestBuffersAreNotKept(t *testing.T) {
	w := newWorld(t, Config{})
	metadata, assignment := []byte("meta"), []byte("mine")
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 3, "g", "consumer", 6000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: metadata}}
	member := w.do(Join{Token: w.open("join", 3), Request: join, NewMemberID: "1"}).Replies[0].Response.(*kmsg.JoinGroupResponse).MemberID
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, "g", member, 1
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: assignment}}
	w.do(Sync{w.open("sync", 3), sync})
	clear(metadata)
	clear(assignment)
	before := hardState(w.m)
	for _, e := range w.log {
		clear(e.record.Value)
	}
	if after := hardState(w.m); !slices.Equal(before, after) {
		t.Errorf("hard state %q became %q", before, after)
	}
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g"}
	got := w.do(Describe{w.open("describe", 0), describe}).Replies[0].Response.(*kmsg.DescribeGroupsResponse).Groups[0].Members[0]
	if string(got.ProtocolMetadata) != "meta" || string(got.MemberAssignment) != "mine" {
		t.Errorf("%q, %q", got.ProtocolMetadata, got.MemberAssignment)
	}
}

// A group that is larger than a lowered limit rebalances after the restart, and
// the last to rejoin is refused.
func TestGroupOverALoweredLimitRebalances(t *testing.T) {
	protocol := "range"
	v := batch.GroupValue{ProtocolType: "consumer", Generation: 3, Protocol: &protocol, Leader: &protocol}
	for _, id := range []string{"a", "b", "c"} {
		v.Members = append(v.Members, batch.GroupMember{MemberID: id, SessionTimeoutMs: 6000, RebalanceTimeoutMs: 6000, Subscription: []byte{}})
	}
	w := newWorld(t, Config{MaxSize: 2})
	w.log = []entry{{record: groupRecord("g", &v), pid: -1}}
	w.replay(w.log)
	if g := w.m.groups["g"]; g.state != PreparingRebalance || g.leader != "a" {
		t.Fatalf("%s, led by %s", g.state, g.leader)
	}
	answers := map[string]int16{}
	for _, id := range []string{"a", "b", "c"} {
		join := kmsg.NewPtrJoinGroupRequest()
		join.Version, join.Group, join.MemberID, join.ProtocolType, join.SessionTimeoutMillis = 3, "g", id, "consumer", 6000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		for _, r := range w.do(Join{Token: w.open(id, 3), Request: join}).Replies {
			answers[r.Response.(*kmsg.JoinGroupResponse).MemberID] = r.Response.(*kmsg.JoinGroupResponse).ErrorCode
		}
	}
	if answers["a"] != 0 || answers["b"] != 0 || answers[""] != 81 {
		t.Errorf("%v", answers)
	}
}

func TestOffsetFetchOfEveryVersion(t *testing.T) {
	w := newWorld(t, Config{})
	w.add(entry{record: offsetRecord("g", batch.TopicPartition{Topic: "t"}, batch.OffsetValue{Offset: 7, Metadata: "m", ExpireMs: -1}), pid: -1})
	w.add(entry{record: offsetRecord("g", batch.TopicPartition{Topic: "t", Partition: 1}, batch.OffsetValue{Offset: 8, ExpireMs: -1}), pid: 5, txn: true})
	for version := int16(1); version <= 10; version++ {
		for _, all := range []bool{false, true} {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Version, req.RequireStable = version, true
			if version < 8 {
				req.Group = "g"
				if !all {
					req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
				}
			} else {
				req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "none"}, {Group: "g"}}
				if !all {
					req.Groups[1].Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0, 1}}}
				}
			}
			var groups []kmsg.OffsetFetchResponseGroup
			for _, c := range OffsetFetchCommands(req) {
				c.Token = w.open("fetch", version)
				groups = append(groups, *w.do(c).Replies[0].OffsetFetch)
			}
			resp := OffsetFetchResponse(req, groups)
			again := kmsg.NewPtrOffsetFetchResponse()
			again.Version = version
			if err := again.ReadFrom(resp.AppendTo(nil)); err != nil {
				t.Fatalf("v%d: %v", version, err)
			}
			var offsets []int64
			var codes []int16
			for _, g := range resp.Groups {
				for _, tp := range g.Topics {
					for _, p := range tp.Partitions {
						offsets, codes = append(offsets, p.Offset), append(codes, p.ErrorCode)
					}
				}
			}
			for _, tp := range resp.Topics {
				for _, p := range tp.Partitions {
					offsets, codes = append(offsets, p.Offset), append(codes, p.ErrorCode)
				}
			}
			wantOffsets, wantCodes := []int64{7, -1}, []int16{0, 0}
			if version >= 7 {
				wantCodes[1] = 88
			} else if all {
				wantOffsets, wantCodes = wantOffsets[:1], wantCodes[:1]
			}
			if !slices.Equal(offsets, wantOffsets) || !slices.Equal(codes, wantCodes) {
				t.Errorf("v%d all=%v: %v %v, want %v %v", version, all, offsets, codes, wantOffsets, wantCodes)
			}
		}
	}
}

// Deleting much is done in batches of a bounded size.
func TestBulkDeletionIsSplit(t *testing.T) {
	w := newWorld(t, Config{})
	for p := range int32(2500) {
		w.log = append(w.log, entry{record: offsetRecord("g", batch.TopicPartition{Topic: "t", Partition: p}, batch.OffsetValue{ExpireMs: -1}), pid: -1})
	}
	w.replay(w.log)
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{"g"}
	eff := w.do(Delete{w.open("delete", 0), req})
	if len(eff.Appends) != 3 || len(eff.Appends[2].Records) != 500 || w.m.lookup("g") != nil {
		t.Errorf("%d batches", len(eff.Appends))
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	m, member := benchGroup(b)
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = "g", member, 1
	b.ReportAllocs()
	for b.Loop() {
		m.Decide(1000, Heartbeat{1, req})
	}
}

func BenchmarkTxnOffsetCommit(b *testing.B) {
	m, member := benchGroup(b)
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.ProducerID = 5, "g", member, 1, 7
	t := kmsg.TxnOffsetCommitRequestTopic{Topic: "input"}
	for p := range int32(10) {
		t.Partitions = append(t.Partitions, kmsg.TxnOffsetCommitRequestTopicPartition{Partition: p, Offset: 1})
	}
	req.Topics = append(req.Topics, t)
	b.ReportAllocs()
	off := batch.Offset(10)
	for b.Loop() {
		eff := m.Decide(1000, TxnOffsetCommit{1, req})
		for _, r := range eff.Appends[0].Records {
			off++
			if err := m.Apply(off, r, 7, 0, true); err != nil {
				b.Fatal(err)
			}
		}
		m.ApplyMarker(off, 7, 0, true)
	}
}

func benchGroup(b *testing.B) (*Machine, string) {
	w := newWorld(b, Config{})
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 3, "g", "consumer", 6000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	r := w.do(Join{Token: w.open("join", 3), Request: join, NewMemberID: "1"}).Replies[0]
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = "g", r.Response.(*kmsg.JoinGroupResponse).MemberID, 1
	w.do(Sync{w.open("sync", 0), sync})
	return w.m, sync.MemberID
}
