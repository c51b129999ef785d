package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
)

// WriteTxnMarkers, key 27, versions 1 and 2: for the admin tool that ends a
// hanging transaction (kafka-transactions abort). The broker's own
// coordinator writes its markers without a request.

func (b *Broker) writeTxnMarkers(r *request) reply {
	req := r.Request.(*kmsg.WriteTxnMarkersRequest)
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	var last seglog.LSN
	for _, m := range req.Markers {
		if len(m.Topics) == 0 {
			continue // nothing to say about it
		}
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		marker := shard.Marker{
			ProducerID: batch.ProducerID(m.ProducerID), Epoch: batch.Epoch(m.ProducerEpoch), Commit: m.Committed,
			CoordinatorEpoch: m.CoordinatorEpoch, TV2: req.Version >= 2 && m.TransactionVersion >= 2,
		}
		for _, t := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, n := range t.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition = n
				if p := b.partition(t.Topic, n); p == nil {
					rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
				} else {
					a, ok := await(b, func(done func(int16, seglog.LSN)) { p.WriteMarker(marker, done) })
					if !ok {
						return hangup
					}
					rp.ErrorCode, last = a.value, max(last, a.lsn)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return reply{resp: resp, lsn: last}
}
