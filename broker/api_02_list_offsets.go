package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/shard"
)

// ListOffsets, key 2, versions 1 to 11.

// The timestamps that name an offset instead of a time.
const (
	listLatest        = -1
	listEarliest      = -2
	listMaxTimestamp  = -3 // v7+
	listEarliestLocal = -4 // v8+
	listLatestTiered  = -5 // v9+
	listEarliestReady = -6 // v11+
)

func (b *Broker) listOffsets(r *request) reply {
	req := r.Request.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	seen := map[batch.TopicPartition]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			seen[batch.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	answered := map[batch.TopicPartition]bool{}
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, want := range t.Partitions {
			tp := batch.TopicPartition{Topic: t.Topic, Partition: want.Partition}
			if answered[tp] {
				continue // named twice, answered once, with an error
			}
			answered[tp] = true
			out := kmsg.NewListOffsetsResponseTopicPartition()
			out.Partition, out.Timestamp, out.Offset, out.LeaderEpoch = want.Partition, -1, -1, -1
			p := b.partition(t.Topic, want.Partition)
			switch {
			case seen[tp] > 1:
				out.ErrorCode = kerr.InvalidRequest.Code
			case p == nil:
				out.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				if out.ErrorCode = b.checkLeaderEpoch(want.CurrentLeaderEpoch); out.ErrorCode == 0 {
					b.listOffset(req, p, want.Timestamp, &out)
				}
			}
			rt.Partitions = append(rt.Partitions, out)
		}
		if len(rt.Partitions) == 0 && len(t.Partitions) > 0 {
			continue
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp}
}

func (b *Broker) listOffset(req *kmsg.ListOffsetsRequest, p *shard.Partition, ts int64, out *kmsg.ListOffsetsResponseTopicPartition) {
	bound := p.HighWatermark()
	if req.Version >= 2 && req.IsolationLevel == 1 {
		bound = p.LastStable()
	}
	found := func(off batch.Offset, timestampMs int64) {
		out.Offset, out.Timestamp, out.LeaderEpoch = int64(off), timestampMs, b.env.LeaderEpoch
	}
	switch {
	case ts == listLatest:
		found(bound, -1)
	case ts == listEarliest, ts == listEarliestLocal && req.Version >= 8:
		found(p.LogStart(), -1)
	case ts == listMaxTimestamp && req.Version >= 7:
		off, maxMs, err := p.Log().MaxTimestamp()
		switch {
		case err != nil:
			b.listFailed(p, ts, err, out)
		case off >= 0 && off < bound:
			found(off, maxMs)
		}
	case ts == listLatestTiered && req.Version >= 9, ts == listEarliestReady && req.Version >= 11:
		// Nothing is tiered: -1.
	case ts < 0:
		out.ErrorCode = kerr.UnsupportedVersion.Code
	default:
		off, foundMs, err := firstAtOrAfter(p, ts, bound)
		switch {
		case err != nil:
			b.listFailed(p, ts, err, out)
		case off >= 0 && off < bound:
			found(off, foundMs)
		}
	}
}

func (b *Broker) listFailed(p *shard.Partition, ts int64, err error, out *kmsg.ListOffsetsResponseTopicPartition) {
	if p.Stopped() {
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
		return
	}
	b.cfg.Logger.Error("offset look-up failed", "topic", p.TP.Topic, "partition", p.TP.Partition, "timestamp", ts, "err", err)
	out.ErrorCode = kerr.KafkaStorageError.Code
}

// firstAtOrAfter finds the first record of a time or later; offset -1 if
// there is none. The log names the batch, the record is found in it.
func firstAtOrAfter(p *shard.Partition, ms int64, bound batch.Offset) (batch.Offset, int64, error) {
	base, _, ok, err := p.Log().OffsetForTimestamp(ms, bound)
	if err != nil || !ok {
		return -1, -1, err
	}
	raw, err := p.Log().Read(nil, base, 1, p.LogEnd(), true)
	if err != nil || len(raw) == 0 {
		return -1, -1, err
	}
	h, raw, _, err := batch.Split(raw)
	if err != nil {
		return -1, -1, err
	}
	for r, err := range batch.Records(raw) {
		if err != nil {
			return -1, -1, err
		}
		off := h.BaseOffset + batch.Offset(r.OffsetDelta)
		if at := h.TimestampMs(&r); at >= ms && off >= p.LogStart() {
			return off, at, nil
		}
	}
	return -1, -1, nil
}
