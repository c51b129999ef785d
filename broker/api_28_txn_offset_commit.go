package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// TxnOffsetCommit, key 28, versions 0 to 5. From version 3 the group's member
// and generation are checked (KIP-447); from version 5 the group's partition
// is added to the transaction by the request itself (KIP-890).

func (b *Broker) txnOffsetCommit(r *request) reply {
	req := r.Request.(*kmsg.TxnOffsetCommitRequest)
	if req.Group == "" {
		return reply{resp: txnOffsetsRefused(req, kerr.InvalidGroupID.Code)}
	}
	known, unknown := b.splitOffsetTopics(req)
	if len(known.Topics) == 0 {
		return reply{resp: joinTxnOffsets(req, nil, unknown)}
	}
	p, err := b.coordinator(topicOffsets, req.Group)
	if err != nil {
		return reply{resp: txnOffsetsRefused(req, coordinatorMissing)}
	}
	a, ok := await(b, func(done func(kmsg.Response, seglog.LSN)) {
		p.TxnOffsetCommit(known,
			func(r group.Reply, lsn seglog.LSN) { done(r.Response, lsn) },
			func(code int16, lsn seglog.LSN) { done(txnOffsetsRefused(known, code), lsn) })
	})
	switch {
	case !ok:
		return hangup
	case a.value == nil:
		return reply{resp: txnOffsetsRefused(req, kerr.NotCoordinator.Code), lsn: a.lsn}
	}
	return reply{resp: joinTxnOffsets(req, a.value.(*kmsg.TxnOffsetCommitResponse), unknown), lsn: a.lsn}
}

func txnOffsetsRefused(req *kmsg.TxnOffsetCommitRequest, code int16) *kmsg.TxnOffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// splitOffsetTopics separates the partitions that do not exist.
func (b *Broker) splitOffsetTopics(req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitRequest, map[batch.TopicPartition]bool) {
	known := *req
	known.Topics = nil
	unknown := map[batch.TopicPartition]bool{}
	for _, t := range req.Topics {
		kt := t
		kt.Partitions = nil
		for _, p := range t.Partitions {
			if b.partition(t.Topic, p.Partition) == nil {
				unknown[batch.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = true
			} else {
				kt.Partitions = append(kt.Partitions, p)
			}
		}
		if len(kt.Partitions) > 0 {
			known.Topics = append(known.Topics, kt)
		}
	}
	return &known, unknown
}

// joinTxnOffsets answers in the order asked: the group's codes, and
// UNKNOWN_TOPIC_OR_PARTITION for what does not exist.
func joinTxnOffsets(req *kmsg.TxnOffsetCommitRequest, got *kmsg.TxnOffsetCommitResponse, unknown map[batch.TopicPartition]bool) *kmsg.TxnOffsetCommitResponse {
	if len(unknown) == 0 && got != nil {
		return got
	}
	codes := map[batch.TopicPartition]int16{}
	for place := range unknown {
		codes[place] = kerr.UnknownTopicOrPartition.Code
	}
	if got != nil {
		for _, t := range got.Topics {
			for _, p := range t.Partitions {
				codes[batch.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ErrorCode
			}
		}
	}
	resp := txnOffsetsRefused(req, 0)
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			p.ErrorCode = codes[batch.TopicPartition{Topic: resp.Topics[i].Topic, Partition: p.Partition}]
		}
	}
	return resp
}
