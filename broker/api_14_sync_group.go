package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
)

// SyncGroup, key 14, versions 0 to 5.

func (b *Broker) syncGroup(r *request) reply {
	req := r.Request.(*kmsg.SyncGroupRequest)
	refused := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode, resp.MemberAssignment = code, []byte{}
		return resp
	}
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		return reply{resp: refused(kerr.InconsistentGroupProtocol.Code)} // mandatory since KIP-559
	}
	return b.groupReply(req.Group, refused, func(t group.Token) group.Command { return group.Sync{Token: t, Request: req} })
}
