package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// DescribeGroups, key 15, versions 0 to 6.

func (b *Broker) describeGroups(r *request) reply {
	req := r.Request.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	var last seglog.LSN
	for _, id := range req.Groups {
		one := *req
		one.Groups = []string{id}
		a, code, ok := b.groupCall(id, func(t group.Token) group.Command { return group.Describe{Token: t, Request: &one} })
		switch {
		case !ok:
			return hangup
		case code != 0:
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = id, code
			resp.Groups = append(resp.Groups, g)
		default:
			resp.Groups = append(resp.Groups, a.value.Response.(*kmsg.DescribeGroupsResponse).Groups...)
		}
		last = max(last, a.lsn)
	}
	if req.IncludeAuthorizedOperations {
		for i := range resp.Groups {
			if resp.Groups[i].ErrorCode == 0 {
				resp.Groups[i].AuthorizedOperations = groupOperations
			}
		}
	}
	return reply{resp: resp, lsn: last}
}
