//go:build conformance

package replies_test

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListOffsets and DeleteRecords.
var listOffsetsScenarios = []scenario{
	{"ListOffsets: every kind in every version", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(9, nil, t.at(0, s.plain("a", "b")))
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "c")))
		s.produce(9, nil, t.at(0, s.plain("d")))
		for v := int16(1); v <= 11; v++ {
			for _, committed := range []bool{false, true} {
				for _, ts := range []int64{-1, -2, 0, s.peer.baseMs + 1, s.peer.baseMs + 30_000} {
					s.list(v, t, ts, committed)
				}
			}
		}
	}},
	{"ListOffsets: special timestamps in every version", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, s.plain("a", "b")))
		for v := int16(1); v <= 11; v++ {
			for _, ts := range []int64{-3, -4, -5, -6, -7, -100} {
				s.list(v, t, ts, false)
			}
		}
	}},
	{"ListOffsets: an empty partition", func(s *script) {
		t := s.topic("t", 1)
		for _, v := range []int16{1, 8, 11} {
			for _, ts := range []int64{-1, -2, -3, -4, 0, s.peer.baseMs} {
				s.list(v, t, ts, false)
				s.list(v, t, ts, true)
			}
		}
	}},
	{"ListOffsets: the time of the record, not of the batch", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, s.plain("a", "b", "c")))
		s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: 100, attributes: 1}, strings.Repeat("d", 100), strings.Repeat("e", 100))))
		s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: 50}, "f"))) // back in time
		for _, ms := range []int64{0, 1, 2, 3, 50, 51, 99, 100, 101, 102} {
			s.list(7, t, s.peer.baseMs+ms, false)
		}
		s.list(7, t, -3, false)
	}},
	{"ListOffsets: a time beyond the last stable offset", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(9, nil, t.at(0, s.plain("a")))
		s.produce(12, p.id, t.at(0, s.records(options{p: p, offsetMs: 100, attributes: 0x10}, "b")))
		for _, committed := range []bool{false, true} {
			for _, ts := range []int64{-3, s.peer.baseMs, s.peer.baseMs + 50, s.peer.baseMs + 100} {
				s.list(8, t, ts, committed)
			}
		}
		s.ended(5, p, abort)
		for _, committed := range []bool{false, true} {
			for _, ts := range []int64{-1, s.peer.baseMs + 50, s.peer.baseMs + 150} {
				s.list(8, t, ts, committed)
			}
		}
	}},
	{"ListOffsets: an append-time topic", func(s *script) {
		t := s.topic("t", 1, "message.timestamp.type", "LogAppendTime")
		s.produce(9, nil, t.at(0, s.plain("a", "b")))
		s.list(7, t, s.peer.baseMs, false)
		s.list(7, t, -3, false)
	}},
	{"ListOffsets: partitions that do not exist, or are named twice", func(s *script) {
		t, none := s.topic("t", 2), s.missingTopic("none")
		for _, v := range []int16{1, 5, 11} {
			s.do(listRequest(v, t, false, -1, -1, -1)) // partition 2 does not exist
			s.list(v, none, -1, false)
			twice := listRequest(v, t, false, -1)
			twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0])
			s.do(twice)
			apart := listRequest(v, t, false, -1)
			apart.Topics = append(apart.Topics, apart.Topics[0])
			s.do(apart)
		}
	}},
	{"ListOffsets: leader epochs", func(s *script) {
		t := s.topic("t", 1)
		for _, v := range []int16{4, 8, 11} {
			for _, epoch := range []int32{-1, 0, 1} {
				req := listRequest(v, t, false, -1)
				req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
				s.do(req)
			}
		}
	}},
	{"DeleteRecords: every version", func(s *script) {
		t := s.topic("t", 2)
		for range 6 {
			s.produce(9, nil, t.at(0, s.plain("a")))
		}
		for v := int16(0); v <= 2; v++ {
			s.do(deleteRecords(v, t, 0, int64(v)+1))
			s.do(deleteRecords(v, t, 0, 0)) // nothing to do
			s.do(deleteRecords(v, t, 0, 7))
			s.do(deleteRecords(v, t, 0, -2))
			s.do(deleteRecords(v, t, 2, 1))
			s.do(deleteRecords(v, s.missingTopic("none"), 0, 1))
			s.do(deleteRecords(v, t, 1, 0))
		}
		s.list(7, t, -2, false)
		s.do(deleteRecords(2, t, 0, -1))
		s.list(7, t, -2, false)
		s.list(7, t, -1, false)
		s.list(7, t, 0, false)
		s.fetch(t, 0, 0, false)
		s.fetch(t, 0, 6, false)
	}},
	{"DeleteRecords: compacted and internal topics", func(s *script) {
		t := s.topic("t", 1, "cleanup.policy", "compact")
		u := s.topic("u", 1, "cleanup.policy", "compact,delete")
		s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, key: "k"}, "a")))
		s.produce(9, nil, u.at(0, s.records(options{p: nobody, sequence: -1, key: "k"}, "a")))
		s.do(deleteRecords(2, t, 0, -1))
		s.do(deleteRecords(2, u, 0, -1))
		s.do(deleteRecords(2, topic{name: "__consumer_offsets"}, 49, 0))
	}},
	{"DeleteRecords: across an open and an aborted transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		q := s.ended(5, p, abort)
		s.produce(12, q.id, t.at(0, s.txn(q, 0, "b")))
		s.produce(9, nil, t.at(0, s.plain("c")))
		s.do(deleteRecords(2, t, 0, 1))
		s.fetch(t, 0, 1, true)
		s.do(deleteRecords(2, t, 0, 3))
		s.fetch(t, 0, 3, true)
		s.list(7, t, -1, true)
		s.list(7, t, -2, true)
		s.ended(5, q, commit)
		s.fetch(t, 0, 3, true)
	}},
	{"DeleteRecords: nothing named", func(s *script) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = 2
		s.do(req)
	}},
}
