//go:build conformance

package replies_test

import (
	"crypto/md5"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// topic is a topic that a script uses; one that does not exist has an id that
// nobody knows.
type topic struct {
	name string
	id   [16]byte
}

// part is a partition of a request, with the records for it.
type part struct {
	topic
	partition int32
	raw       []byte
}

func (t topic) at(partition int32, raw []byte) part { return part{t, partition, raw} }

func (s *script) missingTopic(what string) topic {
	t := topic{s.name(what), md5.Sum([]byte(what + s.suffix))}
	s.names.topics[t.id] = t.name
	return t
}

// topic makes a topic, outside the recorded steps, and waits until the peer
// leads all of it.
func (s *script) topic(what string, partitions int32, configs ...string) topic {
	setup := s.client("setup")
	req := createRequest(7, createTopic(s.name(what), partitions, 1, configs...))
	resp, err := setup.ask(req)
	if err != nil || resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode != 0 {
		s.fail("create topic %s: %+v %v", what, resp, err)
	}
	return topic{s.name(what), s.awaitTopic(s.name(what))}
}

// awaitTopic waits until the topic's partitions have a leader: Kafka creates
// first and leads later.
func (s *script) awaitTopic(name string) [16]byte {
	steps := len(s.steps)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp := s.client("setup").until(req, func(r kmsg.Response) bool {
		t := r.(*kmsg.MetadataResponse).Topics[0]
		return t.ErrorCode == 0 && len(t.Partitions) > 0 &&
			!slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.ErrorCode != 0 || p.Leader < 0 })
	})
	// Kafka tells of a leader before the leader knows itself.
	meta := resp.(*kmsg.MetadataResponse).Topics[0]
	ends := listRequest(5, topic{name: name}, false, make([]int64, len(meta.Partitions))...)
	s.client("setup").until(ends, func(r kmsg.Response) bool {
		return !slices.ContainsFunc(r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions, func(p kmsg.ListOffsetsResponseTopicPartition) bool {
			return p.ErrorCode != 0
		})
	})
	s.steps = s.steps[:steps]
	if s.names.topics[meta.TopicID] = name; slices.Contains(s.made, name) {
		s.names.topics[meta.TopicID] = name + " anew"
	}
	s.made = append(s.made, name)
	return meta.TopicID
}

func createRequest(version int16, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.Topics = version, 10_000, topics
	return req
}

func createTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

// producer is a producer's identity.
type producer struct {
	id    *string // transactional id
	pid   int64
	epoch int16
}

// next is the producer with another epoch.
func (p producer) at(epoch int16) producer { p.epoch = epoch; return p }

func initRequest(version int16, id *string, timeoutMs int32, pid int64, epoch int16) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = version, id, timeoutMs
	req.ProducerID, req.ProducerEpoch = pid, epoch
	return req
}

// idempotent gets a producer id without a transactional id.
func (s *script) idempotent() producer {
	r := typed[*kmsg.InitProducerIDResponse](s.do(initRequest(4, nil, 60_000, -1, -1)))
	return producer{nil, r.ProducerID, r.ProducerEpoch}
}

// transactional makes a transactional producer.
func (s *script) transactional(what string) producer {
	id := s.name(what)
	r := typed[*kmsg.InitProducerIDResponse](s.until(initRequest(4, &id, 60_000, -1, -1), func(r kmsg.Response) bool {
		return r.(*kmsg.InitProducerIDResponse).ErrorCode != kerr.ConcurrentTransactions.Code
	}))
	return producer{&id, r.ProducerID, r.ProducerEpoch}
}

// options describe a batch.
type options struct {
	p          producer
	sequence   int32
	attributes batch.Attributes
	key        string
	noKey      bool
	offsetMs   int64 // of the first record, from the script's base time
}

// records builds a batch; the records lie one millisecond apart.
func (s *script) records(o options, values ...string) []byte {
	var b batch.Builder
	base := s.peer.baseMs + o.offsetMs
	b.Reset(batch.BuilderOptions{
		Attributes: o.attributes, ProducerID: batch.ProducerID(o.p.pid), Epoch: batch.Epoch(o.p.epoch),
		BaseSequence: o.sequence, BaseTimestampMs: base,
	})
	key := []byte(o.key)
	if o.noKey {
		key = nil
	}
	for i, v := range values {
		b.Append(base+int64(i), key, []byte(v), nil)
	}
	return b.Build(nil)
}

var nobody = producer{nil, -1, -1}

// plain is a batch without a producer.
func (s *script) plain(values ...string) []byte {
	return s.records(options{p: nobody, sequence: -1}, values...)
}

// idem is a batch of an idempotent producer, txn one within a transaction.
func (s *script) idem(p producer, sequence int32, values ...string) []byte {
	return s.records(options{p: p, sequence: sequence}, values...)
}

func (s *script) txn(p producer, sequence int32, values ...string) []byte {
	return s.records(options{p: p, sequence: sequence, attributes: batch.AttrTransactional}, values...)
}

// edited changes bytes of a batch and puts its CRC right again.
func edited(raw []byte, edit func(b []byte)) []byte {
	raw = slices.Clone(raw)
	edit(raw)
	batch.UpdateCRC(raw)
	return raw
}

// Positions in a batch.
const (
	posBaseOffset = 0
	posLength     = 8
	posMagic      = 16
	posCRC        = 17
	posAttributes = 21
	posLastDelta  = 23
	posMaxTime    = 35
	posPID        = 43
	posEpoch      = 51
	posSequence   = 53
	posCount      = 57
)

func put64(pos int, v int64) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint64(b[pos:], uint64(v)) }
}

func put32(pos int, v int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[pos:], uint32(v)) }
}

func setBits(bits batch.Attributes) func([]byte) {
	return func(b []byte) { b[posAttributes+1] |= byte(bits) }
}

func produceRequest(version int16, id *string, parts ...part) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis, req.TransactionID = version, -1, 10_000, id
	for _, p := range parts {
		i := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == p.name })
		if i < 0 {
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic, rt.TopicID = p.name, p.id
			i, req.Topics = len(req.Topics), append(req.Topics, rt)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p.partition, slices.Clone(p.raw)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

func (s *script) produce(version int16, id *string, parts ...part) *kmsg.ProduceResponse {
	return typed[*kmsg.ProduceResponse](s.do(produceRequest(version, id, parts...)))
}

// fetchRequest reads one partition from an offset, sessionless and without
// waiting.
func fetchRequest(version int16, t topic, partition int32, offset int64, committed bool) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes, req.SessionEpoch = version, -1, 50<<20, -1
	if committed {
		req.IsolationLevel = 1
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.name, t.id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, offset, 10<<20, -1
	rp.LastFetchedEpoch, rp.LogStartOffset = -1, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (s *script) fetch(t topic, partition int32, offset int64, committed bool) *kmsg.FetchResponse {
	return typed[*kmsg.FetchResponse](s.do(fetchRequest(12, t, partition, offset, committed)))
}

func listRequest(version int16, t topic, committed bool, timestamps ...int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	if committed {
		req.IsolationLevel = 1
	}
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.name
	for i, ts := range timestamps {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = int32(i), ts, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// list asks for an offset of partition 0.
func (s *script) list(version int16, t topic, timestamp int64, committed bool) {
	s.do(listRequest(version, t, committed, timestamp))
}

// byTopic yields each topic once, with its partitions, as clients name them.
func byTopic(parts []part) iter.Seq2[string, []int32] {
	return func(yield func(string, []int32) bool) {
		for i, p := range parts {
			same := func(o part) bool { return o.name == p.name }
			if slices.IndexFunc(parts, same) < i {
				continue
			}
			var partitions []int32
			for _, o := range parts {
				if same(o) {
					partitions = append(partitions, o.partition)
				}
			}
			if !yield(p.name, partitions) {
				return
			}
		}
	}
}

func addPartitions(version int16, p producer, parts ...part) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = version
	if version < 4 {
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = *p.id, p.pid, p.epoch
		for name, partitions := range byTopic(parts) {
			rt := kmsg.NewAddPartitionsToTxnRequestTopic()
			rt.Topic, rt.Partitions = name, partitions
			req.Topics = append(req.Topics, rt)
		}
		return req
	}
	tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
	tx.TransactionalID, tx.ProducerID, tx.ProducerEpoch = *p.id, p.pid, p.epoch
	for name, partitions := range byTopic(parts) {
		rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		rt.Topic, rt.Partitions = name, partitions
		tx.Topics = append(tx.Topics, rt)
	}
	req.Transactions = append(req.Transactions, tx)
	return req
}

func (s *script) add(version int16, p producer, parts ...part) {
	s.do(addPartitions(version, p, parts...))
}

func (s *script) addOffsets(version int16, p producer, group string) {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version, req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = version, *p.id, group, p.pid, p.epoch
	s.do(req)
}

func endRequest(version int16, p producer, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = version, *p.id, p.pid, p.epoch, commit
	return req
}

const (
	commit = true
	abort  = false
)

// end ends a transaction and returns the producer of the next one.
//
// CONCURRENT_TRANSACTIONS is asked again, as every client does: how long it is
// answered, by Kafka while a transaction's end is being written and by ours to a
// commit that may have overtaken its batches, is a matter of time.
func (s *script) end(version int16, p producer, commit bool) producer {
	r := typed[*kmsg.EndTxnResponse](s.until(endRequest(version, p, commit), func(r kmsg.Response) bool {
		return r.(*kmsg.EndTxnResponse).ErrorCode != kerr.ConcurrentTransactions.Code
	}))
	if r != nil && r.ErrorCode == 0 && version >= 5 {
		return producer{p.id, r.ProducerID, r.ProducerEpoch}
	}
	return p
}

func describeTransactions(ids ...string) *kmsg.DescribeTransactionsRequest {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	return req
}

// settled waits until the transaction is in that state: Kafka answers EndTxn
// before the markers are written.
func (s *script) settled(p producer, state string) {
	s.until(describeTransactions(*p.id), func(r kmsg.Response) bool {
		return r.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].State == state
	})
}

// ended is end, and waits until the markers are written.
func (s *script) ended(version int16, p producer, commit bool) producer {
	next := s.end(version, p, commit)
	if commit {
		s.settled(p, "CompleteCommit")
	} else {
		s.settled(p, "CompleteAbort")
	}
	return next
}
