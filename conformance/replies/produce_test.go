//go:build conformance

package replies_test

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Produce: the checks of one request, in their order.
var produceScenarios = []scenario{
	{"produce and read back", produceAndRead},
	{"acks other than -1, 0 and 1", func(s *script) {
		t := s.topic("t", 2)
		req := produceRequest(9, nil, t.at(0, s.plain("a")), t.at(1, s.plain("b")))
		for _, req.Acks = range []int16{2, -2, 1, 100} {
			s.do(req)
		}
	}},
	{"acks 0 has no reply, and an error closes the connection", acksNone},
	{"transactional batch without a transactional id", func(s *script) {
		t := s.topic("t", 2)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		// The whole request is refused, the plain batch too.
		s.produce(9, nil, t.at(0, s.txn(p, 0, "a")), t.at(1, s.plain("b")))
		s.fetch(t, 1, 0, false)
	}},
	{"unknown topic, partition and topic id", func(s *script) {
		t, none := s.topic("t", 1), s.missingTopic("none")
		for _, v := range []int16{3, 9, 13} {
			s.produce(v, nil, none.at(0, s.plain("a")))
			s.produce(v, nil, t.at(1, s.plain("a")))
			s.produce(v, nil, t.at(-1, s.plain("a")))
			s.produce(v, nil, t.at(0, s.plain("a")), t.at(7, s.plain("a")), none.at(0, s.plain("a")))
		}
	}},
	{"a topic id of zero", func(s *script) {
		s.produce(13, nil, topic{}.at(0, s.plain("a")))
	}},
	{"length field below the minimum, magic out of range", func(s *script) {
		t := s.topic("t", 1)
		for _, raw := range [][]byte{
			edited(s.plain("a"), put32(posLength, 13)), edited(s.plain("a"), put32(posLength, 14)),
			edited(s.plain("a"), put32(posLength, -1)), edited(s.plain("a"), put32(posLength, 48))[:60],
			edited(s.plain("a"), func(b []byte) { b[posMagic] = 3 }), edited(s.plain("a"), func(b []byte) { b[posMagic] = 0xff }),
		} {
			s.produce(9, nil, t.at(0, raw))
		}
	}},
	{"magic 0 and 1", func(s *script) {
		t := s.topic("t", 1)
		for _, magic := range []byte{0, 1} {
			s.produce(9, nil, t.at(0, edited(s.plain("a"), func(b []byte) { b[posMagic] = magic })))
		}
		s.produce(9, nil, t.at(0, oldMessage(1)))
		s.produce(9, nil, t.at(0, oldMessage(0)))
	}},
	{"no batch, half a batch", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, []byte{}))
		s.produce(3, nil, t.at(0, []byte{}))
		raw := s.plain("a")
		s.produce(9, nil, t.at(0, raw[:len(raw)-1]))
		s.produce(9, nil, t.at(0, raw[:16]))
		s.produce(9, nil, t.at(0, raw[:5]))
	}},
	{"two batches, a batch and rest", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, slices.Concat(s.plain("a"), s.plain("b"))))
		s.produce(9, nil, t.at(0, slices.Concat(s.plain("a"), s.plain("b"), s.plain("c"))))
		s.oursRefuses("a torn second batch is refused: what is not appended should not be acknowledged")
		s.produce(9, nil, t.at(0, append(s.plain("a"), 0, 0, 0)))
	}},
	{"zstd below Produce version 7", func(s *script) {
		t := s.topic("t", 1)
		raw := s.records(options{p: nobody, sequence: -1, attributes: batch.Attributes(4)}, strings.Repeat("z", 500))
		for _, v := range []int16{3, 6, 7, 9} {
			s.produce(v, nil, t.at(0, raw))
		}
	}},
	{"two producers in one request", func(s *script) {
		t := s.topic("t", 2)
		p, q := s.transactional("x"), s.transactional("y")
		s.add(3, p, t.at(0, nil))
		s.add(3, q, t.at(1, nil))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")), t.at(1, s.txn(q, 0, "b")))
		s.produce(9, p.id, t.at(0, s.txn(p, 0, "a")), t.at(1, s.txn(p.at(5), 0, "b")))
		// Idempotent batches may differ.
		i, j := s.idempotent(), s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(i, 0, "a")), t.at(1, s.idem(j, 0, "b")))
	}},
	{"internal topics", func(s *script) {
		s.produce(9, nil, topic{name: "__consumer_offsets"}.at(0, s.plain("a")))
		s.produce(9, nil, topic{name: "__transaction_state"}.at(0, s.plain("a")))
	}},
	{"base offset other than 0", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, edited(s.plain("a"), put64(posBaseOffset, 5))))
		s.produce(9, nil, t.at(0, edited(s.plain("a"), put64(posBaseOffset, -5))))
	}},
	{"batch above max.message.bytes", func(s *script) {
		t := s.topic("t", 1, "max.message.bytes", "200")
		s.produce(9, nil, t.at(0, s.plain(strings.Repeat("a", 300))))
		raw := s.plain(strings.Repeat("a", 131))
		s.produce(9, nil, t.at(0, raw))
		s.produce(9, nil, t.at(0, s.plain(strings.Repeat("a", 132))))
		s.produce(9, nil, t.at(0, s.plain(strings.Repeat("a", 130))))
	}},
	{"wrong CRC", func(s *script) {
		t := s.topic("t", 1)
		raw := s.plain("a")
		raw[posCRC] ^= 1
		s.produce(9, nil, t.at(0, raw))
		raw = s.plain("a")
		raw[len(raw)-2] ^= 1
		s.produce(9, nil, t.at(0, raw))
	}},
	{"record count and last offset delta", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, edited(s.plain("a"), put32(posCount, 0))))
		s.produce(9, nil, t.at(0, edited(s.plain("a"), put32(posCount, -1))))
		s.produce(9, nil, t.at(0, edited(s.plain("a", "b"), put32(posCount, 1))))
		s.produce(9, nil, t.at(0, edited(s.plain("a", "b"), put32(posLastDelta, 2))))
		s.produce(9, nil, t.at(0, edited(s.plain("a", "b"), put32(posLastDelta, -1))))
		both := func(b []byte) { put32(posCount, 3)(b); put32(posLastDelta, 2)(b) }
		s.produce(9, nil, t.at(0, edited(s.plain("a", "b"), both)))
		fewer := func(b []byte) { put32(posCount, 1)(b); put32(posLastDelta, 0)(b) }
		s.produce(9, nil, t.at(0, edited(s.plain("a", "b"), fewer)))
	}},
	{"control batch from a client", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, edited(s.plain("a"), setBits(batch.AttrControl))))
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.produce(9, p.id, t.at(0, edited(s.txn(p, 0, "a"), setBits(batch.AttrControl))))
		s.produce(9, p.id, t.at(0, batch.AppendMarker(nil, batch.ProducerID(p.pid), batch.Epoch(p.epoch), batch.ControlCommit, 0, 0)))
	}},
	{"producer id without a sequence", func(s *script) {
		t := s.topic("t", 1)
		p := s.idempotent()
		s.produce(9, nil, t.at(0, s.idem(p, -1, "a")))
		s.produce(9, nil, t.at(0, s.idem(p, -2, "a")))
	}},
	{"producer id without an epoch", producerWithoutEpoch},
	{"payload that does not decode", brokenPayload},
	{"times outside the topic's bounds", timeBounds},
	{"append-time batch from a client", func(s *script) {
		t := s.topic("t", 1)
		raw := edited(s.plain("a", "b"), setBits(batch.AttrAppendTime))
		for _, v := range []int16{3, 7, 8, 9} {
			s.produce(v, nil, t.at(0, raw))
		}
		s.fetch(t, 0, 0, false) // the mark is gone
		s.list(7, t, -3, false)
	}},
	{"compacted topic takes no record without a key", compactedTopic},
	{"batch above segment.bytes", func(s *script) {
		t := s.topic("t", 1, "segment.bytes", "1048576", "max.message.bytes", "3000000")
		s.produce(9, nil, t.at(0, s.plain(strings.Repeat("a", 1_048_576))))
		s.produce(9, nil, t.at(0, s.plain("fits")))
	}},
	{"append-time topic", func(s *script) {
		t := s.topic("t", 1, "message.timestamp.type", "LogAppendTime")
		p := s.idempotent()
		raw := s.idem(p, 0, "a", "b")
		s.produce(9, nil, t.at(0, raw))
		s.produce(9, nil, t.at(0, raw)) // a duplicate has the time of the first
		s.fetch(t, 0, 0, false)
		s.produce(9, nil, t.at(0, edited(s.idem(p, 2, "c"), setBits(batch.AttrAppendTime))))
	}},
	{"every codec", func(s *script) {
		t := s.topic("t", 1)
		for codec := range batch.Attributes(5) {
			s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, attributes: codec}, strings.Repeat("c", 300), "d")))
		}
		s.fetch(t, 0, 0, false)
	}},
	{"codecs that do not exist", func(s *script) {
		t := s.topic("t", 1)
		for _, codec := range []batch.Attributes{5, 6, 7} {
			s.differs("Topics[t].Partitions[0].ErrorCode", "-1 UNKNOWN_SERVER_ERROR", "76 UNSUPPORTED_COMPRESSION_TYPE",
				"Kafka answers its own exception; the code that says what is wrong is at hand")
			s.produce(9, nil, t.at(0, edited(s.plain("a"), setBits(codec))))
		}
	}},
	{"a topic's own compression", func(s *script) {
		for _, codec := range []string{"gzip", "lz4", "uncompressed"} {
			t := s.topic(codec, 1, "compression.type", codec)
			s.produce(9, nil, t.at(0, s.plain(strings.Repeat("p", 300))))
			s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, attributes: 4}, strings.Repeat("z", 300))))
			s.fetch(t, 0, 0, false)
		}
	}},
	{"one bad partition does not hold the others back", func(s *script) {
		t := s.topic("t", 3)
		bad := s.plain("b")
		bad[posCRC] ^= 1
		s.produce(9, nil, t.at(0, s.plain("a")), t.at(1, bad), t.at(2, s.plain("c")))
		s.fetch(t, 0, 0, false)
		s.fetch(t, 1, 0, false)
	}},
	{"a wrong max timestamp is put right", func(s *script) {
		t := s.topic("t", 1)
		s.produce(9, nil, t.at(0, edited(s.plain("a", "b"), put64(posMaxTime, s.peer.baseMs+40_000))))
		s.fetch(t, 0, 0, false)
		s.list(7, t, -3, false)
	}},
	{"transactional bit without a producer", func(s *script) {
		t := s.topic("t", 1)
		p := s.transactional("x")
		s.add(3, p, t.at(0, nil))
		s.oursRefuses("such a batch belongs to no transaction: nothing would ever end it")
		s.produce(9, p.id, t.at(0, edited(s.plain("a"), setBits(batch.AttrTransactional))))
	}},
	{"offset deltas other than 0 to n-1", offsetDeltas},
	{"min.insync.replicas above the number of replicas", func(s *script) {
		t := s.topic("t", 1, "min.insync.replicas", "2")
		s.produce(9, nil, t.at(0, s.plain("a")))
		req := produceRequest(9, nil, t.at(0, s.plain("a")))
		req.Acks = 1
		s.do(req)
	}},
	{"delete horizon bit from a client", func(s *script) {
		t := s.topic("t", 1)
		s.oursRefuses("the bit says that the base timestamp is something else: the records' times would be read wrong")
		s.produce(9, nil, t.at(0, edited(s.plain("a"), setBits(batch.AttrDeleteHorizon))))
	}},
	{"the same partition twice in a request", func(s *script) {
		t := s.topic("t", 1)
		const why = "Kafka drops all but the last without a word; here what is sent is appended, and answered"
		s.differs("Topics[t].Partitions", "1 entries", "2 entries", why)
		for field, value := range map[string]string{
			"Partition": "0", "ErrorCode": "0", "BaseOffset": "1", "LogAppendTime": "-1", "LogStartOffset": "0", "ErrorRecords": "null",
			"CurrentLeader.LeaderID": "-1", "CurrentLeader.LeaderEpoch": "-1",
		} {
			s.differs("Topics[t].Partitions[0 #2]."+field, absent, value, why)
		}
		s.produce(9, nil, t.at(0, s.plain("a")), t.at(0, s.plain("b")))
	}},
	{"a request without partitions", func(s *script) {
		s.produce(9, nil)
		s.produce(3, nil)
		s.produce(13, nil)
	}},
}

// oursRefuses announces that Kafka appends the next batch and ours does not.
func (s *script) oursRefuses(reason string) {
	s.differs("Topics[t].Partitions[0].ErrorCode", "0", "87 INVALID_RECORD", reason)
	s.differs("Topics[t].Partitions[0].BaseOffset", "0", "-1", reason)
	s.differs("Topics[t].Partitions[0].LogStartOffset", "0", absent, reason)
}

func produceAndRead(s *script) {
	t := s.topic("t", 1)
	for v := int16(3); v <= 13; v++ {
		s.produce(v, nil, t.at(0, s.plain("a", "b")))
	}
	s.fetch(t, 0, 0, false)
	s.fetch(t, 0, 0, true)
}

func acksNone(s *script) {
	t := s.topic("t", 1)
	req := produceRequest(9, nil, t.at(0, s.plain("a")))
	req.Acks = 0
	c := s.client("a")
	c.send(req)
	// The next reply is that of the next request.
	c.until(fetchRequest(12, t, 0, 0, false), func(r kmsg.Response) bool {
		return len(r.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches) > 0
	})
	bad := s.plain("b")
	bad[posCRC] ^= 1
	req = produceRequest(9, nil, t.at(0, bad))
	req.Acks = 0
	c.send(req)
	c.receive(req)
}

// oldMessage is a message of the formats before record batches.
func oldMessage(magic byte) []byte {
	b := make([]byte, 40)
	binary.BigEndian.PutUint32(b[8:], 28)
	b[posMagic] = magic
	return b
}

func producerWithoutEpoch(s *script) {
	t := s.topic("t", 1)
	p := s.idempotent()
	s.oursRefuses("a producer id without an epoch can be neither fenced nor told from a later one")
	s.produce(9, nil, t.at(0, s.idem(p.at(-1), 0, "a")))
}

func brokenPayload(s *script) {
	t := s.topic("t", 1)
	// A record that ends before its length says so, and one that is longer.
	s.produce(9, nil, t.at(0, edited(s.plain("abc"), func(b []byte) { b[batch.HeaderSize] -= 2 })))
	s.produce(9, nil, t.at(0, edited(s.plain("abc"), func(b []byte) { b[batch.HeaderSize] += 2 })))
	s.produce(9, nil, t.at(0, edited(s.plain("abc", "def"), func(b []byte) { b[batch.HeaderSize] += 2 })))
	// A negative length, and a header count below 0.
	s.produce(9, nil, t.at(0, edited(s.plain("abc"), func(b []byte) { b[batch.HeaderSize] = 1 })))
	s.produce(9, nil, t.at(0, edited(s.plain("abc"), func(b []byte) { b[len(b)-1] = 1 })))
	// What is no gzip, and gzip of something else.
	for codec := batch.Attributes(1); codec <= 4; codec++ {
		s.differs("Topics[t].Partitions[0].ErrorCode", "-1 UNKNOWN_SERVER_ERROR", "87 INVALID_RECORD",
			"Kafka answers its codec's exception; the code that says what is wrong is at hand")
		s.produce(9, nil, t.at(0, edited(s.plain("abc"), setBits(codec))))
	}
	both := func(b []byte) { put32(posCount, 3)(b); put32(posLastDelta, 2)(b) }
	s.produce(9, nil, t.at(0, edited(s.records(options{p: nobody, sequence: -1, attributes: 1}, strings.Repeat("g", 200), "b"), both)))
}

func timeBounds(s *script) {
	t := s.topic("t", 1, "message.timestamp.before.max.ms", "7200000", "message.timestamp.after.max.ms", "7200000")
	hour := int64(3_600_000)
	// The script's time is an hour ago.
	s.produce(9, nil, t.at(0, s.plain("in bounds")))
	for _, v := range []int16{7, 9} {
		s.produce(v, nil, t.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: -2 * hour}, "old", "old too")))
		s.produce(v, nil, t.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: 4 * hour}, "far ahead")))
	}
	// Without bounds of its own a topic takes any old time, and an hour ahead.
	u := s.topic("u", 1)
	s.produce(9, nil, u.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: -1000 * hour}, "old")))
	s.produce(9, nil, u.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: 3 * hour}, "far ahead")))
	// No time at all is accepted.
	s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: -1 - s.peer.baseMs}, "timeless")))
	// An append-time topic does not care.
	w := s.topic("w", 1, "message.timestamp.type", "LogAppendTime")
	s.produce(9, nil, w.at(0, s.records(options{p: nobody, sequence: -1, offsetMs: 4 * hour}, "far ahead")))
}

func compactedTopic(s *script) {
	keyless := options{p: nobody, sequence: -1, noKey: true}
	for _, policy := range []string{"compact", "compact,delete"} {
		t := s.topic(strings.ReplaceAll(policy, ",", "-"), 1, "cleanup.policy", policy)
		for _, v := range []int16{3, 7, 8, 9} {
			s.produce(v, nil, t.at(0, s.records(keyless, "a", "b")))
		}
		s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, noKey: true, attributes: 1}, strings.Repeat("g", 300))))
		s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, key: "k"}, "a")))
	}
	// Both faults at once: the time decides the code.
	t := s.topic("bounded", 1, "cleanup.policy", "compact", "message.timestamp.before.max.ms", "1000")
	s.produce(9, nil, t.at(0, s.records(keyless, "a", "b")))
	s.produce(9, nil, t.at(0, s.records(options{p: nobody, sequence: -1, key: "k"}, "a", "b")))
}

// offsetDeltas: the third record of a batch claims another delta.
func offsetDeltas(s *script) {
	t := s.topic("t", 1)
	raw := edited(s.plain("a", "b"), func(b []byte) {
		// length, attributes and time delta are one byte each
		second := batch.HeaderSize + 1 + int(b[batch.HeaderSize]>>1)
		b[second+3] = 2 // zigzag of 1 is the right one; this is 1 again, then 0
		b[second+3] = 0
	})
	s.oursRefuses("two records at one offset: a reader that starts in between would see other records than one that does not")
	s.produce(9, nil, t.at(0, raw))
}
