//go:build conformance

package replies_test

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId, AddPartitionsToTxn and AddOffsetsToTxn.
var transactionScenarios = []scenario{
	{"InitProducerId: what a request may say", func(s *script) {
		id := s.name("x")
		for _, v := range []int16{0, 2, 3, 4, 5} {
			s.do(initRequest(v, nil, 60_000, -1, -1))
			s.do(initRequest(v, kmsg.StringPtr(""), 60_000, -1, -1))
			for _, timeout := range []int32{0, -1, 900_001} {
				s.do(initRequest(v, &id, timeout, -1, -1))
			}
		}
		for _, v := range []int16{3, 4, 5} {
			s.do(initRequest(v, &id, 60_000, 5, -1))
			s.do(initRequest(v, &id, 60_000, -1, 5))
			s.do(initRequest(v, nil, 60_000, 5, -1))
			s.do(initRequest(v, nil, 60_000, 5, 5))
			s.do(initRequest(v, nil, 0, -1, -1))
		}
		s.do(initRequest(4, &id, 900_000, -1, -1))
		s.do(initRequest(4, &id, 1, -1, -1))
	}},
	{"InitProducerId: each takes the next epoch", func(s *script) {
		id := s.name("x")
		for _, v := range []int16{0, 1, 2, 3, 4, 5} {
			s.do(initRequest(v, &id, 60_000, -1, -1))
		}
		s.do(describeTransactions(id))
	}},
	{"InitProducerId: with the pair that the client has (KIP-360)", func(s *script) {
		p := s.transactional("x")
		s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch))
		s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch)) // a retry
		s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch+1))
		for _, v := range []int16{3, 4, 5} {
			s.do(initRequest(v, p.id, 60_000, p.pid, p.epoch)) // neither current nor last
			s.do(initRequest(v, p.id, 60_000, p.pid, p.epoch+9))
			s.do(initRequest(v, p.id, 60_000, p.pid+100_000, p.epoch))
		}
		s.do(initRequest(4, p.id, 60_000, -1, -1))
		s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch+2)) // after a newcomer
	}},
	{"InitProducerId: a pair for an id that is new here", func(s *script) {
		id := s.name("x")
		r := typed[*kmsg.InitProducerIDResponse](s.do(initRequest(4, &id, 60_000, 1<<40, 7)))
		s.do(initRequest(4, &id, 60_000, 1<<40, 7))
		s.do(initRequest(4, &id, 60_000, r.ProducerID, r.ProducerEpoch))
	}},
	{"InitProducerId fences an open transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		q := s.transactional("x")
		s.do(describeTransactions(*p.id))
		s.produce(9, p.id, t.at(0, s.txn(p, 1, "late")))
		s.add(3, p, t.at(0, nil))
		s.end(3, p, commit)
		s.end(5, p, commit)
		s.add(3, q, t.at(0, nil))
		s.produce(9, q.id, t.at(0, s.txn(q, 0, "b")))
		s.ended(3, q, commit)
		s.fetch(t, 0, 0, true)
	}},
	{"InitProducerId with the current pair fences an open transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.until(initRequest(4, p.id, 60_000, p.pid, p.epoch), func(r kmsg.Response) bool {
			return r.(*kmsg.InitProducerIDResponse).ErrorCode != kerr.ConcurrentTransactions.Code
		})
		s.do(describeTransactions(*p.id))
	}},
	{"InitProducerId: the first answer to a fenced transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.do(initRequest(4, p.id, 60_000, -1, -1))
	}},
	{"InitProducerId changes the timeout", func(s *script) {
		id := s.name("x")
		s.do(initRequest(4, &id, 60_000, -1, -1))
		s.do(describeTransactions(id))
		s.do(initRequest(4, &id, 5_000, -1, -1))
		s.do(describeTransactions(id))
	}},
	{"AddPartitionsToTxn: codes of every version", addPartitionsCodes},
	{"AddPartitionsToTxn: an unknown partition holds all back", func(s *script) {
		t, none := s.topic("t", 1), s.missingTopic("none")
		p := s.transactional("x")
		for _, v := range []int16{0, 3, 4, 5} {
			s.add(v, p, t.at(0, nil), none.at(0, nil))
			s.add(v, p, t.at(0, nil), t.at(1, nil))
		}
		s.do(describeTransactions(*p.id))
		s.add(3, p, t.at(0, nil))
		s.do(describeTransactions(*p.id))
	}},
	{"AddPartitionsToTxn: nothing to add", func(s *script) {
		p := s.transactional("x")
		for _, v := range []int16{0, 3, 4} {
			s.add(v, p)
		}
		s.do(describeTransactions(*p.id))
	}},
	{"AddPartitionsToTxn: internal topics", func(s *script) {
		p := s.transactional("x")
		s.add(3, p, topic{name: "__consumer_offsets"}.at(3, nil))
		s.do(describeTransactions(*p.id))
	}},
	{"AddPartitionsToTxn: verify only", func(s *script) {
		t := s.topic("t", 2)
		p := s.transactional("x")
		verify := func(v int16, p producer) {
			req := addPartitions(v, p, t.at(0, nil), t.at(1, nil))
			req.Transactions[0].VerifyOnly = true
			s.do(req)
		}
		for _, v := range []int16{4, 5} {
			verify(v, p)
		}
		s.add(3, p, t.at(0, nil))
		for _, v := range []int16{4, 5} {
			verify(v, p)
			verify(v, p.at(p.epoch+1))
			verify(v, producer{p.id, p.pid + 100_000, p.epoch})
			verify(v, producer{kmsg.StringPtr(s.name("none")), 1, 0})
		}
	}},
	{"AddPartitionsToTxn: two transactions in one request", func(s *script) {
		t := s.topic("t", 1)
		p, q := s.transactional("x"), s.transactional("y")
		req := addPartitions(4, p, t.at(0, nil))
		req.Transactions = append(req.Transactions, addPartitions(4, q.at(9), t.at(0, nil)).Transactions...)
		s.do(req)
		s.do(describeTransactions(*p.id, *q.id))
	}},
	{"AddOffsetsToTxn: codes of every version", func(s *script) {
		p := s.transactional("x")
		group := s.name("g")
		for v := int16(0); v <= 4; v++ {
			s.addOffsets(v, producer{kmsg.StringPtr(s.name("none")), 1, 0}, group)
			s.addOffsets(v, producer{p.id, p.pid + 100_000, p.epoch}, group)
			s.addOffsets(v, p.at(p.epoch+1), group)
			s.addOffsets(v, p.at(-1), group)
			s.addOffsets(v, producer{kmsg.StringPtr(""), p.pid, p.epoch}, group)
		}
		s.addOffsets(3, p, group)
		s.addOffsets(3, p, group)
	}},
	{"AddOffsetsToTxn: an empty group id", func(s *script) {
		p := s.transactional("x")
		s.addOffsets(3, p, "")
		s.do(describeTransactions(*p.id))
	}},
	{"a transaction that times out is aborted", func(s *script) {
		t := s.topic("t", 1)
		id := s.name("x")
		r := typed[*kmsg.InitProducerIDResponse](s.do(initRequest(4, &id, 100, -1, -1)))
		p := producer{&id, r.ProducerID, r.ProducerEpoch}
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.settled(p, "CompleteAbort")
		s.fetch(t, 0, 0, true)
		// What the client learns, by version; an abort of version 2 goes on.
		s.produce(9, p.id, t.at(0, s.txn(p, 1, "b")))
		s.produce(12, p.id, t.at(0, s.txn(p, 1, "b")))
		s.add(1, p, t.at(0, nil))
		s.add(3, p, t.at(0, nil))
		s.end(1, p, commit)
		s.end(3, p, commit)
		s.end(3, p, abort)
		s.end(5, p, commit)
		s.end(5, p, abort)
		s.do(describeTransactions(id))
	}},
	{"DescribeTransactions: states and unknown ids", func(s *script) {
		t := s.topic("t", 2)
		p := s.transactional("x")
		s.do(describeTransactions(*p.id, s.name("none"), ""))
		s.add(3, p, t.at(1, nil), t.at(0, nil))
		s.do(describeTransactions(*p.id))
		s.ended(3, p, commit)
		s.do(describeTransactions(*p.id))
		s.add(3, p, t.at(0, nil))
		s.ended(3, p, abort)
		s.do(describeTransactions(*p.id))
		s.do(describeTransactions())
	}},
	{"ListTransactions: filters", listTransactions},
	{"recovery of a producer under version 1 (KIP-360)", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.produce(9, p.id, t.at(0, s.txn(p, 5, "gap")))
		s.ended(3, p, abort)
		r := typed[*kmsg.InitProducerIDResponse](s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch)))
		q := producer{p.id, r.ProducerID, r.ProducerEpoch}
		s.add(3, q, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 1, "late")))
		s.produce(9, q.id, t.at(0, s.txn(q, 1, "not 0")))
		s.produce(9, q.id, t.at(0, s.txn(q, 0, "b")))
		s.ended(3, q, commit)
		s.fetch(t, 0, 0, true)
	}},
	{"consume, transform, produce under version 1", func(s *script) { consumeTransformProduce(s, 1) }},
	{"consume, transform, produce under version 2", func(s *script) { consumeTransformProduce(s, 2) }},
	{"two transactional ids do not meet", func(s *script) {
		t := s.topic("t", 1)
		p, q := s.transactional("x"), s.transactional("y")
		s.add(3, p, t.at(0, nil))
		s.add(3, q, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.produce(9, q.id, t.at(0, s.txn(q, 0, "b")))
		s.produce(9, p.id, t.at(0, s.txn(q, 1, "c"))) // under the other's id
		s.ended(3, q, commit)
		s.fetch(t, 0, 0, true)
		s.ended(3, p, abort)
		s.fetch(t, 0, 0, true)
	}},
}

// consumeTransformProduce is what a stream processor does, twice: a transaction
// that commits and one that aborts, each with records and offsets.
func consumeTransformProduce(s *script, version int) {
	in, out := s.topic("in", 1), s.topic("out", 2)
	s.produce(9, nil, in.at(0, s.plain("1", "2", "3")))
	m := s.alone(s.name("g"))
	p := s.transactional("x")
	for i, decision := range []bool{commit, abort, commit} {
		offset := int64(i + 1)
		s.do(committed(8, m.group, true, at{in, 0, 0}))
		produceV, offsetsV, endV := int16(9), int16(3), int16(3)
		sequence := int32(i)
		if version == 2 {
			produceV, offsetsV, endV = 12, 5, 5
			sequence = 0
		} else {
			s.add(3, p, out.at(0, nil), out.at(1, nil))
		}
		s.produce(produceV, p.id, out.at(0, s.txn(p, sequence, "even")), out.at(1, s.txn(p, sequence, "odd")))
		if version == 1 {
			s.addOffsets(3, p, m.group)
		}
		s.do(txnCommitRequest(offsetsV, p, m.at(m.generation-1), at{in, 0, 99})) // a zombie
		s.do(txnCommitRequest(offsetsV, p, m, at{in, 0, offset}))
		s.do(describeTransactions(*p.id))
		s.do(committed(8, m.group, true, at{in, 0, 0}))
		s.do(committed(8, m.group, false, at{in, 0, 0}))
		p = s.ended(endV, p, decision)
		s.do(committed(8, m.group, true, at{in, 0, 0}))
		s.fetch(out, 0, 0, true)
		s.list(7, out, -1, true)
	}
}

func addPartitionsCodes(s *script) {
	t := s.topic("t", 2)
	p := s.transactional("x")
	for v := int16(0); v <= 5; v++ {
		s.add(v, producer{kmsg.StringPtr(s.name("none")), 1, 0}, t.at(0, nil))
		s.add(v, producer{p.id, p.pid + 100_000, p.epoch}, t.at(0, nil))
		s.add(v, p.at(p.epoch+1), t.at(0, nil))
		s.add(v, p.at(-1), t.at(0, nil))
		s.add(v, producer{kmsg.StringPtr(""), p.pid, p.epoch}, t.at(0, nil))
	}
	for v := int16(0); v <= 5; v++ {
		s.add(v, p, t.at(0, nil))
	}
	s.add(3, p, t.at(0, nil), t.at(1, nil))
	s.do(describeTransactions(*p.id))
}

// listTransactions keeps to this script's own transactions.
func listTransactions(s *script) {
	t := s.topic("t", 1)
	p, q := s.transactional("x"), s.transactional("y")
	s.add(3, p, t.at(0, nil))
	own := []int64{p.pid, q.pid}
	ask := func(version int16, edit func(*kmsg.ListTransactionsRequest)) {
		req := kmsg.NewPtrListTransactionsRequest()
		req.Version, req.ProducerIDFilters, req.DurationFilterMillis = version, own, -1
		edit(req)
		s.do(req)
	}
	for v := int16(0); v <= 2; v++ {
		ask(v, func(*kmsg.ListTransactionsRequest) {})
		ask(v, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing"} })
		ask(v, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Empty", "Nonsense"} })
		ask(v, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"ongoing"} })
		ask(v, func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{q.pid} })
	}
	ask(1, func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 3_600_000 })
	ask(1, func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 0 })
	for _, pattern := range []string{"", "x.*", "y-.*", "x", ".*nothing", "[", "x|y.*"} {
		ask(2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = &pattern })
	}
	s.ended(3, p, commit)
	ask(2, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"CompleteCommit"} })
}
