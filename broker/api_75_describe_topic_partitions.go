package broker

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTopicPartitions, key 75, version 0: Metadata in pages, for the
// admin tools of Kafka 3.8 and later.

func (b *Broker) describeTopicPartitions(r *request) reply {
	req := r.Request.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	view := b.topics.view.Load()
	var names []string
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	// A cursor must name a partition, and a topic of the list if there is one.
	if c := req.Cursor; c != nil && (c.Partition < 0 || len(names) > 0 && !slices.Contains(names, c.Topic)) {
		for _, name := range names {
			t := kmsg.NewDescribeTopicPartitionsResponseTopic()
			t.ErrorCode, t.Topic, t.AuthorizedOperations = kerr.InvalidRequest.Code, &name, noOperations
			resp.Topics = append(resp.Topics, t)
		}
		return reply{resp: resp}
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(view.byName))
	}
	slices.SortFunc(names, cmp.Compare)
	names = slices.Compact(names)
	left := int(min(max(req.ResponsePartitionLimit, 1), 2000))
	for _, name := range names {
		from := 0
		if c := req.Cursor; c != nil {
			if name < c.Topic {
				continue
			}
			if name == c.Topic {
				from = int(c.Partition)
			}
		}
		if left == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(from)}
			break
		}
		rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
		rt.Topic, rt.AuthorizedOperations = &name, topicOperations
		t := view.byName[name]
		if t == nil {
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			if checkTopicName(name) != "" {
				rt.ErrorCode = kerr.InvalidTopicException.Code
			}
			resp.Topics = append(resp.Topics, rt)
			continue
		}
		rt.TopicID, rt.IsInternal = t.ID, isInternal(name)
		for i := from; i < len(t.Partitions) && left > 0; i++ {
			rt.Partitions = append(rt.Partitions, b.describePartition(i))
			from, left = i+1, left-1
		}
		resp.Topics = append(resp.Topics, rt)
		if from < len(t.Partitions) {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(from)}
			break
		}
	}
	return reply{resp: resp}
}

func (b *Broker) describePartition(i int) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	p.Partition, p.LeaderID, p.LeaderEpoch = int32(i), nodeID, b.env.LeaderEpoch
	p.Replicas, p.ISR, p.OfflineReplicas = []int32{nodeID}, []int32{nodeID}, []int32{}
	p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{}
	return p
}
