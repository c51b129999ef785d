package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// DescribeProducers, key 61, version 0.

func (b *Broker) describeProducers(r *request) reply {
	req := r.Request.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	var last seglog.LSN
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, n := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = n
			p := b.partition(t.Topic, n)
			switch {
			case checkTopicName(t.Topic) != "":
				rp.ErrorCode = kerr.InvalidTopicException.Code
			case p == nil:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				a, ok := await(b, func(done func([]prodstate.ActiveProducer, seglog.LSN)) { p.DescribeProducers(done) })
				if !ok {
					return hangup
				}
				for _, ap := range a.value {
					rp.ActiveProducers = append(rp.ActiveProducers, activeProducer(ap))
				}
				last = max(last, a.lsn)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp, lsn: last}
}

func activeProducer(ap prodstate.ActiveProducer) kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	out := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
	out.ProducerID, out.ProducerEpoch = int64(ap.ProducerID), int32(ap.Epoch)
	out.LastSequence, out.LastTimestamp = ap.LastSequence, ap.LastTimestampMs
	out.CoordinatorEpoch, out.CurrentTxnStartOffset = ap.CoordinatorEpoch, int64(ap.TxnStartOffset)
	return out
}
