package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// offsetFetch answers one group of an OffsetFetch (§5.2). With requireStable a
// partition that an open transaction holds is UNSTABLE_OFFSET_COMMIT, offset
// -1: its position is not decided yet. Others get the last committed offset; a
// partition, or group, without one gets offset -1 and no error.
func (d *decision) offsetFetch(c GroupOffsetFetch) {
	r := kmsg.NewOffsetFetchResponseGroup()
	r.Group = c.Group
	g := d.lookup(c.Group)
	topics := c.Topics
	if topics == nil && g != nil {
		topics = g.fetchable(c.RequireStable)
	}
	for i := range topics {
		t := &topics[i]
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			tp := batch.TopicPartition{Topic: t.Topic, Partition: p}
			rp := &rt.Partitions[j]
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, -1, -1, new(string)
			if g == nil {
				continue
			}
			if c.RequireStable && g.hasPending(tp) {
				rp.ErrorCode = kerr.UnstableOffsetCommit.Code
				continue
			}
			if o, ok := g.offsets[tp]; ok {
				rp.Offset, rp.LeaderEpoch, *rp.Metadata = int64(o.Offset), o.LeaderEpoch, o.Metadata
			}
		}
		r.Topics = append(r.Topics, rt)
	}
	d.eff.Replies = append(d.eff.Replies, Reply{Token: c.Token, OffsetFetch: &r})
}

// fetchable are the partitions that a fetch of all partitions names.
func (g *group) fetchable(requireStable bool) []kmsg.OffsetFetchRequestGroupTopic {
	all := make(map[batch.TopicPartition]struct{}, len(g.offsets))
	for tp := range g.offsets {
		all[tp] = struct{}{}
	}
	if requireStable {
		for tp := range g.pending {
			all[tp] = struct{}{}
		}
	}
	topics := []kmsg.OffsetFetchRequestGroupTopic{}
	for _, tp := range sortedKeys(all) {
		if n := len(topics); n == 0 || topics[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic = tp.Topic
			topics = append(topics, t)
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	return topics
}

// OffsetFetchCommands splits an OffsetFetch of any version into one command
// per group, in the order of the request; the shell sets Token, and Topic for
// topics named by id. A null list of topics is all topics; an empty one is none.
func OffsetFetchCommands(req *kmsg.OffsetFetchRequest) []GroupOffsetFetch {
	if req.Version >= 8 {
		out := make([]GroupOffsetFetch, len(req.Groups))
		for i, g := range req.Groups {
			out[i] = GroupOffsetFetch{
				Group: g.Group, Topics: g.Topics, RequireStable: req.RequireStable,
				MemberID: g.MemberID, MemberEpoch: g.MemberEpoch,
			}
		}
		return out
	}
	c := GroupOffsetFetch{Group: req.Group, RequireStable: req.Version >= 7 && req.RequireStable, MemberEpoch: -1}
	if req.Topics != nil {
		c.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
		for i, t := range req.Topics {
			c.Topics[i] = kmsg.NewOffsetFetchRequestGroupTopic()
			c.Topics[i].Topic, c.Topics[i].Partitions = t.Topic, t.Partitions
		}
	}
	return []GroupOffsetFetch{c}
}

// OffsetFetchResponse joins the groups' answers, in the order of
// OffsetFetchCommands, into the response of the request's version. Below v8
// there is one group; its error, if any, stands at the top (v2+).
func OffsetFetchResponse(req *kmsg.OffsetFetchRequest, groups []kmsg.OffsetFetchResponseGroup) *kmsg.OffsetFetchResponse {
	r := kmsg.NewPtrOffsetFetchResponse()
	r.Version = req.Version
	if req.Version >= 8 {
		r.Groups = groups
		return r
	}
	for _, g := range groups {
		r.ErrorCode = g.ErrorCode
		for _, t := range g.Topics {
			rt := kmsg.NewOffsetFetchResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
				rp.Metadata, rp.ErrorCode = p.Metadata, p.ErrorCode
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
	}
	return r
}
