//go:build conformance

package replies_test

import "github.com/twmb/franz-go/pkg/kmsg"

// EndTxn under both transaction versions: in every state, right, wrong and
// repeated.
var endTxnScenarios = []scenario{
	{"EndTxn: codes of every version", func(s *script) {
		p := s.transactional("x")
		for v := int16(0); v <= 5; v++ {
			s.end(v, producer{kmsg.StringPtr(s.name("none")), 1, 0}, commit)
			s.end(v, producer{p.id, p.pid + 100_000, p.epoch}, commit)
			s.end(v, p.at(p.epoch+2), commit)
			s.end(v, p.at(p.epoch+2), abort)
			s.end(v, p.at(-1), commit)
			s.end(v, p.at(-1), abort)
			s.end(v, producer{kmsg.StringPtr(""), p.pid, p.epoch}, commit)
			s.end(v, p.at(32767), abort)
		}
	}},
	{"EndTxn v0 to v4 without a transaction", func(s *script) {
		p := s.transactional("x")
		for v := int16(0); v <= 4; v++ {
			s.end(v, p, commit)
			s.end(v, p, abort)
		}
		s.do(describeTransactions(*p.id))
	}},
	{"EndTxn v0 to v4: commit, and again", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		for v := int16(0); v <= 4; v++ {
			s.add(3, p, t.at(0, nil))
			s.ended(v, p, commit)
			s.end(v, p, commit)
			s.end(v, p, abort)
		}
	}},
	{"EndTxn v0 to v4: abort, and again", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		for v := int16(0); v <= 4; v++ {
			s.add(3, p, t.at(0, nil))
			s.ended(v, p, abort)
			s.end(v, p, abort)
			s.end(v, p, commit)
		}
	}},
	{"EndTxn v5 without a transaction", func(s *script) {
		p := s.transactional("x")
		s.end(5, p, commit)
		q := s.end(5, p, abort)
		s.settled(p, "CompleteAbort")
		s.do(describeTransactions(*p.id))
		s.end(5, p, abort) // again
		s.end(5, p, commit)
		s.end(5, q, commit)
		s.end(5, q, abort)
		s.settled(q, "CompleteAbort")
	}},
	{"EndTxn v5: commit, and again", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		q := s.ended(5, p, commit)
		s.end(5, p, commit) // again: the same answer
		s.end(5, p, abort)
		s.end(5, q, commit) // nothing was written in the next one
		r := s.ended(5, q, abort)
		s.end(5, q, commit)
		s.end(5, p, commit)
		s.produce(12, r.id, t.at(0, s.txn(r, 0, "b")))
		s.ended(5, r, commit)
		s.fetch(t, 0, 0, true)
	}},
	{"EndTxn v5: abort, and again", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		q := s.ended(5, p, abort)
		s.end(5, p, abort)
		s.end(5, p, commit)
		s.end(5, q, commit)
		s.ended(5, q, abort)
		s.fetch(t, 0, 0, true)
	}},
	{"EndTxn v5 ends what AddPartitionsToTxn v3 began", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		q := s.ended(5, p, commit)
		s.produce(9, p.id, t.at(0, s.txn(p, 1, "late")))
		s.add(3, q, t.at(0, nil))
		s.produce(9, q.id, t.at(0, s.txn(q, 0, "b")))
		s.ended(3, q, commit)
		s.do(describeProducers(t, 0))
		s.fetch(t, 0, 0, true)
	}},
	{"EndTxn v3 ends what Produce v12 began", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		s.ended(3, p, commit)
		s.end(5, p, commit)
		s.end(5, p, abort)
		s.settled(p, "CompleteAbort")
		s.do(describeTransactions(*p.id))
	}},
	{"EndTxn v5: old epochs are fenced", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		q := s.ended(5, p, commit)
		s.produce(12, q.id, t.at(0, s.txn(q, 0, "b")))
		s.end(5, p, commit)
		s.end(5, p, abort)
		s.end(3, p, commit)
		s.produce(12, p.id, t.at(0, s.txn(p, 1, "late")))
		s.ended(5, q, commit)
	}},
	{"EndTxn over several partitions", func(s *script) {
		t, u := s.topic("t", 3), s.topic("u", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")), t.at(2, s.txn(p, 0, "b")), u.at(0, s.txn(p, 0, "c")))
		s.do(describeTransactions(*p.id))
		s.ended(5, p, commit)
		for _, at := range []part{t.at(0, nil), t.at(1, nil), t.at(2, nil), u.at(0, nil)} {
			s.fetch(at.topic, at.partition, 0, true)
		}
		s.do(describeTransactions(*p.id))
	}},
	{"EndTxn after the topic was deleted", func(s *script) {
		t, u := s.topic("t", 1), s.topic("u", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")), u.at(0, s.txn(p, 0, "b")))
		s.deleteTopic(t)
		s.ended(5, p, commit)
		s.fetch(u, 0, 0, true)
	}},
	{"a new producer after each end", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		s.ended(5, p, commit)
		q := s.transactional("x")
		s.produce(12, q.id, t.at(0, s.txn(q, 0, "b")))
		s.ended(5, q, abort)
		r := s.transactional("x")
		s.produce(12, r.id, t.at(0, s.txn(r, 0, "c")))
		s.ended(5, r, commit)
		s.fetch(t, 0, 0, true)
		s.fetch(t, 0, 0, false)
	}},
	{"epochs run out: EndTxn v5 gives a new producer id", exhaustedByEnd},
	{"epochs run out: InitProducerId gives a new producer id", exhaustedByInit},
}

// lastEpoch walks to the last epoch that a client may hold, 32766. The requests
// are sent ahead of their answers, and only the first and the last are compared.
func (s *script) lastEpoch() producer {
	const last = 32766
	p := s.transactional("x")
	c := s.client("a")
	req := initRequest(4, p.id, 60_000, -1, -1)
	const ahead = 200
	for done := int16(0); done < last-1; {
		n := min(ahead, last-1-done)
		for range n {
			c.send(req)
		}
		c.n -= int32(n)
		for range n {
			c.n++
			resp, err := c.read(req)
			if err != nil {
				s.fail("%v", err)
			}
			done = resp.(*kmsg.InitProducerIDResponse).ProducerEpoch
		}
	}
	return s.transactional("x")
}

func exhaustedByEnd(s *script) {
	t := s.topic("t", 1)
	p := s.lastEpoch()
	s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
	q := s.ended(5, p, commit) // a new producer id, epoch 0
	s.end(5, p, commit)        // again: the same answer
	s.end(5, p, abort)
	s.end(5, p.at(p.epoch-1), commit)
	s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch-1))
	s.do(describeTransactions(*p.id))
	s.produce(12, q.id, t.at(0, s.txn(q, 0, "b")))
	s.ended(5, q, commit)
	s.fetch(t, 0, 0, true)
}

func exhaustedByInit(s *script) {
	t := s.topic("t", 1)
	p := s.lastEpoch()
	q := typed[*kmsg.InitProducerIDResponse](s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch)))
	s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch)) // a retry: the same answer
	s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch-1))
	s.do(initRequest(4, p.id, 60_000, q.ProducerID, q.ProducerEpoch))
	s.do(initRequest(4, p.id, 60_000, p.pid, p.epoch)) // no longer
	s.do(describeTransactions(*p.id))
	s.add(3, p, t.at(0, nil))
	s.end(5, p, abort)
}

// deleteTopic deletes a topic, outside the recorded steps, and waits until it
// is gone.
func (s *script) deleteTopic(t topic) {
	steps := len(s.steps)
	setup := s.client("setup")
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.TopicNames = 5, 10_000, []string{t.name}
	if resp, err := setup.ask(req); err != nil || resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode != 0 {
		s.fail("delete topic: %+v %v", resp, err)
	}
	setup.until(metadataRequest(12, t.name), func(r kmsg.Response) bool {
		return r.(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0
	})
	s.steps = s.steps[:steps]
}

func metadataRequest(version int16, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = version, []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}
