package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// OffsetFetch, key 9, versions 1 to 10; several groups from version 8, topics
// named by id from version 10.

func (b *Broker) offsetFetch(r *request) reply {
	req := r.Request.(*kmsg.OffsetFetchRequest)
	var groups []kmsg.OffsetFetchResponseGroup
	var last seglog.LSN
	for _, cmd := range group.OffsetFetchCommands(req) {
		unknown := b.nameTopics(req, &cmd)
		a, code, ok := b.groupCall(cmd.Group, func(t group.Token) group.Command { cmd.Token = t; return cmd })
		if !ok {
			return hangup
		}
		last = max(last, a.lsn)
		if code != 0 {
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group, g.ErrorCode = cmd.Group, code
			groups = append(groups, g)
			continue
		}
		g := *a.value.OffsetFetch
		b.idTopics(req, &g)
		g.Topics = append(g.Topics, unknown...)
		groups = append(groups, g)
	}
	return reply{resp: group.OffsetFetchResponse(req, groups), lsn: last}
}

// nameTopics fills in the names of topics given by id, and answers those
// whose id is not known.
func (b *Broker) nameTopics(req *kmsg.OffsetFetchRequest, cmd *group.GroupOffsetFetch) (unknown []kmsg.OffsetFetchResponseGroupTopic) {
	if req.Version < 10 || cmd.Topics == nil {
		return nil
	}
	known := []kmsg.OffsetFetchRequestGroupTopic{}
	for _, t := range cmd.Topics {
		if live := b.topics.byID(t.TopicID); live != nil {
			t.Topic = live.Name
			known = append(known, t)
			continue
		}
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.TopicID = t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			rp.Partition, rp.Offset, rp.ErrorCode = p, -1, kerr.UnknownTopicID.Code
			rp.Metadata = new(string)
			rt.Partitions = append(rt.Partitions, rp)
		}
		unknown = append(unknown, rt)
	}
	cmd.Topics = known
	return unknown
}

// idTopics fills in the ids of an answer that names all topics of a group; a
// topic that was deleted has none and is left out.
func (b *Broker) idTopics(req *kmsg.OffsetFetchRequest, g *kmsg.OffsetFetchResponseGroup) {
	if req.Version < 10 {
		return
	}
	kept := g.Topics[:0]
	for _, t := range g.Topics {
		if live := b.topics.byName(t.Topic); live != nil {
			t.TopicID = live.ID
			kept = append(kept, t)
		}
	}
	g.Topics = kept
}
