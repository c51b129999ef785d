//go:build conformance

package replies_test

import "github.com/twmb/franz-go/pkg/kmsg"

// What the partition asks of the transaction coordinator before the first
// transactional write (KIP-890), as each version of Produce and TxnOffsetCommit
// tells it.
var verificationScenarios = []scenario{
	{"Produce without AddPartitionsToTxn, every version", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		for v := int16(3); v <= 11; v++ {
			s.produce(v, p.id, t.at(0, s.txn(p, 0, "a")))
		}
		for _, v := range []int16{12, 13} {
			s.produce(v, p.id, t.at(0, s.txn(p, int32(v-12), "a")))
		}
		s.do(describeTransactions(*p.id))
	}},
	{"Produce into a partition that was not added", func(s *script) {
		t := s.topic("t", 2)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")), t.at(1, s.txn(p, 0, "b")))
		s.produce(11, p.id, t.at(1, s.txn(p, 0, "b")))
		s.produce(12, p.id, t.at(1, s.txn(p, 0, "b")))
		s.ended(5, p, commit)
		s.fetch(t, 1, 0, true)
	}},
	{"Produce with a wrong producer or epoch, every version", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		for v := int16(3); v <= 13; v++ {
			s.produce(v, p.id, t.at(0, s.txn(p.at(p.epoch+1), 0, "a")))
			s.produce(v, p.id, t.at(0, s.txn(producer{p.id, p.pid + 100_000, 0}, 0, "a")))
			s.produce(v, kmsg.StringPtr(s.name("none")), t.at(0, s.txn(p, 0, "a")))
		}
	}},
	{"Produce with an epoch that the coordinator has fenced", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.transactional("x")
		for v := int16(3); v <= 13; v++ {
			s.produce(v, p.id, t.at(0, s.txn(p, 0, "a")))
		}
	}},
	{"Produce after the end of the transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.ended(3, p, abort)
		// Same epoch: only the verification stands between it and the log.
		for v := int16(3); v <= 11; v++ {
			s.produce(v, p.id, t.at(0, s.txn(p, 1, "late")))
		}
		// A duplicate is one, whatever came after it.
		const why = "it is in the log and nothing is appended: Kafka asks the coordinator before it looks"
		s.differs("Topics[t].Partitions[0].ErrorCode", "48 INVALID_TXN_STATE", "0", why)
		s.differs("Topics[t].Partitions[0].BaseOffset", "-1", "0", why)
		s.differs("Topics[t].Partitions[0].LogAppendTime", "-1", "T+0", why)
		s.differs("Topics[t].Partitions[0].LogStartOffset", absent, "0", why)
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.fetch(t, 0, 0, true)
	}},
	{"Produce v12 after the end of the transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		q := s.ended(5, p, commit)
		s.produce(12, p.id, t.at(0, s.txn(p, 1, "late")))
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		s.produce(12, q.id, t.at(0, s.txn(q, 1, "b"))) // a new epoch begins at 0
		s.produce(12, q.id, t.at(0, s.txn(q, 0, "b")))
	}},
	{"Produce v12 must begin with sequence 0", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 3, "a")))
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		s.produce(12, p.id, t.at(0, s.txn(p, 1, "b")))
		s.ended(5, p, commit)
	}},
	{"Produce v9 may begin with any sequence", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 3, "a")))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.produce(9, p.id, t.at(0, s.txn(p, 4, "a")))
	}},
	{"a refused verification remembers the lowest sequence", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 1, "b"))) // would overtake
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.produce(9, p.id, t.at(0, s.txn(p, 1, "b")))
	}},
	{"two partitions of one request, one of them refused", func(s *script) {
		t := s.topic("t", 2)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(11, p.id, t.at(0, s.txn(p, 0, "a")), t.at(1, s.txn(p, 0, "b")))
		s.ended(3, p, commit)
		s.fetch(t, 0, 0, true)
		s.fetch(t, 1, 0, true)
	}},
	{"TxnOffsetCommit without AddOffsetsToTxn, every version", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		g := stranger(s.name("g"))
		for v := int16(0); v <= 5; v++ {
			s.do(txnCommitRequest(v, p, g, at{t, 0, 5}))
		}
		s.do(describeGroups(5, g.group))
		s.ended(5, p, commit)
		s.do(committed(8, g.group, true, at{t, 0, 0}))
	}},
	{"TxnOffsetCommit with a wrong producer or epoch, every version", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		g := stranger(s.name("g"))
		s.addOffsets(3, p, g.group)
		for v := int16(0); v <= 5; v++ {
			s.do(txnCommitRequest(v, p.at(p.epoch+1), g, at{t, 0, 5}))
			s.do(txnCommitRequest(v, producer{p.id, p.pid + 100_000, 0}, g, at{t, 0, 5}))
			s.do(txnCommitRequest(v, producer{kmsg.StringPtr(s.name("none")), p.pid, p.epoch}, g, at{t, 0, 5}))
			s.do(txnCommitRequest(v, p.at(-1), g, at{t, 0, 5}))
			s.do(txnCommitRequest(v, producer{p.id, -1, -1}, g, at{t, 0, 5}))
			s.do(txnCommitRequest(v, producer{kmsg.StringPtr(""), p.pid, p.epoch}, g, at{t, 0, 5}))
		}
	}},
	{"TxnOffsetCommit after the end of the transaction", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		g := stranger(s.name("g"))
		s.addOffsets(3, p, g.group)
		s.do(txnCommitRequest(3, p, g, at{t, 0, 5}))
		s.ended(3, p, commit)
		s.do(txnCommitRequest(3, p, g, at{t, 0, 6}))
		s.do(txnCommitRequest(4, p, g, at{t, 0, 6}))
		s.do(committed(8, g.group, true, at{t, 0, 0}))
	}},
}
