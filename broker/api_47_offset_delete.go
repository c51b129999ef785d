package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
)

// OffsetDelete, key 47, version 0: deletes a group's offsets of topics that it
// does not read any more.

func (b *Broker) offsetDelete(r *request) reply {
	req := r.Request.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	known := *req
	known.Topics = nil
	codes := map[string]map[int32]int16{}
	for _, t := range req.Topics {
		kt := t
		kt.Partitions = nil
		codes[t.Topic] = map[int32]int16{}
		for _, p := range t.Partitions {
			if b.partition(t.Topic, p.Partition) == nil {
				codes[t.Topic][p.Partition] = kerr.UnknownTopicOrPartition.Code
			} else {
				kt.Partitions = append(kt.Partitions, p)
			}
		}
		if len(kt.Partitions) > 0 {
			known.Topics = append(known.Topics, kt)
		}
	}
	a, code, ok := b.groupCall(req.Group, func(t group.Token) group.Command { return group.OffsetDelete{Token: t, Request: &known} })
	if !ok {
		return hangup
	}
	if code == 0 {
		code = a.value.Response.(*kmsg.OffsetDeleteResponse).ErrorCode
	}
	if resp.ErrorCode = code; code != 0 {
		return reply{resp: resp, lsn: a.lsn}
	}
	for _, t := range a.value.Response.(*kmsg.OffsetDeleteResponse).Topics {
		for _, p := range t.Partitions {
			codes[t.Topic][p.Partition] = p.ErrorCode
		}
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, codes[t.Topic][p.Partition]
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp, lsn: a.lsn}
}
