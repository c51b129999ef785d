package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// maxStringBytes is the longest string that the (non-flexible) records and old
// responses can hold; flexible requests could carry longer ones.
const maxStringBytes = 32767

// maxMemberIDPrefix bounds how much of a client or instance id goes into a
// member id; instance ids and topic names may have 249 characters in Kafka.
const maxMemberIDPrefix = 249

// joinRefused answers a JoinGroup with an error.
func joinRefused(version int16, memberID string, e *kerr.Error) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.Version = version
	r.ErrorCode = e.Code
	r.Generation = -1
	r.MemberID = memberID
	return r
}

// join is a JoinGroup (§5.4; GroupMetadataManager.classicGroupJoin).
func (d *decision) join(c Join) {
	req := c.Request
	if e := d.checkJoin(c); e != nil {
		d.reply(c.Token, joinRefused(req.Version, req.MemberID, e))
		return
	}
	g := d.lookup(req.Group)
	if g == nil {
		if req.MemberID != "" {
			d.reply(c.Token, joinRefused(req.Version, req.MemberID, kerr.UnknownMemberID))
			return
		}
		g = newGroup(req.Group)
	}
	if !d.hasRoom(g, req.MemberID) {
		d.reply(c.Token, joinRefused(req.Version, "", kerr.GroupMaxSizeReached))
		d.removePending(g, req.MemberID)
		if mem := g.byID[req.MemberID]; mem != nil {
			d.evict(g, mem, kerr.UnknownMemberID)
		}
		d.maybeCompleteJoin(g)
		return
	}
	protocols := copyProtocols(req.Protocols)
	if !g.accepts(req.ProtocolType, protocols) {
		d.reply(c.Token, joinRefused(req.Version, req.MemberID, kerr.InconsistentGroupProtocol))
		return
	}
	if req.MemberID == "" {
		d.joinNew(c, g, protocols)
	} else {
		d.joinKnown(c, g, protocols)
	}
}

// checkJoin makes the checks that need no group.
func (d *decision) checkJoin(c Join) *kerr.Error {
	req := c.Request
	if req.Group == "" || len(req.Group) > maxStringBytes {
		return kerr.InvalidGroupID
	}
	if req.SessionTimeoutMillis < d.cfg.MinSessionTimeoutMs ||
		req.SessionTimeoutMillis > d.cfg.MaxSessionTimeoutMs {
		return kerr.InvalidSessionTimeout
	}
	tooLong := len(req.ProtocolType) > maxStringBytes ||
		len(deref(req.InstanceID)) > maxStringBytes ||
		len(c.ClientID) > maxStringBytes || len(c.ClientHost) > maxStringBytes
	for _, p := range req.Protocols {
		tooLong = tooLong || len(p.Name) > maxStringBytes
	}
	if tooLong {
		return kerr.InvalidRequest
	}
	return nil
}

// hasRoom holds the group to MaxSize. While members rejoin, those who wait are
// counted, so that of a group that is too large the last to rejoin are refused.
func (d *decision) hasRoom(g *group, memberID string) bool {
	if d.cfg.MaxSize <= 0 {
		return true
	}
	mem := g.byID[memberID]
	switch g.state {
	case PreparingRebalance:
		return (mem != nil && mem.join.parked) || g.awaitingJoin < d.cfg.MaxSize
	case CompletingRebalance, Stable:
		return mem != nil || len(g.members) < d.cfg.MaxSize
	}
	return true
}

// joinNew is a JoinGroup without a member id.
func (d *decision) joinNew(c Join, g *group, protocols []protocol) {
	req := c.Request
	prefix := c.ClientID
	if req.InstanceID != nil {
		prefix = *req.InstanceID
	}
	id := prefix[:min(len(prefix), maxMemberIDPrefix)] + "-" + c.NewMemberID
	if _, pending := g.pendingJoin[id]; pending || g.byID[id] != nil {
		// The entropy repeats; the client's retry brings new entropy.
		d.reply(c.Token, joinRefused(req.Version, "", kerr.CoordinatorNotAvailable))
		return
	}
	d.create(g)
	if req.InstanceID != nil {
		if old := g.byInstance[*req.InstanceID]; old != nil {
			d.replaceStatic(c, g, old, id, protocols)
			return
		}
		d.addMember(c, g, id, protocols)
		return
	}
	if req.Version < 4 {
		d.addMember(c, g, id, protocols)
		return
	}
	// KIP-394: the client must know its id before it counts, or every retry of
	// a JoinGroup whose answer was lost would leave a ghost behind.
	t := newTimer(timerSession, g, id)
	if g.pendingJoin == nil {
		g.pendingJoin = make(map[string]*timer)
	}
	g.pendingJoin[id] = t
	d.timers.set(t, d.nowMs+int64(req.SessionTimeoutMillis))
	d.reply(c.Token, joinRefused(req.Version, id, kerr.MemberIDRequired))
}

// create makes the log know of the group.
func (d *decision) create(g *group) {
	d.groups[g.id] = g
	if g.stored != nil {
		return
	}
	if g.stateSinceMs < 0 {
		g.stateSinceMs = d.nowMs
	}
	d.append(groupRecord(g.id, &batch.GroupValue{StateMs: g.stateSinceMs}))
}

// joinKnown is a JoinGroup with a member id.
func (d *decision) joinKnown(c Join, g *group, protocols []protocol) {
	req := c.Request
	if _, pending := g.pendingJoin[req.MemberID]; pending && req.InstanceID == nil {
		d.removePending(g, req.MemberID)
		d.addMember(c, g, req.MemberID, protocols)
		return
	}
	if e := g.validateMember(req.MemberID, req.InstanceID); e != nil {
		d.reply(c.Token, joinRefused(req.Version, req.MemberID, e))
		return
	}
	mem := g.byID[req.MemberID]
	unchanged := mem.matches(protocols)
	switch {
	case g.state == CompletingRebalance && unchanged,
		g.state == Stable && unchanged && g.leader != mem.id:
		// It missed the answer to its JoinGroup; nothing changed for the others.
		// A leader that rejoins a stable group wants a new assignment.
		d.reply(c.Token, d.joined(g, mem, req.Version))
	default:
		d.updateMember(c, g, mem, protocols)
		d.park(g, mem, c.Token, req.Version)
		d.rebalance(g)
	}
}

// validateMember checks an identity: member id and, for static members,
// instance id (ClassicGroup.validateMember).
func (g *group) validateMember(memberID string, instanceID *string) *kerr.Error {
	if instanceID != nil {
		mem := g.byInstance[*instanceID]
		if mem == nil {
			return kerr.UnknownMemberID
		}
		if mem.id != memberID {
			return kerr.FencedInstanceID
		}
	}
	if g.byID[memberID] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

// updateMember takes over what a JoinGroup says; the counts of protocols follow.
func (d *decision) updateMember(c Join, g *group, mem *member, protocols []protocol) {
	g.count(mem, -1)
	mem.protocols = protocols
	g.count(mem, 1)
	mem.sessionTimeoutMs = c.Request.SessionTimeoutMillis
	mem.rebalanceTimeoutMs = rebalanceTimeout(c.Request)
}

// rebalanceTimeout is the session timeout below v1, which has no field for it.
func rebalanceTimeout(req *kmsg.JoinGroupRequest) int32 {
	if req.Version < 1 || req.RebalanceTimeoutMillis < 0 {
		return req.SessionTimeoutMillis
	}
	return req.RebalanceTimeoutMillis
}

// park holds the JoinGroup until the join phase completes.
func (d *decision) park(g *group, mem *member, t Token, version int16) {
	if mem.join.parked {
		d.answerJoin(g, mem, joinRefused(mem.join.version, mem.id, kerr.RebalanceInProgress))
	}
	mem.join = waiter{parked: true, token: t, version: version}
	g.awaitingJoin++
}

func (d *decision) answerJoin(g *group, mem *member, r *kmsg.JoinGroupResponse) {
	if mem.join.parked {
		r.Version = mem.join.version
		d.reply(mem.join.token, r)
		mem.join = waiter{}
		g.awaitingJoin--
	}
}

// addMember adds a member under an id that is free, and rebalances.
func (d *decision) addMember(c Join, g *group, id string, protocols []protocol) {
	req := c.Request
	mem := &member{
		id: id, instanceID: req.InstanceID, clientID: c.ClientID, clientHost: c.ClientHost,
		sessionTimeoutMs: req.SessionTimeoutMillis, rebalanceTimeoutMs: rebalanceTimeout(req),
		protocols: protocols, isNew: true,
	}
	mem.session = newTimer(timerSession, g, id)
	if len(g.members) == 0 {
		g.protocolType = req.ProtocolType
	}
	if g.state == PreparingRebalance && g.initial {
		g.newMemberAdded = true
	}
	g.add(mem)
	d.park(g, mem, c.Token, req.Version)
	// The member does not know its id yet and cannot send heartbeats, and a
	// client that went away cannot be seen while its JoinGroup is parked.
	d.keepSession(mem, d.cfg.NewMemberJoinTimeoutMs)
	d.rebalance(g)
}

// replaceStatic gives a static member that came back a new id. The old id is
// fenced from here on. A stable group whose protocol stays does not rebalance.
func (d *decision) replaceStatic(c Join, g *group, old *member, id string, protocols []protocol) {
	req := c.Request
	oldLeader := g.leader
	d.answerJoin(g, old, joinRefused(old.join.version, old.id, kerr.FencedInstanceID))
	d.answerSync(old, syncRefused(old.sync.version, kerr.FencedInstanceID))
	d.timers.cancel(old.session)

	mem := old // the same member, under a new id
	delete(g.byID, old.id)
	if _, waits := g.pendingSync[old.id]; waits {
		delete(g.pendingSync, old.id)
		g.pendingSync[id] = struct{}{}
	}
	if g.leader == old.id {
		g.leader = id
	}
	mem.id, mem.clientID, mem.clientHost, mem.isNew = id, c.ClientID, c.ClientHost, false
	mem.session = newTimer(timerSession, g, id)
	g.byID[id] = mem
	d.updateMember(c, g, mem, protocols)
	d.keepSession(mem, int64(mem.sessionTimeoutMs))

	if g.state == Stable && g.selectProtocol() == g.protocol {
		d.append(groupRecord(g.id, g.metadataValue()))
		r := d.joined(g, mem, req.Version)
		if req.Version >= 9 {
			// KIP-814: the leader must know that it leads, but not assign.
			r.SkipAssignment = g.leader == id
		} else {
			// It must not think itself the leader, or it would assign.
			r.LeaderID, r.Members = oldLeader, nil
		}
		d.reply(c.Token, r)
		return
	}
	d.park(g, mem, c.Token, req.Version)
	d.rebalance(g)
}

// joined is the answer to a JoinGroup for the present generation. The leader
// gets the members with their metadata.
func (d *decision) joined(g *group, mem *member, version int16) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.Version = version
	r.Generation = g.generation
	r.ProtocolType = orNil(g.protocolType)
	r.Protocol = orNil(g.protocol)
	r.LeaderID = g.leader
	r.MemberID = mem.id
	if g.leader != mem.id {
		return r
	}
	for _, other := range g.members {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID = other.id
		m.InstanceID = other.instanceID
		m.ProtocolMetadata = other.metadata(g.protocol)
		r.Members = append(r.Members, m)
	}
	return r
}
