//go:build conformance

package replies_test

import "github.com/twmb/franz-go/pkg/kmsg"

// WriteTxnMarkers, as the tool that ends hanging transactions uses it.
var markerScenarios = []scenario{
	{"WriteTxnMarkers: ends a transaction in one partition", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")))
		s.do(writeMarker(1, p, 0, abort, t.at(0, nil)))
		s.fetch(t, 0, 0, true)
		s.do(describeProducers(t, 0))
		s.ended(3, p, commit)
		s.fetch(t, 0, 0, true)
	}},
	{"WriteTxnMarkers: epochs", func(s *script) {
		t := s.topic("t", 1)
		p := producer{nil, 1 << 41, 0}
		s.do(writeMarker(1, p.at(5), 0, commit, t.at(0, nil)))
		s.do(writeMarker(1, p.at(4), 0, commit, t.at(0, nil)))
		s.do(writeMarker(1, p.at(5), 0, abort, t.at(0, nil)))
		s.do(writeMarker(1, p.at(6), 3, abort, t.at(0, nil)))
		s.do(writeMarker(1, p.at(6), 2, abort, t.at(0, nil))) // an older coordinator
		s.do(writeMarker(1, p.at(7), 2, abort, t.at(0, nil)))
		s.do(describeProducers(t, 0))
		s.fetch(t, 0, 0, true)
		// Only sequence 0 fits after a marker.
		s.produce(9, nil, t.at(0, s.idem(p.at(6), 1, "a")))
		s.produce(9, nil, t.at(0, s.idem(p.at(6), 0, "a")))
		s.produce(9, nil, t.at(0, s.idem(p.at(5), 0, "a")))
	}},
	{"WriteTxnMarkers v2: the epochs of transaction version 2", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.produce(12, p.id, t.at(0, s.txn(p, 0, "a")))
		mark := func(epoch int16, version int8) {
			req := writeMarker(2, p.at(epoch), 0, abort, t.at(0, nil))
			req.Markers[0].TransactionVersion = version
			s.do(req)
		}
		mark(p.epoch, 2) // the epoch of the open transaction: late
		mark(p.epoch+1, 2)
		mark(p.epoch+1, 2) // again: nothing is open
		mark(p.epoch, 2)
		mark(p.epoch, 0)
		mark(p.epoch+1, 1)
		s.fetch(t, 0, 0, true)
	}},
	{"WriteTxnMarkers: partitions that do not exist", func(s *script) {
		t := s.topic("t", 1)
		p := producer{nil, 1 << 42, 0}
		s.do(writeMarker(1, p, 0, commit, t.at(1, nil), s.missingTopic("none").at(0, nil), t.at(0, nil)))
		s.do(writeMarker(2, p, 0, commit, t.at(1, nil)))
		s.do(writeMarker(1, p, 0, commit))
		s.do(func() kmsg.Request { r := kmsg.NewPtrWriteTxnMarkersRequest(); r.Version = 1; return r }())
	}},
}

func writeMarker(version int16, p producer, coordinatorEpoch int32, commit bool, parts ...part) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = version
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Committed = p.pid, p.epoch, coordinatorEpoch, commit
	for name, partitions := range byTopic(parts) {
		mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		mt.Topic, mt.Partitions = name, partitions
		m.Topics = append(m.Topics, mt)
	}
	req.Markers = append(req.Markers, m)
	return req
}
