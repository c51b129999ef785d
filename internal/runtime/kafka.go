package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errUnstable says that a transaction's offsets are pending: ask again (KIP-447).
var errUnstable = errors.New("offsets of an open transaction are pending")

// committedOffset is one entry of an OffsetFetch reply.
type committedOffset struct {
	Offset   int64 // -1 when the group has none
	Metadata string
}

// fetchStableOffsets reads the group's committed offsets, refusing to see
// past pending transactions. It returns errUnstable while there are any.
func fetchStableOffsets(ctx context.Context, cl *kgo.Client, group string, partitions []batch.TopicPartition) (map[batch.TopicPartition]committedOffset, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	byTopic := groupByTopic(partitions)
	for _, topic := range sortedKeys(byTopic) {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = topic, byTopic[topic]
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", group, err)
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("fetch offsets of group %s: the reply has %d groups, want 1", group, len(resp.Groups))
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", group, err)
	}
	out := make(map[batch.TopicPartition]committedOffset, len(partitions))
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if errors.Is(err, kerr.UnstableOffsetCommit) {
				return nil, errUnstable
			}
			if err != nil {
				return nil, fmt.Errorf("fetch offset of %s/%d: %w", t.Topic, p.Partition, err)
			}
			c := committedOffset{Offset: p.Offset}
			if p.Metadata != nil {
				c.Metadata = *p.Metadata
			}
			out[batch.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = c
		}
	}
	for _, tp := range partitions {
		if _, ok := out[tp]; !ok {
			return nil, fmt.Errorf("fetch offset of %s/%d: the reply leaves it out", tp.Topic, tp.Partition)
		}
	}
	return out, nil
}

// Timestamps with a meaning of their own in ListOffsets.
const (
	listLatest   = -1
	listEarliest = -2
)

// listOffsets asks for the first or the end offset of each partition. The
// end is read uncommitted: the high watermark.
func listOffsets(ctx context.Context, cl *kgo.Client, timestamp int64, partitions []batch.TopicPartition) (map[batch.TopicPartition]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = 0
	byTopic := groupByTopic(partitions)
	for _, topic := range sortedKeys(byTopic) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, p := range byTopic[topic] {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, timestamp, -1
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics, t)
	}
	out := make(map[batch.TopicPartition]int64, len(partitions))
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("list offsets: %w", shard.Err)
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("list offset of %s/%d: %w", t.Topic, p.Partition, err)
				}
				out[batch.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.Offset
			}
		}
	}
	for _, tp := range partitions {
		if _, ok := out[tp]; !ok {
			return nil, fmt.Errorf("list offset of %s/%d: the reply leaves it out", tp.Topic, tp.Partition)
		}
	}
	return out, nil
}

func groupByTopic(partitions []batch.TopicPartition) map[string][]int32 {
	byTopic := make(map[string][]int32)
	for _, tp := range partitions {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
	}
	for _, ps := range byTopic {
		slices.Sort(ps)
	}
	return byTopic
}

// groupCoordinator asks for the broker that coordinates the group.
func groupCoordinator(ctx context.Context, cl *kgo.Client, group string) (int, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, fmt.Errorf("find the coordinator of group %s: %w", group, err)
	}
	if len(resp.Coordinators) == 1 {
		return int(resp.Coordinators[0].NodeID), kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
	}
	return int(resp.NodeID), kerr.ErrorForCode(resp.ErrorCode)
}
