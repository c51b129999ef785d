package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
)

// ListGroups, key 16, versions 0 to 5: all partitions of the coordinator.

func (b *Broker) listGroups(r *request) reply {
	req := r.Request.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	var last seglog.LSN
	t := b.topics.byName(topicOffsets)
	if t == nil {
		return reply{resp: resp}
	}
	for _, p := range t.Partitions {
		a, ok := await(b, func(done func(group.Reply, seglog.LSN)) { listGroupsOf(p, req, done) })
		switch {
		case !ok:
			return hangup
		case a.value.Token == 0:
			resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
			return reply{resp: resp}
		}
		part := a.value.Response.(*kmsg.ListGroupsResponse)
		resp.Groups, last = append(resp.Groups, part.Groups...), max(last, a.lsn)
		if part.ErrorCode != 0 {
			resp.ErrorCode = part.ErrorCode
		}
	}
	return reply{resp: resp, lsn: last}
}

func listGroupsOf(p *shard.Partition, req *kmsg.ListGroupsRequest, done func(group.Reply, seglog.LSN)) {
	p.Group(func(t group.Token) group.Command { return group.List{Token: t, Request: req} }, done)
}
