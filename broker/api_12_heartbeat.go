package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
)

// Heartbeat, key 12, versions 0 to 4.

func (b *Broker) heartbeat(r *request) reply {
	req := r.Request.(*kmsg.HeartbeatRequest)
	refused := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = code
		return resp
	}
	return b.groupReply(req.Group, refused, func(t group.Token) group.Command { return group.Heartbeat{Token: t, Request: req} })
}
