package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// DeleteRecords, key 21, versions 0 to 2.

func (b *Broker) deleteRecords(r *request) reply {
	req := r.Request.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	var last seglog.LSN
	for _, t := range req.Topics {
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, want := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark = want.Partition, -1
			p, live := b.partition(t.Topic, want.Partition), b.topics.byName(t.Topic)
			switch {
			case p == nil:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case isInternal(t.Topic):
				rp.ErrorCode = kerr.InvalidTopicException.Code
			case live.Configs["cleanup.policy"] == "compact":
				rp.ErrorCode = kerr.PolicyViolation.Code
			default:
				a, ok := await(b, func(done func(deleted, seglog.LSN)) {
					p.DeleteRecords(batch.Offset(want.Offset), func(start batch.Offset, code int16, lsn seglog.LSN) {
						done(deleted{start, code}, lsn)
					})
				})
				if !ok {
					return hangup
				}
				rp.LowWatermark, rp.ErrorCode, last = int64(a.value.start), a.value.code, max(last, a.lsn)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp, lsn: last}
}

type deleted struct {
	start batch.Offset
	code  int16
}
