package group

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// postponeMinMs bounds how often a rebalance that nobody joins is tried again.
const postponeMinMs = 100

// keepSession moves the member's session deadline.
func (d *decision) keepSession(mem *member, timeoutMs int64) {
	d.timers.set(mem.session, d.nowMs+timeoutMs)
}

// evict removes a member; what it waits for is refused with e.
func (d *decision) evict(g *group, mem *member, e *kerr.Error) {
	d.answerJoin(g, mem, joinRefused(mem.join.version, "", e))
	d.answerSync(mem, syncRefused(mem.sync.version, e))
	d.remove(g, mem)
}

// rebalance starts a rebalance, or goes on with the one under way.
func (d *decision) rebalance(g *group) {
	if g.state == PreparingRebalance {
		d.maybeCompleteJoin(g)
		return
	}
	d.prepareRebalance(g)
}

// prepareRebalance sends everyone back to JoinGroup.
func (d *decision) prepareRebalance(g *group) {
	if g.state == CompletingRebalance {
		for _, mem := range g.members {
			mem.assignment = nil
			if mem.sync.parked {
				d.answerSync(mem, syncRefused(mem.sync.version, kerr.RebalanceInProgress))
				d.keepSession(mem, int64(mem.sessionTimeoutMs))
			}
		}
	}
	d.endSyncPhase(g)
	initial := g.state == Empty
	d.transition(g, PreparingRebalance)
	g.initial, g.newMemberAdded = initial, false
	switch {
	case initial && d.cfg.InitialRebalanceDelayMs == 0:
		d.completeJoin(g)
	case initial:
		g.initialDelayMs = d.cfg.InitialRebalanceDelayMs
		g.initialRemainingMs = max(g.rebalanceTimeoutMs()-g.initialDelayMs, 0)
		d.timers.set(g.joinTimer, d.nowMs+g.initialDelayMs)
	case g.allJoined():
		d.completeJoin(g)
	default:
		d.timers.set(g.joinTimer, d.nowMs+g.rebalanceTimeoutMs())
	}
}

// maybeCompleteJoin ends the join phase if nobody is missing. The first
// rebalance of an empty group ends by its timer only.
func (d *decision) maybeCompleteJoin(g *group) {
	if g.state == PreparingRebalance && !g.initial && g.allJoined() {
		d.completeJoin(g)
	}
}

// joinTimedOut ends the join phase; the initial one is prolonged, up to the
// rebalance timeout, as long as members keep coming.
func (d *decision) joinTimedOut(g *group) {
	if g.state != PreparingRebalance {
		return
	}
	if g.initial && g.newMemberAdded && g.initialRemainingMs > 0 {
		g.newMemberAdded = false
		delay := min(d.cfg.InitialRebalanceDelayMs, g.initialRemainingMs)
		g.initialRemainingMs = max(g.initialRemainingMs-g.initialDelayMs, 0)
		g.initialDelayMs = delay
		d.timers.set(g.joinTimer, d.nowMs+delay)
		return
	}
	d.completeJoin(g)
}

// completeJoin ends the join phase: dynamic members that did not rejoin are
// out, static ones stay until their session ends, the generation begins.
func (d *decision) completeJoin(g *group) {
	d.timers.cancel(g.joinTimer)
	for i := len(g.members) - 1; i >= 0; i-- {
		if mem := g.members[i]; !mem.join.parked && mem.instanceID == nil {
			d.evict(g, mem, kerr.UnknownMemberID)
		}
	}
	if len(g.members) > 0 && !g.electJoined() {
		// Only static members, none of which rejoined: wait for one, or for
		// their sessions to end.
		d.timers.set(g.joinTimer, d.nowMs+max(g.rebalanceTimeoutMs(), postponeMinMs))
		return
	}
	d.nextGeneration(g)
	g.initial = false
	g.pendingSync = nil
	if len(g.members) == 0 {
		g.protocol = ""
		d.transition(g, Empty)
		g.computeSubscribed()
		d.append(groupRecord(g.id, g.metadataValue()))
		return
	}
	g.protocol = g.selectProtocol()
	d.transition(g, CompletingRebalance)
	g.computeSubscribed()
	g.pendingSync = make(map[string]struct{}, len(g.members))
	for _, mem := range g.members {
		if mem.join.parked {
			d.answerJoin(g, mem, d.joined(g, mem, mem.join.version))
		}
		mem.isNew = false
		g.pendingSync[mem.id] = struct{}{}
		d.keepSession(mem, int64(mem.sessionTimeoutMs))
	}
	d.timers.set(g.syncTimer, d.nowMs+g.rebalanceTimeoutMs())
}

// restartGenerations is the step from the last written generation to the first
// one after a restart.
//
// A generation is told to members when they have joined, but written only when
// their leader has assigned. Say generation 3 is told to A and to B, a static
// member, and the broker dies before it is written. Back at 2, A joins again and
// B does not, being paused: the next generation keeps B, and would be 3 again.
// B wakes up, believes in its own 3 and in what it owned before, and its
// TxnOffsetCommit would pass the check that is there to fence it. Kafka has this
// hole; the step closes it for less than a thousand generations told in vain.
const restartGenerations = 1000

// nextGeneration counts up, and starts again at 1 after the last int32. After a
// restart it skips what may have been told before, and writes so: the generation
// just below, told to nobody, with the members as they were. Otherwise a second
// crash would lead to the same number again.
func (d *decision) nextGeneration(g *group) {
	step := int32(1)
	if g.restored {
		step = restartGenerations
	}
	if g.generation < 0 || g.generation > 1<<31-1-step {
		g.generation = 0
		step = 1
	}
	g.generation += step
	if g.restored && len(g.members) > 0 {
		skipped := *g.stored
		skipped.Generation = g.generation - 1
		d.append(groupRecord(g.id, &skipped))
	}
	g.restored = false
}

// electJoined makes sure that the leader is a member that rejoined, if any did.
func (g *group) electJoined() bool {
	if leader := g.byID[g.leader]; leader != nil && leader.join.parked {
		return true
	}
	for _, mem := range g.members {
		if mem.join.parked {
			g.leader = mem.id
			return true
		}
	}
	return false
}

// endSyncPhase stops the wait for SyncGroup.
func (d *decision) endSyncPhase(g *group) {
	g.pendingSync = nil
	d.timers.cancel(g.syncTimer)
}

// syncTimedOut throws out members that never sent SyncGroup for the generation.
func (d *decision) syncTimedOut(g *group) {
	if (g.state != CompletingRebalance && g.state != Stable) || len(g.pendingSync) == 0 {
		return
	}
	for i := len(g.members) - 1; i >= 0; i-- {
		mem := g.members[i]
		if _, late := g.pendingSync[mem.id]; late {
			d.evict(g, mem, kerr.UnknownMemberID)
		}
	}
	d.prepareRebalance(g)
}

// sessionTimedOut removes a silent member, or forgets an id that was handed
// out and not used. A member that waits in JoinGroup or SyncGroup is not
// silent, unless it is new: it may have gone away before it knew its id.
func (d *decision) sessionTimedOut(g *group, id string) {
	if d.removePending(g, id) {
		d.maybeCompleteJoin(g)
		return
	}
	mem := g.byID[id]
	if mem == nil || (!mem.isNew && (mem.join.parked || mem.sync.parked)) {
		return
	}
	d.evict(g, mem, kerr.UnknownMemberID)
	d.rebalance(g)
}

// tick fires everything that is due.
func (d *decision) tick() {
	for t := d.timers.next(d.nowMs); t != nil; t = d.timers.next(d.nowMs) {
		switch t.kind {
		case timerSession:
			d.sessionTimedOut(t.group, t.memberID)
		case timerJoin:
			d.joinTimedOut(t.group)
		case timerSync:
			d.syncTimedOut(t.group)
		case timerExpiry:
			d.expire()
		}
		if d.eff.Fatal != nil {
			return
		}
	}
}

// metadataValue is the group as the log keeps it.
func (g *group) metadataValue() *batch.GroupValue {
	v := &batch.GroupValue{
		ProtocolType: g.protocolType,
		Generation:   g.generation,
		Protocol:     orNil(g.protocol),
		Leader:       orNil(g.leader),
		StateMs:      g.stateSinceMs,
		Members:      make([]batch.GroupMember, len(g.members)),
	}
	for i, mem := range g.members {
		v.Members[i] = batch.GroupMember{
			MemberID: mem.id, InstanceID: mem.instanceID,
			ClientID: mem.clientID, ClientHost: mem.clientHost,
			RebalanceTimeoutMs: mem.rebalanceTimeoutMs, SessionTimeoutMs: mem.sessionTimeoutMs,
			Subscription: mem.metadata(g.protocol), Assignment: mem.assignment,
		}
	}
	return v
}
