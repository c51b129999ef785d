//go:build conformance

package replies_test

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch: isolation, aborted transactions, bounds and limits.
var fetchScenarios = []scenario{
	{"Fetch: every version", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(9, nil, t.at(0, s.plain("plain")))
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "aborted")))
		s.ended(5, p, abort)
		for v := int16(4); v <= 18; v++ {
			s.do(fetchRequest(v, t, 0, 0, false))
			s.do(fetchRequest(v, t, 0, 0, true))
		}
	}},
	{"Fetch: partitions, topics and ids that do not exist", func(s *script) {
		t, none := s.topic("t", 1), s.missingTopic("none")
		s.produce(9, nil, t.at(0, s.plain("a")))
		for _, v := range []int16{4, 7, 12, 13, 18} {
			s.do(fetchRequest(v, none, 0, 0, false))
			s.do(fetchRequest(v, t, 1, 0, false))
			s.do(fetchRequest(v, t, -1, 0, false))
			both := fetchRequest(v, t, 0, 0, false)
			both.Topics = append(both.Topics, fetchRequest(v, none, 0, 0, false).Topics...)
			s.do(both)
		}
		s.do(fetchRequest(13, topic{}, 0, 0, false))
	}},
	{"Fetch: offsets below, at and beyond the ends", func(s *script) {
		t := s.topic("t", 2)
		for _, v := range []string{"a", "b", "c", "d"} {
			s.produce(9, nil, t.at(0, s.plain(v)))
		}
		for _, offset := range []int64{-1, 0, 3, 4, 5, 100} {
			s.fetch(t, 0, offset, false)
			s.fetch(t, 0, offset, true)
		}
		s.fetch(t, 1, 0, false) // empty
		s.fetch(t, 1, 1, false)
		s.do(deleteRecords(2, t, 0, 2))
		for _, offset := range []int64{0, 1, 2, 4} {
			s.fetch(t, 0, offset, false)
		}
	}},
	{"Fetch: from within a batch", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, s.plain("a", "b", "c")))
		s.produce(9, nil, t.at(0, s.plain("d")))
		s.fetch(t, 0, 1, false)
		s.fetch(t, 0, 2, true)
		s.fetch(t, 0, 3, true)
	}},
	{"Fetch: an open transaction holds read_committed back", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(9, nil, t.at(0, s.plain("a")))
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "b")))
		s.produce(9, nil, t.at(0, s.plain("behind")))
		for _, offset := range []int64{0, 1, 2, 3, 4} {
			s.fetch(t, 0, offset, true)
			s.fetch(t, 0, offset, false)
		}
		s.ended(5, p, commit)
		s.fetch(t, 0, 1, true)
	}},
	{"Fetch: the list of aborted transactions", func(s *script) {
		t := s.topic("t", 1)
		p, q := s.transactional("x"), s.transactional("y")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "p0"))) // 0
		s.produce(12, q.id, t.at(0, s.txn(q, 0, "q1"))) // 1
		s.produce(9, nil, t.at(0, s.plain("2")))
		p = s.ended(5, p, abort)                        // 3
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "p4"))) // 4
		q = s.ended(5, q, commit)                       // 5
		p = s.ended(5, p, commit)                       // 6
		s.produce(12, q.id, t.at(0, s.txn(q, 0, "q7"))) // 7
		s.ended(5, q, abort)                            // 8
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "p9"))) // 9, open
		for offset := range int64(11) {
			s.fetch(t, 0, offset, true)
		}
		s.fetch(t, 0, 0, false)
	}},
	{"Fetch: aborted transactions within a limit of bytes", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		for range 3 {
			s.produce(12, p.id, t.at(0, s.txn(p, 0, strings.Repeat("a", 100))))
			p = s.ended(5, p, abort)
		}
		// The data begins at 0, 2 and 4; the markers are 1, 3 and 5.
		for offset := range int64(6) {
			first := offset / 2 // of the aborted transactions that end at or after the offset
			const why = "ours lists what concerns the bytes returned; Kafka's limit is the next entry of its offset index"
			if first < 2 {
				s.differs("Topics[t].Partitions[0].AbortedTransactions", fmt.Sprint(3-first, " entries"), "1 entries", why)
			}
			for i := int64(1); first+i < 3; i++ {
				at := fmt.Sprintf("Topics[t].Partitions[0].AbortedTransactions[%d].", i)
				s.differs(at+"ProducerID", "producer#1", absent, why)
				s.differs(at+"FirstOffset", fmt.Sprint(2*(first+i)), absent, why)
			}
			req := fetchRequest(12, t, 0, offset, true)
			req.Topics[0].Partitions[0].PartitionMaxBytes = 1
			s.do(req)
		}
	}},
	{"Fetch: limits of bytes", func(s *script) {
		t := s.topic("t", 2)
		for range 3 {
			s.produce(9, nil, t.at(0, s.plain(strings.Repeat("x", 500))), t.at(1, s.plain(strings.Repeat("y", 500))))
		}
		ask := func(most, partition int32) {
			req := fetchRequest(12, t, 0, 0, false)
			rp := req.Topics[0].Partitions[0]
			rp.Partition = 1
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
			req.MaxBytes = most
			for i := range req.Topics[0].Partitions {
				req.Topics[0].Partitions[i].PartitionMaxBytes = partition
			}
			s.do(req)
		}
		for _, most := range []int32{0, 1, 600, 1200, 100_000} {
			ask(most, 100_000)
		}
		for _, partition := range []int32{0, 1, 600, 1200} {
			ask(100_000, partition)
		}
	}},
	{"Fetch: leader epochs", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, s.plain("a")))
		for _, v := range []int16{9, 12, 17} {
			for _, epoch := range []int32{-1, 0, 1} {
				req := fetchRequest(v, t, 0, 0, false)
				req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
				s.do(req)
			}
		}
	}},
	{"Fetch: a session is asked for", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, s.plain("a")))
		req := fetchRequest(12, t, 0, 0, false)
		req.SessionID, req.SessionEpoch = 0, 0
		resp, err := s.client("a").ask(req)
		if r := typed[*kmsg.FetchResponse](resp); r != nil {
			r.SessionID = 0 // ours refuses sessions, which is always legal
		}
		s.record("a", req, resp, err)
		req.SessionID, req.SessionEpoch = 12345, 1
		s.do(req)
		req.SessionID, req.SessionEpoch = 12345, -1
		s.do(req)
		req.SessionID, req.SessionEpoch = 0, 5
		s.do(req)
	}},
	{"Fetch: a request without partitions", func(s *script) {
		for _, v := range []int16{4, 12, 18} {
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.SessionEpoch, req.MaxBytes, req.ReplicaID = v, -1, 1<<20, -1
			s.do(req)
		}
	}},
	{"Fetch: a long poll ends when there is something", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		req := fetchRequest(12, t, 0, 0, true)
		req.MaxWaitMillis, req.MinBytes = 15_000, 1
		s.client("b").send(req)
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		s.ended(5, p, commit)
		s.client("b").receive(req)
	}},
	{"Fetch: an unknown isolation level", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, s.plain("a")))
		req := fetchRequest(12, t, 0, 0, false)
		req.IsolationLevel = 2
		s.do(req)
	}},
	{"OffsetForLeaderEpoch", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, s.plain("a", "b")))
		for v := int16(2); v <= 4; v++ {
			for _, epoch := range []int32{-1, 0, 1, 5} {
				s.do(epochRequest(v, t, 0, -1, epoch))
			}
			s.do(epochRequest(v, t, 0, 0, 0))
			s.do(epochRequest(v, t, 0, 3, 0))
			s.do(epochRequest(v, t, 1, -1, 0))
			s.do(epochRequest(v, s.missingTopic("none"), 0, -1, 0))
		}
	}},
}

func epochRequest(version int16, t topic, partition, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = version, -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = t.name
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = partition, current, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}
