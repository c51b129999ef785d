package broker

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
)

// Fetch, key 1, versions 4 to 18.
//
// Different from Kafka: fetch sessions (KIP-227) are refused by answering
// session id 0, which is always legal. read_uncommitted reads up to the high
// watermark, which here is the durable end of the log.

const (
	// fetchMaxBytes bounds one response whatever the client asks for
	// (fetch.max.bytes of the broker).
	fetchMaxBytes = 55 << 20
	// fetchMaxWait bounds a long poll.
	fetchMaxWait = 5 * time.Minute
)

func (b *Broker) fetch(r *request) reply {
	req := r.Request.(*kmsg.FetchRequest)
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	// Epochs 0 and -1 ask for all that is named, whatever session is named with
	// them; a later epoch continues a session, and there are none.
	if req.Version >= 7 && req.SessionEpoch > 0 {
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return reply{resp: resp}
	}
	if req.IsolationLevel < 0 || req.IsolationLevel > 1 {
		return reply{resp: fetchRefused(req, kerr.UnknownServerError.Code)} // as Kafka, which does not expect it
	}
	var parts []*shard.Partition
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if p := b.fetchPartition(req, i, j); p != nil {
				parts = append(parts, p)
			}
		}
	}
	bytes, settled := b.collect(req, resp)
	if settled || bytes >= int(req.MinBytes) || req.MaxWaitMillis <= 0 {
		return reply{resp: resp}
	}
	wake := make(chan struct{}, 1)
	for _, p := range parts {
		p.Subscribe(wake)
		defer p.Unsubscribe(wake)
	}
	timer := time.NewTimer(min(time.Duration(req.MaxWaitMillis)*time.Millisecond, fetchMaxWait))
	defer timer.Stop()
	for {
		// Once more after Subscribe: what came in between signals nobody.
		if bytes, settled = b.collect(req, resp); settled || bytes >= int(req.MinBytes) {
			return reply{resp: resp}
		}
		select {
		case <-wake:
		case <-timer.C:
			b.collect(req, resp)
			return reply{resp: resp}
		case <-b.ctx.Done():
			return reply{err: errHangup}
		}
	}
}

// fetchRefused answers the whole request with a code.
func fetchRefused(req *kmsg.FetchRequest, code int16) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	resp.ErrorCode = code
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, partitionRefused(p.Partition, code))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// partitionRefused is a partition of which nothing is read.
func partitionRefused(partition int32, code int16) kmsg.FetchResponseTopicPartition {
	out := kmsg.NewFetchResponseTopicPartition()
	out.Partition, out.PreferredReadReplica, out.ErrorCode = partition, -1, code
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = -1, -1, -1
	out.RecordBatches = []byte{}
	out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	return out
}

func (b *Broker) fetchTopic(req *kmsg.FetchRequest, i int) *topic {
	if req.Version >= 13 {
		return b.topics.byID(req.Topics[i].TopicID)
	}
	return b.topics.byName(req.Topics[i].Topic)
}

func (b *Broker) fetchPartition(req *kmsg.FetchRequest, i, j int) *shard.Partition {
	t, n := b.fetchTopic(req, i), req.Topics[i].Partitions[j].Partition
	if t == nil || n < 0 || int(n) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[n]
}

// collect fills the response with what there is. settled reports that waiting
// would not help: some partition has an error.
func (b *Broker) collect(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) (bytes int, settled bool) {
	left := int(min(max(req.MaxBytes, 0), fetchMaxBytes))
	resp.Topics = resp.Topics[:0]
	for i := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		for j := range req.Topics[i].Partitions {
			rp := b.fetchOne(req, i, j, left-bytes, bytes == 0)
			bytes += len(rp.RecordBatches)
			settled = settled || rp.ErrorCode != 0
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return bytes, settled
}

// fetchOne reads one partition. The first batch of a response is returned
// even if it is over the limits, so that a reader always gets on.
func (b *Broker) fetchOne(req *kmsg.FetchRequest, i, j, left int, first bool) kmsg.FetchResponseTopicPartition {
	want := &req.Topics[i].Partitions[j]
	p := b.fetchPartition(req, i, j)
	switch {
	case p == nil && req.Version >= 13 && b.fetchTopic(req, i) == nil:
		return partitionRefused(want.Partition, kerr.UnknownTopicID.Code)
	case p == nil:
		return partitionRefused(want.Partition, kerr.UnknownTopicOrPartition.Code)
	}
	out := partitionRefused(want.Partition, 0)
	out.AbortedTransactions = nil
	if out.ErrorCode = b.checkLeaderEpoch(want.CurrentLeaderEpoch); out.ErrorCode != 0 {
		return out
	}
	// The bounds are read before the data: what becomes visible meanwhile is
	// for the next fetch. The high watermark is read last, so that it is not
	// below the last stable offset.
	stable := p.LastStable()
	hw := p.HighWatermark()
	from, upTo := batch.Offset(want.FetchOffset), hw
	if from < p.LogStart() || from > p.LogEnd() {
		out.ErrorCode = kerr.OffsetOutOfRange.Code
		return out
	}
	if req.IsolationLevel == 1 {
		upTo = stable
		out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = int64(hw), int64(stable), int64(p.LogStart())
	limit := min(int(want.PartitionMaxBytes), left)
	if from >= upTo || (limit <= 0 && !first) {
		return out
	}
	data, err := p.Log().Read(nil, from, max(limit, 1), upTo, first)
	if err != nil {
		b.fetchFailed(p, from, err, &out)
		return out
	}
	out.RecordBatches = data
	if req.IsolationLevel == 1 && len(data) > 0 {
		if err := b.listAborted(p, from, data, &out); err != nil {
			b.fetchFailed(p, from, err, &out)
			out.RecordBatches = []byte{}
		}
	}
	return out
}

func (b *Broker) fetchFailed(p *shard.Partition, from batch.Offset, err error, out *kmsg.FetchResponseTopicPartition) {
	switch {
	case p.Stopped():
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
	case errors.Is(err, seglog.ErrOffsetOutOfRange):
		out.ErrorCode = kerr.OffsetOutOfRange.Code
	default:
		out.ErrorCode = kerr.KafkaStorageError.Code
		b.cfg.Logger.Error("read failed", "topic", p.TP.Topic, "partition", p.TP.Partition, "offset", from, "err", err)
	}
}

// listAborted tells a read_committed reader which of the returned batches
// belong to aborted transactions. Naming one whose marker lies before the
// fetch would make the client drop later committed data of that producer, and
// omitting one would show aborted data: the bounds are those of the bytes
// returned.
func (b *Broker) listAborted(p *shard.Partition, from batch.Offset, data []byte, out *kmsg.FetchResponseTopicPartition) error {
	end := from
	for rest := data; len(rest) > 0; {
		h, _, next, err := batch.Split(rest)
		if err != nil {
			break
		}
		end, rest = h.LastOffset()+1, next
	}
	aborted, err := p.Log().AbortedIn(from, end)
	if err != nil {
		return err
	}
	for _, a := range aborted {
		t := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		t.ProducerID, t.FirstOffset = int64(a.ProducerID), int64(a.FirstOffset)
		out.AbortedTransactions = append(out.AbortedTransactions, t)
	}
	return nil
}

// checkLeaderEpoch compares a client's idea of the leader's epoch with ours,
// which never moves; -1 is none.
func (b *Broker) checkLeaderEpoch(epoch int32) int16 {
	switch {
	case epoch < 0 || epoch == b.env.LeaderEpoch:
		return 0
	case epoch < b.env.LeaderEpoch:
		return kerr.FencedLeaderEpoch.Code
	}
	return kerr.UnknownLeaderEpoch.Code
}
