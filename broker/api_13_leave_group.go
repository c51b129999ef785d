package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
)

// LeaveGroup, key 13, versions 0 to 5; several members from version 3.

func (b *Broker) leaveGroup(r *request) reply {
	req := r.Request.(*kmsg.LeaveGroupRequest)
	refused := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = code
		return resp
	}
	return b.groupReply(req.Group, refused, func(t group.Token) group.Command { return group.Leave{Token: t, Request: req} })
}
