package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// DeleteGroups, key 42, versions 0 to 2.

func (b *Broker) deleteGroups(r *request) reply {
	req := r.Request.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	var last seglog.LSN
	done := map[string]bool{}
	for _, id := range req.Groups {
		if done[id] {
			continue // a group named twice is answered once
		}
		done[id] = true
		one := *req
		one.Groups = []string{id}
		a, code, ok := b.groupCall(id, func(t group.Token) group.Command { return group.Delete{Token: t, Request: &one} })
		switch {
		case !ok:
			return hangup
		case code != 0:
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode = id, code
			resp.Groups = append(resp.Groups, g)
		default:
			resp.Groups = append(resp.Groups, a.value.Response.(*kmsg.DeleteGroupsResponse).Groups...)
		}
		last = max(last, a.lsn)
	}
	return reply{resp: resp, lsn: last}
}
