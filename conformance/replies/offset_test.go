//go:build conformance

package replies_test

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit, OffsetFetch and TxnOffsetCommit.
var offsetScenarios = []scenario{
	{"OffsetCommit and OffsetFetch, every version", func(s *script) {
		t := s.topic("t", 2)
		g := stranger(s.name("g"))
		for v := int16(2); v <= 10; v++ {
			s.do(commitRequest(v, g, at{t, 0, int64(v)}, at{t, 1, int64(10 * v)}))
		}
		for v := int16(1); v <= 10; v++ {
			s.do(committed(v, g.group, false, at{t, 0, 0}, at{t, 1, 0}))
		}
	}},
	{"OffsetCommit: partitions and ids that do not exist", func(s *script) {
		t, none := s.topic("t", 1), s.missingTopic("none")
		g := stranger(s.name("g"))
		for _, v := range []int16{2, 8, 9, 10} {
			s.do(commitRequest(v, g, at{none, 0, 5}))
			s.do(commitRequest(v, g, at{t, 0, 5}, at{t, 1, 6}, at{none, 0, 5}))
			s.do(commitRequest(v, g, at{t, -1, 5}))
			s.do(commitRequest(v, g))
		}
		s.do(committed(8, g.group, false, at{t, 0, 0}, at{t, 1, 0}, at{none, 0, 0}))
		s.do(committed(10, g.group, false, at{t, 0, 0}, at{t, 1, 0}, at{none, 0, 0}))
	}},
	{"OffsetCommit: who may commit", func(s *script) {
		t := s.topic("t", 1)
		g := stranger(s.name("g"))
		for _, v := range []int16{2, 8, 9} {
			s.do(commitRequest(v, g.at(3), at{t, 0, 1})) // no such group
			s.do(commitRequest(v, member{group: g.group, id: "someone?", generation: 3}, at{t, 0, 1}))
		}
		m := s.alone(g.group)
		for _, v := range []int16{2, 8, 9} {
			s.do(commitRequest(v, m, at{t, 0, 2}))
			s.do(commitRequest(v, m.at(m.generation+1), at{t, 0, 3}))
			s.do(commitRequest(v, m.at(m.generation-1), at{t, 0, 3}))
			s.do(commitRequest(v, member{group: g.group, id: "someone?", generation: m.generation}, at{t, 0, 4}))
			s.do(commitRequest(v, g, at{t, 0, 5}))
			s.do(commitRequest(v, member{group: g.group, id: m.id, generation: -1}, at{t, 0, 5}))
		}
		s.do(commitRequest(8, member{group: g.group, id: m.id, instance: kmsg.StringPtr("i?"), generation: m.generation}, at{t, 0, 6}))
		s.do(committed(8, g.group, true, at{t, 0, 0}))
		s.do(leaveRequest(4, g.group, m))
		s.do(commitRequest(8, m, at{t, 0, 7})) // Empty now
		s.do(commitRequest(8, g, at{t, 0, 8}))
		s.do(committed(8, g.group, true, at{t, 0, 0}))
	}},
	{"OffsetCommit: during a rebalance", func(s *script) {
		t := s.topic("t", 1)
		g := s.name("g")
		m, _ := s.client("a").join(5, stranger(g), "range")
		s.do(commitRequest(8, m, at{t, 0, 1})) // CompletingRebalance
		s.do(txnOffsetsOf(s, m, at{t, 0, 1}))
		s.do(syncRequest(3, m, m.id, "all"))
		second := joinRequest(3, stranger(g), "range")
		s.client("b").send(second)
		s.groupIn(g, "PreparingRebalance", 2)
		s.do(commitRequest(8, m, at{t, 0, 2})) // PreparingRebalance
		s.do(committed(8, g, false, at{t, 0, 0}))
	}},
	{"OffsetCommit: metadata and the group's name", func(s *script) {
		t := s.topic("t", 1)
		g := stranger(s.name("g"))
		for _, n := range []int{4096, 4097} {
			req := commitRequest(8, g, at{t, 0, 1})
			req.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(strings.Repeat("m", n))
			s.do(req)
		}
		req := commitRequest(8, g, at{t, 0, 1})
		req.Topics[0].Partitions[0].Metadata = nil
		s.do(req)
		s.do(committed(8, g.group, false, at{t, 0, 0}))
		for _, v := range []int16{2, 8, 9} {
			s.do(commitRequest(v, stranger(""), at{t, 0, 1}))
		}
		s.do(committed(8, "", false, at{t, 0, 0}))
		s.do(committed(7, "", false, at{t, 0, 0}))
	}},
	{"OffsetCommit: negative offsets and leader epochs", func(s *script) {
		t := s.topic("t", 1)
		g := stranger(s.name("g"))
		s.do(commitRequest(8, g, at{t, 0, -1}))
		s.do(commitRequest(8, g, at{t, 0, -5}))
		s.do(committed(8, g.group, false, at{t, 0, 0}))
		req := commitRequest(8, g, at{t, 0, 7})
		req.Topics[0].Partitions[0].LeaderEpoch = 3
		s.do(req)
		s.do(committed(8, g.group, false, at{t, 0, 0}))
		s.do(committed(4, g.group, false, at{t, 0, 0}))
	}},
	{"OffsetFetch: all of a group, an unknown group, several groups", func(s *script) {
		t, u := s.topic("t", 2), s.topic("u", 1)
		g, h := stranger(s.name("g")), stranger(s.name("h"))
		s.do(commitRequest(8, g, at{t, 0, 1}, at{t, 1, 2}, at{u, 0, 3}))
		s.do(commitRequest(8, h, at{u, 0, 4}))
		for _, v := range []int16{2, 5, 7, 8, 9, 10} {
			s.do(committed(v, g.group, false))
			s.do(committed(v, s.name("none"), false))
			s.do(committed(v, s.name("none"), false, at{t, 0, 0}))
		}
		several := committed(8, g.group, false, at{t, 0, 0})
		several.Groups = append(several.Groups, committed(8, h.group, false).Groups...)
		s.do(several)
		empty := committed(8, g.group, false)
		empty.Groups[0].Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		s.do(empty)
		old := committed(7, g.group, false)
		old.Topics = []kmsg.OffsetFetchRequestTopic{}
		s.do(old)
		first := committed(1, g.group, false)
		first.Topics = []kmsg.OffsetFetchRequestTopic{}
		s.do(first)
		s.do(committed(8, g.group, false, at{t, 5, 0}))
	}},
	{"OffsetFetch: pending offsets are unstable", func(s *script) {
		t := s.topic("t", 2)
		p := s.transactional("x")
		g := stranger(s.name("g"))
		s.do(commitRequest(8, g, at{t, 0, 1}))
		s.do(txnCommitRequest(5, p, g, at{t, 0, 5}))
		for _, v := range []int16{6, 7, 8, 9, 10} {
			s.do(committed(v, g.group, true, at{t, 0, 0}, at{t, 1, 0}))
			s.do(committed(v, g.group, false, at{t, 0, 0}, at{t, 1, 0}))
		}
		s.do(committed(8, g.group, true))
		q := s.ended(5, p, commit)
		s.do(committed(8, g.group, true, at{t, 0, 0}, at{t, 1, 0}))
		s.do(txnCommitRequest(5, q, g, at{t, 0, 9}))
		s.do(committed(7, g.group, true, at{t, 0, 0}))
		s.ended(5, q, abort)
		s.do(committed(8, g.group, true, at{t, 0, 0}))
	}},
	{"OffsetFetch: a partition that has only a pending offset", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		g := stranger(s.name("g"))
		s.do(txnCommitRequest(5, p, g, at{t, 0, 5}))
		s.do(committed(8, g.group, true, at{t, 0, 0}))
		s.do(committed(8, g.group, false, at{t, 0, 0}))
		s.do(committed(8, g.group, false))
		s.differs("Groups[g].Topics", "null", "1 entries", "a reader of all partitions must learn that one is undecided")
		s.differs("Groups[g].Topics[t].Topic", absent, `"t"`, "as above")
		s.differs("Groups[g].Topics[t].TopicID", absent, "0", "as above")
		s.differs("Groups[g].Topics[t].Partitions", absent, "1 entries", "as above")
		s.differs("Groups[g].Topics[t].Partitions[0].Partition", absent, "0", "as above")
		s.differs("Groups[g].Topics[t].Partitions[0].Offset", absent, "-1", "as above")
		s.differs("Groups[g].Topics[t].Partitions[0].LeaderEpoch", absent, "-1", "as above")
		s.differs("Groups[g].Topics[t].Partitions[0].Metadata", absent, `""`, "as above")
		s.differs("Groups[g].Topics[t].Partitions[0].ErrorCode", absent, "88 UNSTABLE_OFFSET_COMMIT", "as above")
		s.do(committed(8, g.group, true))
		s.ended(5, p, abort)
		s.do(committed(8, g.group, true))
		s.differs("Groups[g].State", `"Empty"`, `"Dead"`, "a group that only stored offsets goes with its last one, not at the next expiry")
		s.do(describeGroups(5, g.group))
	}},
	{"a later plain commit wins over a pending one", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		g := stranger(s.name("g"))
		s.do(txnCommitRequest(5, p, g, at{t, 0, 5}))
		s.do(commitRequest(8, g, at{t, 0, 3}))
		s.do(committed(8, g.group, false, at{t, 0, 0}))
		s.do(committed(8, g.group, true, at{t, 0, 0}))
		s.ended(5, p, commit)
		s.do(committed(8, g.group, true, at{t, 0, 0}))
	}},
	{"two producers with pending offsets for one partition", func(s *script) {
		t := s.topic("t", 1)
		p, q := s.transactional("x"), s.transactional("y")
		g := stranger(s.name("g"))
		s.do(txnCommitRequest(5, p, g, at{t, 0, 5}))
		s.do(txnCommitRequest(5, q, g, at{t, 0, 7}))
		s.ended(5, q, commit)
		s.do(committed(8, g.group, true, at{t, 0, 0}))
		s.ended(5, p, commit)
		s.do(committed(8, g.group, true, at{t, 0, 0}))
	}},
	{"TxnOffsetCommit: who may commit", txnOffsetMembers},
	{"TxnOffsetCommit: partitions, metadata and the group's name", func(s *script) {
		t, none := s.topic("t", 1), s.missingTopic("none")
		p := s.transactional("x")
		g := stranger(s.name("g"))
		s.addOffsets(3, p, g.group)
		for _, v := range []int16{0, 2, 3, 5} {
			s.do(txnCommitRequest(v, p, g, at{none, 0, 5}))
			s.do(txnCommitRequest(v, p, g, at{t, 0, 5}, at{t, 1, 5}))
			s.do(txnCommitRequest(v, p, g))
			s.do(txnCommitRequest(v, p, stranger(""), at{t, 0, 5}))
		}
		req := txnCommitRequest(3, p, g, at{t, 0, 5})
		req.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(strings.Repeat("m", 4097))
		s.do(req)
	}},
	{"OffsetDelete", func(s *script) {
		t, subscribed, none := s.topic("t", 2), s.topic("subscribed", 1), s.missingTopic("none")
		g, k := stranger(s.name("g")), stranger(s.name("k"))
		s.do(commitRequest(8, g, at{t, 0, 1}, at{t, 1, 2}))
		s.do(offsetDelete(s.name("nobody"), t.at(0, nil)))
		s.do(offsetDelete("", t.at(0, nil)))
		s.do(offsetDelete(g.group, t.at(0, nil), t.at(9, nil), none.at(0, nil)))
		s.do(offsetDelete(g.group, none.at(0, nil)))
		s.do(offsetDelete(s.name("nobody"), none.at(0, nil)))
		s.do(offsetDelete(g.group))
		s.do(committed(8, g.group, true))
		// A group with members: what they read stays.
		m, _ := s.client("a").join(9, k, "range")
		s.do(syncRequest(5, m, m.id, "all"))
		s.do(commitRequest(8, m, at{t, 0, 1}, at{subscribed, 0, 2}))
		s.do(offsetDelete(k.group, t.at(0, nil), subscribed.at(0, nil)))
		s.do(committed(8, k.group, true))
	}},
	{"DeleteGroups: with offsets, pending offsets, members", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		g, h, k := stranger(s.name("g")), stranger(s.name("h")), stranger(s.name("k"))
		s.do(commitRequest(8, g, at{t, 0, 1}))
		s.do(txnCommitRequest(5, p, h, at{t, 0, 5}))
		s.alone(k.group)
		for _, v := range []int16{0, 1, 2} {
			s.do(deleteGroups(v, k.group, s.name("none")))
		}
		s.do(deleteGroups(2, g.group, h.group))
		s.do(committed(8, g.group, true, at{t, 0, 0}))
		s.do(committed(8, h.group, true, at{t, 0, 0}))
		s.ended(5, p, commit)
		s.do(committed(8, h.group, true, at{t, 0, 0}))
		s.do(deleteGroups(2, g.group, g.group))
	}},
}

func offsetDelete(group string, parts ...part) *kmsg.OffsetDeleteRequest {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for name, partitions := range byTopic(parts) {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = name
		for _, p := range partitions {
			t.Partitions = append(t.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func deleteGroups(version int16, groups ...string) *kmsg.DeleteGroupsRequest {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = version, groups
	return req
}

// txnOffsetsOf is a TxnOffsetCommit of a member with a transaction of its own.
func txnOffsetsOf(s *script, m member, o at) kmsg.Request {
	return txnCommitRequest(5, s.transactional("of "+m.group), m, o)
}

func txnOffsetMembers(s *script) {
	t := s.topic("t", 1)
	p := s.transactional("x")
	g := stranger(s.name("g"))
	s.addOffsets(3, p, g.group)
	for v := int16(2); v <= 5; v++ {
		s.do(txnCommitRequest(v, p, g.at(3), at{t, 0, 1})) // no such group
	}
	s.client("b").do(describeGroups(5, g.group))
	m := s.alone(g.group)
	instance := kmsg.StringPtr("i?")
	for v := int16(2); v <= 5; v++ {
		s.do(txnCommitRequest(v, p, m, at{t, 0, 1}))
		s.do(txnCommitRequest(v, p, m.at(m.generation+1), at{t, 0, 2}))
		s.do(txnCommitRequest(v, p, m.at(m.generation-1), at{t, 0, 2}))
		s.do(txnCommitRequest(v, p, member{group: g.group, id: "someone?", generation: m.generation}, at{t, 0, 3}))
		s.do(txnCommitRequest(v, p, member{group: g.group, id: "someone?", generation: -1}, at{t, 0, 3}))
		s.do(txnCommitRequest(v, p, member{group: g.group, generation: m.generation}, at{t, 0, 3}))
		s.do(txnCommitRequest(v, p, member{group: g.group, id: m.id, instance: instance, generation: m.generation}, at{t, 0, 3}))
		s.do(txnCommitRequest(v, p, g, at{t, 0, 4})) // names nothing
	}
	s.do(leaveRequest(4, g.group, m))
	s.do(txnCommitRequest(3, p, m, at{t, 0, 5}))
	s.do(txnCommitRequest(3, p, g, at{t, 0, 6}))
	s.ended(3, p, commit)
	s.do(committed(8, g.group, true, at{t, 0, 0}))
}
