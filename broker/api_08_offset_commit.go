package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// OffsetCommit, key 8, versions 2 to 10; from version 10 on topics are named
// by id.

func (b *Broker) offsetCommit(r *request) reply {
	req := r.Request.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	known := *req
	known.Topics = nil
	codes := map[batch.TopicPartition]int16{}
	for i := range req.Topics {
		t := &req.Topics[i]
		missing := kerr.UnknownTopicOrPartition.Code
		if req.Version >= 10 {
			if live := b.topics.byID(t.TopicID); live != nil {
				t.Topic = live.Name
			} else {
				missing = kerr.UnknownTopicID.Code
			}
		}
		kt := *t
		kt.Partitions = nil
		for _, p := range t.Partitions {
			if b.partition(t.Topic, p.Partition) == nil {
				codes[batch.TopicPartition{Topic: offsetKey(t), Partition: p.Partition}] = missing
			} else {
				kt.Partitions = append(kt.Partitions, p)
			}
		}
		if len(kt.Partitions) > 0 {
			known.Topics = append(known.Topics, kt)
		}
	}
	var lsn seglog.LSN
	// With nothing known left the group is not asked, so its code for the
	// member is not seen; the topics' codes tell enough.
	if len(known.Topics) > 0 || len(req.Topics) == 0 {
		a, code, ok := b.groupCall(req.Group, func(t group.Token) group.Command { return group.OffsetCommit{Token: t, Request: &known} })
		if !ok {
			return hangup
		}
		lsn = a.lsn
		for i := range known.Topics {
			for _, p := range known.Topics[i].Partitions {
				codes[batch.TopicPartition{Topic: offsetKey(&known.Topics[i]), Partition: p.Partition}] = code
			}
		}
		if code == 0 {
			for i, t := range a.value.Response.(*kmsg.OffsetCommitResponse).Topics {
				for _, p := range t.Partitions {
					codes[batch.TopicPartition{Topic: offsetKey(&known.Topics[i]), Partition: p.Partition}] = p.ErrorCode
				}
			}
		}
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, codes[batch.TopicPartition{Topic: offsetKey(t), Partition: p.Partition}]
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp, lsn: lsn}
}

// offsetKey tells topics apart even when their ids are unknown.
func offsetKey(t *kmsg.OffsetCommitRequestTopic) string {
	if t.Topic != "" {
		return t.Topic
	}
	return string(t.TopicID[:])
}
