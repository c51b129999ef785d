package group

import (
	"maps"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// State is the state of a classic group (Kafka's ClassicGroupState). Dead is
// only ever shown: a deleted group is gone from the machine at once, so that
// COORDINATOR_NOT_AVAILABLE for a dead group cannot arise here.
type State int8

// The states of a classic group.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

func (s State) String() string {
	switch s {
	case Empty:
		return "Empty"
	case PreparingRebalance:
		return "PreparingRebalance"
	case CompletingRebalance:
		return "CompletingRebalance"
	case Stable:
		return "Stable"
	default:
		return "Dead"
	}
}

// legalFrom says which states may come before each state.
var legalFrom = map[State][]State{
	Empty:               {PreparingRebalance},
	PreparingRebalance:  {Empty, CompletingRebalance, Stable},
	CompletingRebalance: {PreparingRebalance},
	Stable:              {CompletingRebalance},
}

// waiter is a parked request.
type waiter struct {
	parked  bool
	token   Token
	version int16
}

// protocol is one protocol that a member supports, with its metadata.
type protocol struct {
	name     string
	metadata []byte
}

// member is a member of a group, static if instanceID is not nil.
type member struct {
	id                 string
	instanceID         *string
	clientID           string
	clientHost         string
	sessionTimeoutMs   int32
	rebalanceTimeoutMs int32
	protocols          []protocol
	assignment         []byte
	// isNew holds until the member's first JoinGroup is answered: it does not
	// know its id yet and cannot send heartbeats.
	isNew   bool
	join    waiter
	sync    waiter
	session *timer
}

// metadata is what the member said under a protocol; nil if it does not know it.
func (mem *member) metadata(name string) []byte {
	for _, p := range mem.protocols {
		if p.name == name {
			return p.metadata
		}
	}
	return nil
}

// commit is a committed or pending offset.
type commit struct {
	batch.OffsetValue
	recordOffset batch.Offset // of its record in the log: decides which is newer
	epoch        batch.Epoch  // of the producer while pending
}

// group is one group: hard state that the log holds, and the soft state of its
// membership.
type group struct {
	id string

	// Hard state, written by Apply and ApplyMarker only.
	stored       *batch.GroupValue
	storedOffset batch.Offset
	offsets      map[batch.TopicPartition]commit
	pending      map[batch.TopicPartition]int // how many transactions hold it

	// Soft state.
	state        State
	stateSinceMs int64 // when state was entered; -1 unknown (old records)
	// initial holds while an Empty group prepares its first generation: the
	// rebalance then ends by its timer only.
	initial            bool
	initialRemainingMs int64
	initialDelayMs     int64
	newMemberAdded     bool
	generation         int32
	restored           bool   // no generation has begun since the restart
	protocolType       string // "" is none: a group that only stores offsets
	protocol           string // of the generation; "" is none
	leader             string
	members            []*member // in the order of joining
	byID               map[string]*member
	byInstance         map[string]*member
	supports           map[string]int // members by protocol
	awaitingJoin       int
	pendingJoin        map[string]*timer // member ids handed out by MEMBER_ID_REQUIRED
	pendingSync        map[string]struct{}
	subscribed         map[string]struct{} // topics; nil if not known
	joinTimer          *timer
	syncTimer          *timer
}

func newGroup(id string) *group {
	g := &group{id: id, stateSinceMs: -1}
	g.joinTimer = newTimer(timerJoin, g, "")
	g.syncTimer = newTimer(timerSync, g, "")
	return g
}

// exists reports whether the log holds anything of the group.
func (g *group) exists() bool {
	return g != nil && (g.stored != nil || len(g.offsets) > 0 || len(g.pending) > 0)
}

func (m *Machine) groupIDs() []string {
	return slices.Sorted(maps.Keys(m.groups))
}

// lookup returns the group if it exists.
func (m *Machine) lookup(id string) *group {
	if g := m.groups[id]; g.exists() || (g != nil && g.live()) {
		return g
	}
	return nil
}

// live reports whether there is a membership, even one the log knows nothing of.
func (g *group) live() bool {
	return g.state != Empty || len(g.members) > 0 || len(g.pendingJoin) > 0
}

// transition moves the group to a state, by the table.
func (d *decision) transition(g *group, to State) {
	if !slices.Contains(legalFrom[to], g.state) {
		d.fatal("group %q: illegal transition from %s to %s", g.id, g.state, to)
		return
	}
	g.state = to
	g.stateSinceMs = d.nowMs
}

func (g *group) add(mem *member) {
	if len(g.members) == 0 {
		g.supports = nil
	}
	if g.byID == nil {
		g.byID = make(map[string]*member)
		g.byInstance = make(map[string]*member)
	}
	g.members = append(g.members, mem)
	g.byID[mem.id] = mem
	if mem.instanceID != nil {
		g.byInstance[*mem.instanceID] = mem
	}
	if g.leader == "" {
		g.leader = mem.id
	}
	g.count(mem, 1)
}

// count adds the member's protocols to the votes, or takes them off.
func (g *group) count(mem *member, by int) {
	if g.supports == nil {
		g.supports = make(map[string]int)
	}
	for _, p := range mem.protocols {
		if g.supports[p.name] += by; g.supports[p.name] == 0 {
			delete(g.supports, p.name)
		}
	}
}

// remove takes a member out, with its timer. Its waiters must have been answered.
func (m *Machine) remove(g *group, mem *member) {
	i := slices.Index(g.members, mem)
	if i < 0 {
		return
	}
	g.members = slices.Delete(g.members, i, i+1)
	delete(g.byID, mem.id)
	if mem.instanceID != nil {
		delete(g.byInstance, *mem.instanceID)
	}
	delete(g.pendingSync, mem.id)
	g.count(mem, -1)
	m.timers.cancel(mem.session)
	if g.leader == mem.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

// removePending forgets a member id that was handed out.
func (m *Machine) removePending(g *group, id string) bool {
	t, ok := g.pendingJoin[id]
	if ok {
		m.timers.cancel(t)
		delete(g.pendingJoin, id)
	}
	return ok
}

// disband forgets the membership; the group was deleted.
func (m *Machine) disband(g *group) {
	for _, mem := range g.members {
		m.timers.cancel(mem.session)
	}
	for _, t := range g.pendingJoin {
		m.timers.cancel(t)
	}
	m.timers.cancel(g.joinTimer)
	m.timers.cancel(g.syncTimer)
	fresh := newGroup(g.id)
	fresh.offsets, fresh.pending = g.offsets, g.pending
	*g = *fresh
	g.joinTimer.group, g.syncTimer.group = g, g
}

// allJoined reports whether nobody is missing in the join phase.
func (g *group) allJoined() bool {
	return g.awaitingJoin == len(g.members) && len(g.pendingJoin) == 0
}

// rebalanceTimeoutMs is the longest of the members'.
func (g *group) rebalanceTimeoutMs() int64 {
	var longest int32
	for _, mem := range g.members {
		longest = max(longest, mem.rebalanceTimeoutMs)
	}
	return int64(longest)
}

// restore makes the membership from the stored record, after a replay.
func (g *group) restore() {
	v := g.stored
	if v == nil {
		return
	}
	g.generation, g.restored = v.Generation, true
	g.protocolType = v.ProtocolType
	g.protocol = deref(v.Protocol)
	g.stateSinceMs = v.StateMs
	for i := range v.Members {
		s := &v.Members[i]
		mem := &member{
			id: s.MemberID, instanceID: s.InstanceID,
			clientID: s.ClientID, clientHost: s.ClientHost,
			sessionTimeoutMs: s.SessionTimeoutMs, rebalanceTimeoutMs: s.RebalanceTimeoutMs,
			protocols:  []protocol{{g.protocol, s.Subscription}},
			assignment: s.Assignment,
		}
		if mem.rebalanceTimeoutMs < 0 {
			mem.rebalanceTimeoutMs = mem.sessionTimeoutMs
		}
		mem.session = newTimer(timerSession, g, mem.id)
		g.add(mem)
	}
	if len(g.members) > 0 {
		g.state = Stable
	}
	if leader := deref(v.Leader); g.byID[leader] != nil {
		g.leader = leader
	}
	g.computeSubscribed()
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orNil is how an absent name is written.
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
