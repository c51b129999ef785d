package broker

import (
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
)

// JoinGroup, key 11, versions 0 to 9: the classic group protocol. What it and
// its siblings do is in internal/group.

func (b *Broker) joinGroup(r *request) reply {
	req := r.Request.(*kmsg.JoinGroupRequest)
	refused := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.Generation, resp.MemberID, resp.Protocol = code, -1, req.MemberID, new(string)
		return resp
	}
	host := "/"
	if h, _, err := net.SplitHostPort(r.conn.RemoteAddr().String()); err == nil {
		host += h
	}
	return b.groupReply(req.Group, refused, func(t group.Token) group.Command {
		return group.Join{Token: t, Request: req, ClientID: r.clientID, ClientHost: host, NewMemberID: newUUID().String()}
	})
}
