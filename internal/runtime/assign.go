package runtime

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hanbeon/hanbeon/internal/task"
)

// compareTasks orders tasks by partition first, so that walking a list of
// tasks meets all sub-topologies in turn.
func compareTasks(a, b task.ID) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Subtopology, b.Subtopology))
}

// groupMember is what the leader of the group knows of one member.
type groupMember struct {
	ID         string
	Instance   string // process, by its instance id; workers of one process share state directories
	Generation int32  // generation in which Owned was assigned; -1 for a new member
	Topics     []string
	Owned      map[string][]int32
	Previous   []task.ID // tasks whose state lies in the process's state directory
}

// sourceGroup is a sub-topology seen by the assignor: its source topics are
// assigned together, partition by partition.
type sourceGroup struct {
	SubTopology int
	Topics      []string // sorted
}

// assignment is the outcome of one balance.
type assignment struct {
	// Target says who shall own each task in the end.
	Target map[task.ID]string
	// Granted is the part of Target that may be handed out now: a task with a
	// partition that another member still owns is withheld until that member
	// has revoked it (KIP-429).
	Granted map[string][]task.ID
}

// assignTasks spreads the tasks of groups over the members. It is pure and
// deterministic: the order of members and the maps' order do not matter.
//
// In order of importance: every task has at most one owner; loads differ by at
// most one among members that can run every task; a task stays with its owner;
// a task without an owner goes to a process that holds its state; a member's
// tasks are spread over the sub-topologies.
func assignTasks(groups []sourceGroup, partitions map[string]int32, members []groupMember) (assignment, error) {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b groupMember) int { return cmp.Compare(a.ID, b.ID) })
	a := newAssigner(groups, partitions, members)
	if err := a.checkEligible(); err != nil {
		return assignment{}, err
	}
	a.keepOwned()
	a.placeByState()
	a.placeRest()
	return a.result(), nil
}

// assigner is the working state of one assignTasks call.
type assigner struct {
	members  []groupMember
	tasks    []task.ID
	topics   map[int][]string
	counts   map[string]int32
	target   map[task.ID]int   // index into members
	claims   map[task.ID][]int // members that own a partition of the task
	load     []int
	subLoad  []map[int]int
	previous []map[task.ID]bool
	eligible []map[int]bool
	// Of the members, extra may hold base+1 tasks, the others base.
	base, extra int
}

func newAssigner(groups []sourceGroup, counts map[string]int32, members []groupMember) *assigner {
	a := &assigner{
		members: members, counts: counts,
		topics: make(map[int][]string), target: make(map[task.ID]int), claims: make(map[task.ID][]int),
		load: make([]int, len(members)),
	}
	subOf := make(map[string]int)
	for _, g := range groups {
		a.topics[g.SubTopology] = g.Topics
		var count int32
		for _, topic := range g.Topics {
			subOf[topic] = g.SubTopology
			count = max(count, counts[topic])
		}
		for p := range count {
			a.tasks = append(a.tasks, task.ID{Subtopology: g.SubTopology, Partition: p})
		}
	}
	slices.SortFunc(a.tasks, compareTasks)
	for i, m := range members {
		a.subLoad = append(a.subLoad, make(map[int]int))
		a.previous = append(a.previous, make(map[task.ID]bool))
		for _, id := range m.Previous {
			a.previous[i][id] = true
		}
		a.eligible = append(a.eligible, make(map[int]bool))
		for sub, topics := range a.topics {
			a.eligible[i][sub] = !slices.ContainsFunc(topics, func(t string) bool { return !slices.Contains(m.Topics, t) })
		}
		for topic, ps := range m.Owned {
			sub, known := subOf[topic]
			if !known {
				continue
			}
			for _, p := range ps {
				id := task.ID{Subtopology: sub, Partition: p}
				if !slices.Contains(a.claims[id], i) {
					a.claims[id] = append(a.claims[id], i)
				}
			}
		}
	}
	if len(members) > 0 {
		a.base, a.extra = len(a.tasks)/len(members), len(a.tasks)%len(members)
	}
	return a
}

// checkEligible refuses a group in which nobody subscribes to a sub-topology.
func (a *assigner) checkEligible() error {
	for _, id := range a.tasks {
		if !slices.ContainsFunc(a.eligible, func(e map[int]bool) bool { return e[id.Subtopology] }) {
			return fmt.Errorf("assign task %s: no member of the group subscribes to all of its source topics %q", id, a.topics[id.Subtopology])
		}
	}
	return nil
}

// owner is the member whose claim to the task is the newest. Claims of the
// same generation cannot both be right; the smaller member id is taken, and
// the other's claim delays the grant until it has revoked.
func (a *assigner) owner(id task.ID) (int, bool) {
	best, found := 0, false
	for _, i := range a.claims[id] {
		if !a.eligible[i][id.Subtopology] {
			continue
		}
		g, b := a.members[i].Generation, a.members[best].Generation
		if !found || g > b || g == b && i < best {
			best, found = i, true
		}
	}
	return best, found
}

func (a *assigner) give(id task.ID, member int) {
	a.target[id] = member
	a.load[member]++
	a.subLoad[member][id.Subtopology]++
}

// keepOwned leaves tasks where they are, up to each member's quota. The
// members that own most get the larger quota, so that fewest tasks move.
func (a *assigner) keepOwned() {
	owned := make([][]task.ID, len(a.members))
	for _, id := range a.tasks {
		if i, ok := a.owner(id); ok {
			owned[i] = append(owned[i], id)
		}
	}
	order := make([]int, len(a.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(len(owned[y]), len(owned[x])) })
	extra := a.extra
	for _, i := range order {
		quota := a.base
		if extra > 0 && len(owned[i]) > a.base {
			quota++
			extra--
		}
		for _, id := range owned[i][:min(quota, len(owned[i]))] {
			a.give(id, i)
		}
	}
}

// room says whether the member may take one more task without unbalancing
// the group: the number of members above base stays within extra.
func (a *assigner) room(member int) bool {
	if a.load[member] < a.base {
		return true
	}
	if a.load[member] > a.base {
		return false
	}
	above := 0
	for _, l := range a.load {
		if l > a.base {
			above++
		}
	}
	return above < a.extra
}

// placeByState gives tasks without an owner to a process that holds their state.
func (a *assigner) placeByState() {
	for _, id := range a.tasks {
		if _, done := a.target[id]; done {
			continue
		}
		if i, ok := a.lightest(id, func(i int) bool { return a.previous[i][id] && a.room(i) }); ok {
			a.give(id, i)
		}
	}
}

// placeRest gives every remaining task to the least loaded member that can run it.
func (a *assigner) placeRest() {
	for _, id := range a.tasks {
		if _, done := a.target[id]; done {
			continue
		}
		if i, ok := a.lightest(id, func(int) bool { return true }); ok {
			a.give(id, i)
		}
	}
}

// lightest returns the eligible member with the fewest tasks, then with the
// fewest tasks of the same sub-topology, among those that pass.
func (a *assigner) lightest(id task.ID, pass func(int) bool) (int, bool) {
	best := -1
	for i := range a.members {
		if !a.eligible[i][id.Subtopology] || !pass(i) {
			continue
		}
		if best < 0 || cmp.Or(
			cmp.Compare(a.load[i], a.load[best]),
			cmp.Compare(a.subLoad[i][id.Subtopology], a.subLoad[best][id.Subtopology])) < 0 {
			best = i
		}
	}
	return best, best >= 0
}

func (a *assigner) result() assignment {
	out := assignment{Target: make(map[task.ID]string, len(a.tasks)), Granted: make(map[string][]task.ID, len(a.members))}
	for _, m := range a.members {
		out.Granted[m.ID] = nil
	}
	for _, id := range a.tasks {
		i, ok := a.target[id]
		if !ok {
			continue
		}
		out.Target[id] = a.members[i].ID
		heldElsewhere := slices.ContainsFunc(a.claims[id], func(claimant int) bool { return claimant != i })
		if !heldElsewhere {
			out.Granted[a.members[i].ID] = append(out.Granted[a.members[i].ID], id)
		}
	}
	return out
}

// taskPartitions lists the source partitions of a task: partition p of every
// source topic that has one.
func taskPartitions(id task.ID, topics []string, partitions map[string]int32) map[string]int32 {
	out := make(map[string]int32, len(topics))
	for _, topic := range topics {
		if id.Partition < partitions[topic] {
			out[topic] = id.Partition
		}
	}
	return out
}
