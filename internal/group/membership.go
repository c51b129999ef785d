package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// syncRefused answers a SyncGroup with an error.
func syncRefused(version int16, e *kerr.Error) *kmsg.SyncGroupResponse {
	r := kmsg.NewPtrSyncGroupResponse()
	r.Version = version
	r.ErrorCode = e.Code
	return r
}

// synced answers a SyncGroup with the member's assignment.
func synced(g *group, mem *member, version int16) *kmsg.SyncGroupResponse {
	r := kmsg.NewPtrSyncGroupResponse()
	r.Version = version
	r.ProtocolType = orNil(g.protocolType)
	r.Protocol = orNil(g.protocol)
	r.MemberAssignment = mem.assignment
	return r
}

func (d *decision) answerSync(mem *member, r *kmsg.SyncGroupResponse) {
	if mem.sync.parked {
		r.Version = mem.sync.version
		d.reply(mem.sync.token, r)
		mem.sync = waiter{}
	}
}

// sync is a SyncGroup (§5.4; GroupMetadataManager.classicGroupSync). Followers
// wait for the leader, whose request brings the assignment: it is persisted,
// the group is stable, and all get their part.
func (d *decision) sync(c Sync) {
	req := c.Request
	g, e := d.checkSync(req)
	if e != nil {
		d.reply(c.Token, syncRefused(req.Version, e))
		return
	}
	mem := g.byID[req.MemberID]
	delete(g.pendingSync, mem.id)
	if len(g.pendingSync) == 0 {
		d.timers.cancel(g.syncTimer)
	}
	if g.state == Stable {
		d.reply(c.Token, synced(g, mem, req.Version))
		return
	}
	d.answerSync(mem, syncRefused(mem.sync.version, kerr.RebalanceInProgress))
	mem.sync = waiter{parked: true, token: c.Token, version: req.Version}
	if g.leader != mem.id {
		return
	}
	for _, other := range g.members {
		other.assignment = nil
	}
	for _, a := range req.GroupAssignment {
		if other := g.byID[a.MemberID]; other != nil {
			other.assignment = append([]byte{}, a.MemberAssignment...)
		}
	}
	d.transition(g, Stable)
	d.append(groupRecord(g.id, g.metadataValue()))
	for _, other := range g.members {
		if other.sync.parked {
			// A session that ended while its member waited here was ignored.
			d.keepSession(other, int64(other.sessionTimeoutMs))
			d.answerSync(other, synced(g, other, other.sync.version))
		}
	}
}

func (d *decision) checkSync(req *kmsg.SyncGroupRequest) (*group, *kerr.Error) {
	if req.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	g := d.lookup(req.Group)
	if g == nil || g.state == Empty {
		return nil, kerr.UnknownMemberID
	}
	if e := g.validateMember(req.MemberID, req.InstanceID); e != nil {
		return nil, e
	}
	differs := func(theirs *string, ours string) bool {
		return theirs != nil && ours != "" && *theirs != ours
	}
	switch {
	case req.Generation != g.generation:
		return nil, kerr.IllegalGeneration
	case differs(req.ProtocolType, g.protocolType) || differs(req.Protocol, g.protocol):
		return nil, kerr.InconsistentGroupProtocol
	case g.state == PreparingRebalance:
		return nil, kerr.RebalanceInProgress
	}
	return g, nil
}

// heartbeat is a Heartbeat (§5.4). It keeps the session alive during a
// rebalance too, where the answer sends the member to JoinGroup.
func (d *decision) heartbeat(c Heartbeat) {
	r := kmsg.NewPtrHeartbeatResponse()
	r.Version = c.Request.Version
	if e := d.beat(c.Request); e != nil {
		r.ErrorCode = e.Code
	}
	d.reply(c.Token, r)
}

func (d *decision) beat(req *kmsg.HeartbeatRequest) *kerr.Error {
	if req.Group == "" {
		return kerr.InvalidGroupID
	}
	g := d.lookup(req.Group)
	if g == nil {
		return kerr.UnknownMemberID
	}
	if e := g.validateMember(req.MemberID, req.InstanceID); e != nil {
		return e
	}
	if req.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	mem := g.byID[req.MemberID]
	d.keepSession(mem, int64(mem.sessionTimeoutMs))
	if g.state == PreparingRebalance {
		return kerr.RebalanceInProgress
	}
	return nil
}

// leave is a LeaveGroup (§5.4). Below v3 it names one member by its id; from
// v3 several, each by member id or, for administrators, by instance id alone.
func (d *decision) leave(c Leave) {
	req := c.Request
	r := kmsg.NewPtrLeaveGroupResponse()
	r.Version = req.Version
	members := req.Members
	if req.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	if req.Group == "" {
		r.ErrorCode = kerr.InvalidGroupID.Code
		d.reply(c.Token, r)
		return
	}
	g := d.lookup(req.Group)
	left := false
	for i := range members {
		answer := kmsg.NewLeaveGroupResponseMember()
		answer.MemberID, answer.InstanceID = members[i].MemberID, members[i].InstanceID
		if e := d.leaveOne(g, &members[i]); e != nil {
			answer.ErrorCode = e.Code
		} else {
			left = true
		}
		if req.Version < 3 {
			r.ErrorCode = answer.ErrorCode
		} else {
			r.Members = append(r.Members, answer)
		}
	}
	d.reply(c.Token, r)
	if left && g.state != Empty {
		d.rebalance(g)
	}
}

func (d *decision) leaveOne(g *group, who *kmsg.LeaveGroupRequestMember) *kerr.Error {
	if g == nil {
		return kerr.UnknownMemberID
	}
	if who.MemberID == "" {
		if who.InstanceID == nil || g.byInstance[*who.InstanceID] == nil {
			return kerr.UnknownMemberID
		}
		d.evict(g, g.byInstance[*who.InstanceID], kerr.UnknownMemberID)
		return nil
	}
	if d.removePending(g, who.MemberID) {
		return nil
	}
	if e := g.validateMember(who.MemberID, who.InstanceID); e != nil {
		return e
	}
	d.evict(g, g.byID[who.MemberID], kerr.UnknownMemberID)
	return nil
}
