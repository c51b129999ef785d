package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch, key 23, versions 2 to 4. There is one leader epoch,
// since no visible record is ever truncated: it ends where the log ends.

func (b *Broker) offsetForLeaderEpoch(r *request) reply {
	req := r.Request.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, want := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = want.Partition, -1, -1
			if p := b.partition(t.Topic, want.Partition); p == nil {
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else if rp.ErrorCode = b.checkLeaderEpoch(want.CurrentLeaderEpoch); rp.ErrorCode == 0 && want.LeaderEpoch == b.env.LeaderEpoch {
				rp.LeaderEpoch, rp.EndOffset = b.env.LeaderEpoch, int64(p.HighWatermark())
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp}
}
