package broker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/shard"
)

// Produce, key 0, versions 3 to 13. Order of checks: shared by Kafka's
// KafkaApis.handleProduceRequest and ReplicaManager.appendRecords.
//
// Different from Kafka: the whole request does not wait for one slow
// partition's checks; the reply waits for one sync of the journal, shared with
// whatever else is under way.

// decompressedMax bounds what one batch may expand to while it is checked.
// Broker.inflating bounds how many do so at a time: it is work for the
// processor, so more at once would only take more memory.
const decompressedMax = 256 << 20

// produceCall collects the partitions' answers to one request.
type produceCall struct {
	req     *kmsg.ProduceRequest
	resp    *kmsg.ProduceResponse
	pending *pendingReply
	left    atomic.Int32
	mu      sync.Mutex // guards resp and pending.lsn while answers come in
}

// produce starts the request: p.ready is closed when all of it is decided.
func (b *Broker) produce(req *kmsg.ProduceRequest, p *pendingReply) {
	c := &produceCall{req: req, resp: req.ResponseKind().(*kmsg.ProduceResponse), pending: p}
	p.failed = c.storageFailed
	c.left.Store(1) // held until all partitions have been started
	defer c.done()
	batches, whole := b.parseProduce(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		c.resp.Topics = append(c.resp.Topics, rt)
	}
	n := 0
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if whole == 0 {
				b.produceOne(c, i, j, &batches[n])
			} else {
				c.refuse(i, j, whole, "")
			}
			n++
		}
	}
}

// parsedBatch is a partition's first batch header, with the fault found.
type parsedBatch struct {
	header batch.Header
	err    error
}

// parseProduce reads the headers and makes the checks that concern the whole
// request; its second result is their code.
func (b *Broker) parseProduce(req *kmsg.ProduceRequest) ([]parsedBatch, int16) {
	var out []parsedBatch
	var producer *batch.Header
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			h, err := batch.ParseHeader(req.Topics[i].Partitions[j].Records)
			out = append(out, parsedBatch{h, err})
			if err != nil || !h.IsTransactional() {
				continue
			}
			switch {
			case req.TransactionID == nil:
				return out, kerr.TransactionalIDAuthorizationFailed.Code
			case producer == nil:
				producer = &out[len(out)-1].header
			case producer.ProducerID != h.ProducerID || producer.Epoch != h.Epoch:
				return out, kerr.InvalidProducerIDMapping.Code
			}
		}
	}
	if req.Acks < -1 || req.Acks > 1 {
		return out, kerr.InvalidRequiredAcks.Code
	}
	return out, 0
}

func (b *Broker) produceOne(c *produceCall, i, j int, parsed *parsedBatch) {
	rt, rp := &c.req.Topics[i], &c.req.Topics[i].Partitions[j]
	t := b.topics.byName(rt.Topic)
	if c.req.Version >= 13 {
		if t = b.topics.byID(rt.TopicID); t == nil {
			c.refuse(i, j, kerr.UnknownTopicID.Code, "")
			return
		}
	}
	if t == nil || rp.Partition < 0 || int(rp.Partition) >= len(t.Partitions) {
		c.refuse(i, j, kerr.UnknownTopicOrPartition.Code, "")
		return
	}
	if isInternal(t.Name) {
		c.refuse(i, j, kerr.InvalidTopicException.Code, "internal topics are written by the broker only")
		return
	}
	if parsed.err != nil || parsed.header.Codec() != 0 || t.conf.codec != batch.KeepCodec {
		b.inflating <- struct{}{}
		defer func() { <-b.inflating }()
	}
	h, invalid := batch.Validate(rp.Records, batch.ValidateOptions{
		NowMs: time.Now().UnixMilli(), BeforeMaxMs: t.conf.beforeMaxMs, AfterMaxMs: t.conf.afterMaxMs,
		AppendTime: t.conf.appendTime, Compacted: t.conf.compact, MaxMessageBytes: t.conf.messageMaxBytes,
		SegmentBytes: int(min(t.conf.segmentBytes, math.MaxInt32)), MaxDecompressedBytes: decompressedMax,
		ProduceVersion: c.req.Version,
	})
	if invalid != nil {
		c.invalid(i, j, t.Partitions[rp.Partition], invalid)
		return
	}
	raw := rp.Records[:h.Size()]
	if t.conf.codec != batch.KeepCodec {
		if raw, h, invalid = recompress(raw, t.conf); invalid != nil {
			c.invalid(i, j, t.Partitions[rp.Partition], invalid)
			return
		}
	}
	id := ""
	if c.req.TransactionID != nil {
		id = *c.req.TransactionID
	}
	c.left.Add(1)
	t.Partitions[rp.Partition].Produce(&shard.Produce{
		Raw: raw, Header: h, TransactionalID: id, Version: c.req.Version, AppendTime: t.conf.appendTime,
	}, func(r shard.ProduceResult) { c.answer(i, j, r) })
}

// recompress stores a batch under the codec that the topic wants. It may have
// grown over the topic's limit by that.
func recompress(raw []byte, conf topicConfig) ([]byte, batch.Header, *batch.Invalid) {
	raw, err := batch.Recompress(raw, conf.codec, decompressedMax)
	if err != nil {
		return nil, batch.Header{}, &batch.Invalid{Code: kerr.UnknownServerError.Code, Message: err.Error()}
	}
	if len(raw) > conf.messageMaxBytes {
		return nil, batch.Header{}, &batch.Invalid{Code: kerr.MessageTooLarge.Code, Message: "the batch, stored with the topic's compression.type, exceeds its max.message.bytes"}
	}
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return nil, batch.Header{}, &batch.Invalid{Code: kerr.UnknownServerError.Code, Message: err.Error()}
	}
	return raw, h, nil
}

// slot is a partition's place in the response, with what never varies.
func (c *produceCall) slot(i, j int) *kmsg.ProduceResponseTopicPartition {
	p := &c.resp.Topics[i].Partitions[j]
	p.Default()
	p.Partition = c.req.Topics[i].Partitions[j].Partition
	return p
}

func (c *produceCall) refuse(i, j int, code int16, msg string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.slot(i, j)
	p.ErrorCode, p.BaseOffset, p.LogAppendTime, p.LogStartOffset = code, -1, -1, -1
	if msg != "" {
		p.ErrorMessage = &msg
	}
}

func (c *produceCall) invalid(i, j int, log *shard.Partition, inv *batch.Invalid) {
	c.refuse(i, j, inv.Code, inv.Message)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.resp.Topics[i].Partitions[j]
	if inv.Code == kerr.InvalidRecord.Code || inv.Code == kerr.InvalidTimestamp.Code {
		p.LogStartOffset = int64(log.LogStart())
	}
	for _, r := range inv.Records {
		e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		e.RelativeOffset, e.ErrorMessage = r.Index, &r.Message
		p.ErrorRecords = append(p.ErrorRecords, e)
	}
}

func (c *produceCall) answer(i, j int, r shard.ProduceResult) {
	c.mu.Lock()
	p := c.slot(i, j)
	p.ErrorCode, p.BaseOffset = r.Code, int64(r.BaseOffset)
	p.LogAppendTime, p.LogStartOffset = r.AppendTimeMs, int64(r.LogStart)
	if r.Message != "" {
		p.ErrorMessage = &r.Message
	}
	c.pending.lsn = max(c.pending.lsn, r.LSN)
	c.mu.Unlock()
	c.done()
}

// done counts an answer; the last one completes the reply.
func (c *produceCall) done() {
	if c.left.Add(-1) > 0 {
		return
	}
	if c.req.Acks == 0 {
		for _, t := range c.resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 { // the only way to tell a client that wants no reply
					c.pending.err = kerr.ErrorForCode(p.ErrorCode)
				}
			}
		}
	} else {
		c.pending.resp = c.resp
	}
	close(c.pending.ready)
}

// storageFailed is the answer when the batches were appended but could not be
// made durable: they may or may not be there after a restart.
func (c *produceCall) storageFailed() kmsg.Response {
	for i := range c.resp.Topics {
		for j := range c.resp.Topics[i].Partitions {
			c.refuse(i, j, kerr.KafkaStorageError.Code, "the broker's disk failed; it must be restarted")
		}
	}
	return c.resp
}
