//go:build conformance

package replies_test

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sequences, duplicates and epochs of idempotent producers.
var sequenceScenarios = []scenario{
	{"a duplicate is answered with its first offset", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.plain("before")))
		s.produce(9, nil, t.at(0, s.idem(p, 0, "a", "b")))
		s.produce(9, nil, t.at(0, s.plain("between")))
		s.produce(9, nil, t.at(0, s.idem(p, 0, "a", "b")))
		s.produce(9, nil, t.at(0, s.idem(p, 0, "other", "values")))
		s.fetch(t, 0, 0, false)
	}},
	{"five batches are remembered", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		for i := range int32(7) {
			s.produce(9, nil, t.at(0, s.idem(p, 2*i, "a", "b")))
		}
		for i := range int32(7) {
			s.produce(9, nil, t.at(0, s.idem(p, 2*i, "a", "b")))
		}
		// The same first sequence with another length is no duplicate.
		s.produce(9, nil, t.at(0, s.idem(p, 12, "a")))
		s.produce(9, nil, t.at(0, s.idem(p, 13, "b")))
	}},
	{"a gap in the sequence", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(p, 0, "a")))
		s.produce(9, nil, t.at(0, s.idem(p, 2, "c")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "b")))
		s.produce(9, nil, t.at(0, s.idem(p, 2, "c")))
	}},
	{"an unknown producer may begin anywhere", func(s *script) {
		t := s.topic("t", 2)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(p, 17, "a")))
		s.produce(9, nil, t.at(0, s.idem(p, 18, "b")))
		s.produce(9, nil, t.at(1, s.idem(p.at(3), 5, "a")))
		s.produce(9, nil, t.at(1, s.idem(p.at(3), 6, "b")))
	}},
	{"a producer id that was never given out", func(s *script) {
		t := s.topic("t", 1)
		p := producer{nil, 1 << 40, 2}
		s.produce(9, nil, t.at(0, s.idem(p, 0, "a")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "b")))
	}},
	{"epochs: an old one, a new one with and without sequence 0", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(p.at(5), 0, "a")))
		for _, v := range []int16{3, 9, 12, 13} {
			s.produce(v, nil, t.at(0, s.idem(p.at(4), 1, "b")))
		}
		s.produce(9, nil, t.at(0, s.idem(p.at(6), 1, "c")))
		s.produce(9, nil, t.at(0, s.idem(p.at(6), 0, "c")))
		s.produce(9, nil, t.at(0, s.idem(p.at(5), 1, "d")))
		// The new epoch has forgotten the old one's batches.
		s.produce(9, nil, t.at(0, s.idem(p.at(5), 0, "a")))
		s.produce(9, nil, t.at(0, s.idem(p.at(6), 1, "d")))
	}},
	{"the sequence wraps", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(p, math.MaxInt32-1, "a", "b")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "c")))
		s.produce(9, nil, t.at(0, s.idem(p, 0, "c")))
		s.produce(9, nil, t.at(0, s.idem(p, math.MaxInt32-1, "a", "b")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "d")))
	}},
	{"the sequence wraps within a batch", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(p, math.MaxInt32-1, "a", "b", "c", "d")))
		s.produce(9, nil, t.at(0, s.idem(p, math.MaxInt32-1, "a", "b", "c", "d")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "e")))
		s.produce(9, nil, t.at(0, s.idem(p, 2, "e")))
	}},
	{"partitions count for themselves", func(s *script) {
		t := s.topic("t", 2)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(p, 0, "a")), t.at(1, s.idem(p, 0, "b")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "a")), t.at(1, s.idem(p, 5, "b")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "a")), t.at(1, s.idem(p, 1, "b")))
	}},
	{"idempotence at acks 1", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		req := produceRequest(9, nil, t.at(0, s.idem(p, 0, "a")))
		req.Acks = 1
		s.do(req)
		s.do(req)
		req = produceRequest(9, nil, t.at(0, s.idem(p, 3, "a")))
		req.Acks = 1
		s.do(req)
	}},
	{"a plain batch in an open transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.produce(9, p.id, t.at(0, s.idem(p, 1, "b")))
		s.produce(9, nil, t.at(0, s.idem(p, 1, "b")))
		s.produce(9, p.id, t.at(0, s.txn(p, 1, "b")))
		s.ended(3, p, commit)
		s.produce(9, nil, t.at(0, s.idem(p, 2, "c")))
	}},
	{"what DescribeProducers shows", func(s *script) {
		t := s.topic("t", 3)
		p, x := s.idempotent(), s.transactional("x")
		s.produce(9, nil, t.at(0, s.idem(p, 0, "a", "b")))
		s.add(3, x, t.at(0, nil), t.at(1, nil))
		s.produce(9, x.id, t.at(0, s.txn(x, 0, "c", "d")), t.at(1, s.txn(x, 0, "e")))
		s.do(describeProducers(t, 0, 1, 2))
		s.ended(3, x, abort)
		s.do(describeProducers(t, 0, 1, 2))
	}},
	{"DescribeProducers of what does not exist", func(s *script) {
		t := s.topic("t", 1)
		s.do(describeProducers(t, 0, 1, -1))
		s.do(describeProducers(s.missingTopic("none"), 0))
		s.do(describeProducers(topic{name: "not a name"}, 0))
		s.do(describeProducers(topic{name: ""}, 0))
		s.do(kmsg.NewPtrDescribeProducersRequest())
	}},
	{"sequences after records were deleted", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		for i := range int32(3) {
			s.produce(9, nil, t.at(0, s.idem(p, i, fmt.Sprint(i))))
		}
		s.do(deleteRecords(2, t, 0, -1))
		s.produce(9, nil, t.at(0, s.idem(p, 2, "2")))
		s.produce(9, nil, t.at(0, s.idem(p, 5, "5")))
		s.produce(9, nil, t.at(0, s.idem(p, 3, "3")))
	}},
}

func describeProducers(t topic, partitions ...int32) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = t.name, partitions
	req.Topics = append(req.Topics, rt)
	return req
}

func deleteRecords(version int16, t topic, partition int32, offset int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = version, 10_000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = t.name
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = partition, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}
