package broker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
)

// The classic group protocol: JoinGroup (11, versions 0 to 9), Heartbeat (12,
// 0 to 4), LeaveGroup (13, 0 to 5), SyncGroup (14, 0 to 5), DescribeGroups
// (15, 0 to 6), ListGroups (16, 0 to 5), DeleteGroups (42, 0 to 2). What they
// do is in internal/group.

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
		return group.Join{Token: t, Request: req, ClientID: r.clientID, ClientHost: host, NewMemberID: newUUID()}
	})
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

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

func (b *Broker) heartbeat(r *request) reply {
	req := r.Request.(*kmsg.HeartbeatRequest)
	refused := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = code
		return resp
	}
	return b.groupReply(req.Group, refused, func(t group.Token) group.Command { return group.Heartbeat{Token: t, Request: req} })
}

func (b *Broker) leaveGroup(r *request) reply {
	req := r.Request.(*kmsg.LeaveGroupRequest)
	refused := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = code
		return resp
	}
	return b.groupReply(req.Group, refused, func(t group.Token) group.Command { return group.Leave{Token: t, Request: req} })
}

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
