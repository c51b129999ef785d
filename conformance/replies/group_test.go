//go:build conformance

package replies_test

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The classic group protocol.
var groupScenarios = []scenario{
	{"JoinGroup: one member, every version", func(s *script) {
		for v := int16(0); v <= 9; v++ {
			g := s.name("g" + string('0'+rune(v)))
			m, _ := s.client("a").join(v, stranger(g), "range", "roundrobin")
			s.do(syncRequest(min(v, 5), m, m.id, "all"))
			s.do(heartbeatRequest(min(v, 4), m))
			s.do(describeGroups(min(v, 6), g))
			s.do(leaveRequest(min(v, 5), g, m))
			s.do(describeGroups(min(v, 6), g))
		}
	}},
	{"JoinGroup: what a request may say", func(s *script) {
		for _, v := range []int16{0, 4, 5, 9} {
			g := stranger(s.name("g"))
			for _, timeout := range []int32{sessionTimeoutMinMs - 1, 1_800_001, 0, -1} {
				req := joinRequest(v, g, "range")
				req.SessionTimeoutMillis = timeout
				s.do(req)
			}
			s.do(joinRequest(v, g))
			req := joinRequest(v, g, "range")
			req.ProtocolType = ""
			s.do(req)
			s.do(joinRequest(v, stranger(""), "range"))
			s.do(joinRequest(v, member{group: g.group, id: "someone?"}, "range"))
			if v >= 5 {
				s.do(joinRequest(v, member{group: g.group, id: "someone?", instance: kmsg.StringPtr("i?")}, "range"))
			}
			const why = "a refused JoinGroup does not make a group"
			if v == 9 {
				s.differs("Groups[g].ErrorCode", "0", "69 GROUP_ID_NOT_FOUND", why)
			}
			s.differs("Groups[g].State", `"Empty"`, `"Dead"`, why)
			s.do(describeGroups(min(v, 6), g.group))
		}
	}},
	{"JoinGroup: protocols that do not agree", func(s *script) {
		g := s.name("g")
		s.alone(g)
		s.client("b").do(joinRequest(3, stranger(g), "other"))
		req := joinRequest(3, stranger(g), "range")
		req.ProtocolType = "connect"
		s.client("b").do(req)
		s.client("b").do(joinRequest(9, stranger(g), "other"))
	}},
	{"JoinGroup: a member id that was handed out", func(s *script) {
		g := s.name("g")
		r := typed[*kmsg.JoinGroupResponse](s.do(joinRequest(4, stranger(g), "range")))
		s.groupIn(g, "Empty", 0)
		s.heartbeat(4, member{group: g, id: r.MemberID, generation: 0})
		s.do(syncRequest(3, member{group: g, id: r.MemberID, generation: 0}))
		s.do(leaveRequest(4, g, member{id: r.MemberID}))
		s.do(joinRequest(4, member{group: g, id: r.MemberID}, "range"))
	}},
	{"two members: rebalance, sync, leave", twoMembers},
	{"the leader joins again, a follower joins again", func(s *script) {
		g := s.name("g")
		m := s.alone(g)
		again := joinRequest(9, m, "range")
		s.do(again)
		s.heartbeat(4, m)
		s.heartbeat(4, m.at(m.generation+1))
		s.do(syncRequest(5, m.at(m.generation+1), m.id, "all"))
		s.do(joinRequest(4, m, "range"))
	}},
	{"SyncGroup: codes", func(s *script) {
		g := s.name("g")
		m, _ := s.client("a").join(5, stranger(g), "range")
		for _, v := range []int16{0, 3, 5} {
			s.do(syncRequest(v, stranger("")))
			s.do(syncRequest(v, member{group: s.name("none"), id: "someone?", generation: 1}))
			s.do(syncRequest(v, member{group: g, id: "someone?", generation: 1}))
			s.do(syncRequest(v, m.at(m.generation+1)))
			s.do(syncRequest(v, m.at(m.generation-1)))
		}
		s.do(syncRequest(3, member{group: g, id: m.id, instance: kmsg.StringPtr("i?"), generation: 1}))
		wrong := syncRequest(5, m, m.id, "all")
		wrong.Protocol = kmsg.StringPtr("other")
		s.do(wrong)
		wrong = syncRequest(5, m, m.id, "all")
		wrong.ProtocolType = kmsg.StringPtr("connect")
		s.do(wrong)
		none := syncRequest(5, m, m.id, "all")
		none.Protocol, none.ProtocolType = nil, nil
		s.do(none)
		s.do(syncRequest(5, m, m.id, "all", "someone else?", "more"))
		s.do(syncRequest(3, m)) // once more, in a stable group
	}},
	{"Heartbeat: codes", func(s *script) {
		g := s.name("g")
		for v := int16(0); v <= 4; v++ {
			s.heartbeat(v, stranger(""))
			s.heartbeat(v, member{group: s.name("none"), id: "someone?", generation: 1})
		}
		m, _ := s.client("a").join(5, stranger(g), "range")
		s.heartbeat(4, m) // CompletingRebalance
		s.do(syncRequest(5, m, m.id, "all"))
		for v := int16(0); v <= 4; v++ {
			s.heartbeat(v, m)
			s.heartbeat(v, m.at(m.generation+1))
			s.heartbeat(v, m.at(-1))
			s.heartbeat(v, member{group: g, id: "someone?", generation: m.generation})
		}
		s.heartbeat(3, member{group: g, id: m.id, instance: kmsg.StringPtr("i?"), generation: m.generation})
		s.do(leaveRequest(4, g, m))
		s.heartbeat(4, m) // Empty
	}},
	{"LeaveGroup: codes", func(s *script) {
		g := s.name("g")
		m := s.alone(g)
		for _, v := range []int16{0, 2, 3, 5} {
			s.do(leaveRequest(v, "", m))
			s.do(leaveRequest(v, s.name("none"), member{id: "someone?"}))
			s.do(leaveRequest(v, g, member{id: "someone?"}))
			s.do(leaveRequest(v, g, member{id: ""}))
		}
		s.do(leaveRequest(3, g))
		s.do(leaveRequest(3, g, member{id: "", instance: kmsg.StringPtr("i?")}))
		s.do(leaveRequest(3, g, member{id: m.id, instance: kmsg.StringPtr("i?")}))
		s.do(leaveRequest(5, g, member{id: "someone?"}, m))
		s.do(leaveRequest(5, g, m))
	}},
	{"static members", staticMembers},
	{"a static member comes back", staticReturns},
	{"DescribeGroups and ListGroups", func(s *script) {
		g := s.name("g")
		for v := int16(0); v <= 6; v++ {
			s.do(describeGroups(v, s.name("none")))
			s.do(describeGroups(v, s.name("none"), s.name("none too")))
		}
		m := s.alone(g)
		for v := int16(0); v <= 6; v++ {
			s.do(describeGroups(v, g))
			req := kmsg.NewPtrListGroupsRequest()
			req.Version = v
			if v <= 5 {
				s.listGroups(req)
			}
		}
		for _, filter := range []string{"Stable", "stable", "Empty", "Nonsense"} {
			req := kmsg.NewPtrListGroupsRequest()
			req.Version, req.StatesFilter = 5, []string{filter}
			s.listGroups(req)
		}
		for _, filter := range []string{"classic", "Classic", "consumer", "nonsense"} {
			req := kmsg.NewPtrListGroupsRequest()
			req.Version, req.TypesFilter = 5, []string{filter}
			s.listGroups(req)
		}
		s.do(leaveRequest(4, g, m))
		s.do(describeGroups(5, g))
		s.do(describeGroups(5))
	}},
	{"a group that only holds offsets", func(s *script) {
		t := s.topic("t", 1)
		g := stranger(s.name("g"))
		s.do(commitRequest(8, g, at{t, 0, 1}))
		s.do(describeGroups(5, g.group))
		s.do(describeGroups(6, g.group))
		req := kmsg.NewPtrListGroupsRequest()
		req.Version = 5
		s.listGroups(req)
		s.alone(g.group)
		s.do(committed(8, g.group, true, at{t, 0, 0}))
	}},
}

// listGroups leaves the groups of other scripts out of the reply.
func (s *script) listGroups(req *kmsg.ListGroupsRequest) {
	resp, err := s.client("a").ask(req)
	if r := typed[*kmsg.ListGroupsResponse](resp); r != nil {
		own := []kmsg.ListGroupsResponseGroup{}
		for _, g := range r.Groups {
			if s.own(g.Group) {
				own = append(own, g)
			}
		}
		r.Groups = own
	}
	s.record("a", req, resp, err)
}

func twoMembers(s *script) {
	g := s.name("g")
	a, b := s.client("a"), s.client("b")
	leader := s.alone(g)
	r := typed[*kmsg.JoinGroupResponse](b.do(joinRequest(9, stranger(g), "range")))
	second := member{group: g, id: r.MemberID}
	parked := joinRequest(9, second, "range")
	b.send(parked)
	s.groupIn(g, "PreparingRebalance", 2)
	s.heartbeat(4, leader)
	s.do(syncRequest(5, leader, leader.id, "all"))
	_, joined := a.join(9, leader, "range")
	s.steps[len(s.steps)-1].lines = append(s.steps[len(s.steps)-1].lines, line{"members", memberCount(joined)})
	b.receive(parked)
	leader.generation, second.generation = joined.Generation, joined.Generation
	s.heartbeat(4, leader)
	s.heartbeat(4, second)
	waiting := syncRequest(5, second)
	b.send(waiting)
	s.groupIn(g, "CompletingRebalance", 2)
	s.do(syncRequest(5, leader, leader.id, "one half", second.id, "the other"))
	b.receive(waiting)
	s.do(describeGroups(5, g))
	s.heartbeat(4, second)
	b.do(leaveRequest(5, g, second))
	s.heartbeat(4, leader)
	s.heartbeat(4, second)
	a.join(9, leader, "range")
	s.do(describeGroups(5, g))
}

func memberCount(r *kmsg.JoinGroupResponse) string { return string('0' + rune(len(r.Members))) }

func staticMembers(s *script) {
	g := s.name("g")
	i := kmsg.StringPtr("i")
	m, _ := s.client("a").join(9, member{group: g, instance: i}, "range")
	s.do(syncRequest(5, m, m.id, "all"))
	s.heartbeat(4, m)
	s.heartbeat(4, member{group: g, id: "someone?", instance: i, generation: m.generation})
	s.heartbeat(4, member{group: g, id: m.id, instance: kmsg.StringPtr("other"), generation: m.generation})
	s.do(joinRequest(9, member{group: g, id: "someone?", instance: i}, "range"))
	s.do(syncRequest(5, member{group: g, id: "someone?", instance: i, generation: m.generation}))
	s.do(describeGroups(5, g))
	s.do(leaveRequest(5, g, member{id: "someone?", instance: i}))
	s.do(leaveRequest(5, g, member{id: "", instance: i}))
	s.do(describeGroups(5, g))
}

func staticReturns(s *script) {
	t := s.topic("t", 1)
	g := s.name("g")
	i := kmsg.StringPtr("i")
	old, _ := s.client("a").join(9, member{group: g, instance: i}, "range")
	s.do(syncRequest(5, old, old.id, "all"))
	m, _ := s.client("b").join(9, member{group: g, instance: i}, "range")
	s.heartbeat(4, old)
	s.heartbeat(4, m)
	s.do(syncRequest(5, m))
	s.do(commitRequest(8, old, at{t, 0, 1}))
	s.do(commitRequest(8, m, at{t, 0, 2}))
	s.do(txnOffsetsOf(s, old, at{t, 0, 3}))
	s.do(syncRequest(5, old))
	s.do(joinRequest(9, old, "range"))
	// Below version 9 it must not take itself for the leader.
	n, _ := s.client("c").join(5, member{group: g, instance: i}, "range")
	s.heartbeat(4, n)
	// With a protocol that the group does not have it is refused.
	s.client("d").join(9, member{group: g, instance: i}, "roundrobin")
	s.differs("Groups[g].Members[0].ClientID", `"a"`, `"c"`, "a static member that comes back brings its new client id and host")
	s.do(describeGroups(5, g))
}
