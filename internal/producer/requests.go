package producer

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/producer/core"
)

// versionMaxProduce is the newest Produce we know: 13 carries topic ids.
const versionMaxProduce = 13

// produceRequest encodes the batches of one request, grouped by topic.
func (p *Producer) produceRequest(e core.SendProduce) *produceReq {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(p.cfg.RequestTimeout.Milliseconds())
	if p.cfg.TransactionalID != "" {
		req.TransactionID = &p.cfg.TransactionalID
	}
	versionMax := int16(versionMaxProduce)
	p.mu.Lock()
	for _, b := range e.Batches {
		pl := b.Payload.(*payload)
		i := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == pl.partition.topic })
		if i < 0 {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = pl.partition.topic, p.topics[pl.partition.topic].id
			if t.TopicID == ([16]byte{}) {
				versionMax = 12
			}
			i = len(req.Topics)
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = pl.partition.number, pl.bytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	p.mu.Unlock()
	if e.VersionMax != 0 {
		versionMax = min(versionMax, e.VersionMax)
	}
	id := e.Request
	return &produceReq{ProduceRequest: req, versionMax: versionMax, written: func() { p.step(core.WrittenEvent{Request: id}) }}
}

// produceReply turns an answer, or the lack of one, into an event.
func produceReply(e core.SendProduce, req *produceReq, resp kmsg.Response, err error) core.ProduceReplyEvent {
	out := core.ProduceReplyEvent{Request: e.Request, Lost: true}
	r, ok := resp.(*produceResp)
	if err != nil || !ok {
		return out
	}
	out.Lost = false
	out.ThrottleMs = int64(max(0, r.ThrottleMillis))
	out.Results = make([]core.ProduceResult, len(e.Batches))
	for i, b := range e.Batches {
		out.Results[i] = core.ProduceResult{Missing: true}
		pl := b.Payload.(*payload)
		t := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == pl.partition.topic })
		if rp := findResult(r.ProduceResponse, &req.Topics[t], pl.partition.number); rp != nil {
			out.Results[i] = core.ProduceResult{Code: rp.ErrorCode, BaseOffset: batch.Offset(rp.BaseOffset), Message: produceMessage(rp)}
		}
	}
	return out
}

func findResult(r *kmsg.ProduceResponse, topic *kmsg.ProduceRequestTopic, number int32) *kmsg.ProduceResponseTopicPartition {
	for i := range r.Topics {
		t := &r.Topics[i]
		if (r.Version >= 13 && t.TopicID != topic.TopicID) || (r.Version < 13 && t.Topic != topic.Topic) {
			continue
		}
		for j := range t.Partitions {
			if t.Partitions[j].Partition == number {
				return &t.Partitions[j]
			}
		}
	}
	return nil
}

// produceMessage is what the broker had to say about a refused batch.
func produceMessage(rp *kmsg.ProduceResponseTopicPartition) string {
	if rp.ErrorCode == 0 {
		return ""
	}
	var parts []string
	if rp.ErrorMessage != nil {
		parts = append(parts, *rp.ErrorMessage)
	}
	for i := range rp.ErrorRecords {
		if m := rp.ErrorRecords[i].ErrorMessage; m != nil && len(parts) < 4 {
			parts = append(parts, *m)
		}
	}
	return strings.Join(parts, "; ")
}

// control carries out one control request.
func (p *Producer) control(ctx context.Context, e core.SendControl) core.ControlReplyEvent {
	switch e.Kind {
	case core.ReqMetadata:
		return p.leaders(ctx, e.Partitions)
	case core.ReqFindTxnCoordinator:
		return p.findCoordinator(ctx, p.cfg.TransactionalID, 1)
	case core.ReqFindGroupCoordinator:
		p.mu.Lock()
		group := p.group
		p.mu.Unlock()
		return p.findCoordinator(ctx, group, 0)
	}
	req := &controlReq{Request: p.controlRequest(e), versionMax: math.MaxInt16}
	if e.VersionMax != 0 {
		req.versionMax = e.VersionMax
	}
	resp, err := p.net.control(ctx, e.Node, req)
	if err != nil {
		return core.ControlReplyEvent{Lost: true, NotSent: !req.maybeWritten(), Message: err.Error()}
	}
	return p.controlReply(e, resp)
}

func (p *Producer) controlRequest(e core.SendControl) kmsg.Request {
	id := p.cfg.TransactionalID
	pid, epoch := int64(e.Identity.ProducerID), int16(e.Identity.Epoch)
	switch e.Kind {
	case core.ReqFeatures:
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "hanbeon", "1"
		return req
	case core.ReqInitProducerID:
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis = int32(p.cfg.TransactionTimeout.Milliseconds())
		req.ProducerID, req.ProducerEpoch = pid, epoch
		if id != "" {
			req.TransactionalID = &id
		}
		return req
	case core.ReqDescribeTransaction:
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{id}
		return req
	case core.ReqAddPartitions:
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, pid, epoch
		req.Topics = p.addedTopics(e.Partitions)
		return req
	case core.ReqAddOffsets:
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, pid, epoch
		p.mu.Lock()
		req.Group = p.group
		p.mu.Unlock()
		return req
	case core.ReqTxnOffsetCommit:
		p.mu.Lock()
		req := *p.offsets // a copy: kgo sets its version
		p.mu.Unlock()
		req.ProducerID, req.ProducerEpoch = pid, epoch
		return &req
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, pid, epoch, e.Commit
	return req
}

func (p *Producer) addedTopics(indexes []int) []kmsg.AddPartitionsToTxnRequestTopic {
	var topics []kmsg.AddPartitionsToTxnRequestTopic
	parts := *p.partitions.Load()
	for _, i := range indexes {
		pt := parts[i]
		j := slices.IndexFunc(topics, func(t kmsg.AddPartitionsToTxnRequestTopic) bool { return t.Topic == pt.topic })
		if j < 0 {
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic = pt.topic
			j = len(topics)
			topics = append(topics, t)
		}
		topics[j].Partitions = append(topics[j].Partitions, pt.number)
	}
	return topics
}

func (p *Producer) controlReply(e core.SendControl, resp kmsg.Response) core.ControlReplyEvent {
	out := core.ControlReplyEvent{Unsupported: resp.GetVersion() < e.VersionMin && e.Kind != core.ReqEndTxn, Identity: core.NoIdentity}
	switch r := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		out.Code = r.ErrorCode
		out.Features = p.features(r)
	case *kmsg.InitProducerIDResponse:
		out.Code = r.ErrorCode
		out.Identity = core.Identity{ProducerID: batch.ProducerID(r.ProducerID), Epoch: batch.Epoch(r.ProducerEpoch)}
	case *kmsg.DescribeTransactionsResponse:
		if len(r.TransactionStates) != 1 {
			out.Lost = true
			break
		}
		out.Code = r.TransactionStates[0].ErrorCode
		out.Settled = !strings.HasPrefix(r.TransactionStates[0].State, "Prepare")
	case *kmsg.AddPartitionsToTxnResponse:
		out.Code = r.ErrorCode
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				out.Codes = append(out.Codes, r.Topics[i].Partitions[j].ErrorCode)
			}
		}
		out.Lost = out.Code == 0 && len(out.Codes) < len(e.Partitions)
	case *kmsg.AddOffsetsToTxnResponse:
		out.Code = r.ErrorCode
	case *kmsg.TxnOffsetCommitResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				out.Codes = append(out.Codes, r.Topics[i].Partitions[j].ErrorCode)
			}
		}
		out.Lost = len(out.Codes) == 0 // an answer for nothing is none
	case *kmsg.EndTxnResponse:
		out.Code = r.ErrorCode
		if r.Version >= 5 {
			out.Identity = core.Identity{ProducerID: batch.ProducerID(r.ProducerID), Epoch: batch.Epoch(r.ProducerEpoch)}
		}
	default:
		out.Lost = true
	}
	return out
}

// features reads the coordinator's finalized transaction.version and the
// request versions, lowered to the clients' own caps.
func (p *Producer) features(r *kmsg.ApiVersionsResponse) core.Features {
	f := core.Features{ProduceMax: -1, InitProducerIDMax: -1, TxnOffsetCommitMax: -1, EndTxnMax: -1}
	for _, k := range r.ApiKeys {
		limit := p.net.versionCap(k.ApiKey, k.MaxVersion)
		switch k.ApiKey {
		case 0:
			f.ProduceMax = limit
		case 22:
			f.InitProducerIDMax = limit
		case 26:
			f.EndTxnMax = limit
		case 28:
			f.TxnOffsetCommitMax = limit
		}
	}
	if r.FinalizedFeaturesEpoch >= 0 {
		for _, feature := range r.FinalizedFeatures {
			if feature.Name == "transaction.version" {
				f.TransactionVersion = feature.MaxVersionLevel
			}
		}
	}
	return f
}

// findCoordinator looks up the coordinator of a group (kind 0) or a
// transactional id (kind 1), after refreshing the broker addresses.
func (p *Producer) findCoordinator(ctx context.Context, key string, kind int8) core.ControlReplyEvent {
	if err := p.net.brokers(ctx); err != nil {
		return core.ControlReplyEvent{Lost: true, NotSent: true, Message: err.Error()}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorType, req.CoordinatorKeys = key, kind, []string{key}
	resp, err := p.net.control(ctx, core.NoNode, req)
	if err != nil {
		return core.ControlReplyEvent{Lost: true, Message: err.Error()}
	}
	r, ok := resp.(*kmsg.FindCoordinatorResponse)
	if !ok {
		return core.ControlReplyEvent{Lost: true}
	}
	out := core.ControlReplyEvent{Code: r.ErrorCode, Node: r.NodeID}
	if r.ErrorMessage != nil {
		out.Message = *r.ErrorMessage
	}
	if len(r.Coordinators) == 1 {
		c := &r.Coordinators[0]
		out.Code, out.Node = c.ErrorCode, c.NodeID
		if c.ErrorMessage != nil {
			out.Message = *c.ErrorMessage
		}
	}
	return out
}

func (p *Producer) metadata(ctx context.Context, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return p.net.metadata(ctx, req)
}

// leaders asks for the leaders of partitions and remembers topic ids.
func (p *Producer) leaders(ctx context.Context, indexes []int) core.ControlReplyEvent {
	parts := *p.partitions.Load()
	var names []string
	for _, i := range indexes {
		if !slices.Contains(names, parts[i].topic) {
			names = append(names, parts[i].topic)
		}
	}
	resp, err := p.metadata(ctx, names)
	if err != nil {
		return core.ControlReplyEvent{Lost: true, Message: err.Error()}
	}
	recreated := p.learnTopics(resp)
	out := core.ControlReplyEvent{Leaders: make([]core.LeaderInfo, 0, len(indexes))}
	for _, i := range indexes {
		l := core.LeaderInfo{Partition: i, Code: 3, Node: core.NoNode, Recreated: recreated[parts[i].topic]}
		for j := range resp.Topics {
			t := &resp.Topics[j]
			if t.Topic == nil || *t.Topic != parts[i].topic {
				continue
			}
			if t.ErrorCode != 0 {
				l.Code = t.ErrorCode
			}
			for k := range t.Partitions {
				if rp := &t.Partitions[k]; rp.Partition == parts[i].number {
					l.Code, l.Node = rp.ErrorCode, rp.Leader
				}
			}
		}
		out.Leaders = append(out.Leaders, l)
	}
	return out
}

func (p *Producer) learnTopics(resp *kmsg.MetadataResponse) (recreated map[string]bool) {
	recreated = make(map[string]bool)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil || t.ErrorCode != 0 || t.TopicID == ([16]byte{}) {
			continue
		}
		old, known := p.topics[*t.Topic]
		recreated[*t.Topic] = known && old.id != t.TopicID
		p.topics[*t.Topic] = topicInfo{id: t.TopicID}
	}
	return recreated
}

// offsetRequest encodes the offsets of a commit; the identity is set when it
// is sent.
func offsetRequest(transactionalID string, g GroupMetadata, offsets Offsets) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = transactionalID, g.GroupID
	req.MemberID, req.Generation, req.InstanceID = g.MemberID, g.GenerationID, g.InstanceID
	tps := make([]batch.TopicPartition, 0, len(offsets))
	for tp := range offsets {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, batch.TopicPartition.Compare)
	for _, tp := range tps {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		o := offsets[tp]
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = tp.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, rp)
	}
	return req
}
