package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

var twoSubs = []sourceGroup{
	{SubTopology: 0, Topics: []string{"in"}},
	{SubTopology: 1, Topics: []string{"left", "right"}},
}

func allTopics(groups []sourceGroup) (topics []string) {
	for _, g := range groups {
		topics = append(topics, g.Topics...)
	}
	return topics
}

// revokeAndAdopt is what members do after a balance: they own what was granted.
func revokeAndAdopt(groups []sourceGroup, partitions map[string]int32, members []groupMember, a assignment, generation int32) {
	topics := make(map[int][]string)
	for _, g := range groups {
		topics[g.SubTopology] = g.Topics
	}
	for i := range members {
		members[i].Owned = make(map[string][]int32)
		members[i].Generation = generation
		for _, id := range a.Granted[members[i].ID] {
			for topic, p := range taskPartitions(id, topics[id.Subtopology], partitions) {
				members[i].Owned[topic] = append(members[i].Owned[topic], p)
			}
		}
	}
}

func TestTaskOwnedElsewhereIsWithheldUntilRevoked(t *testing.T) {
	partitions := map[string]int32{"in": 4}
	groups := twoSubs[:1]
	members := []groupMember{
		{ID: "a", Topics: []string{"in"}, Generation: 1, Owned: map[string][]int32{"in": {0, 1, 2, 3}}},
		{ID: "b", Topics: []string{"in"}, Generation: -1},
	}
	first, err := assignTasks(groups, partitions, members)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(first.Granted["a"]); got != 2 {
		t.Fatalf("a keeps %d tasks, want 2", got)
	}
	if got := first.Granted["b"]; len(got) != 0 {
		t.Fatalf("b got %v while a still owns it", got)
	}
	revokeAndAdopt(groups, partitions, members, first, 2)
	second, err := assignTasks(groups, partitions, members)
	if err != nil {
		t.Fatal(err)
	}
	if len(second.Granted["a"]) != 2 || len(second.Granted["b"]) != 2 {
		t.Fatalf("after the revocation: %v, want two tasks each", second.Granted)
	}
}

func TestPartitionsOfOneTaskStayTogether(t *testing.T) {
	b := &balancer{groups: twoSubs, instance: "i", previous: func() []task.ID { return nil }}
	var joined []kmsg.JoinGroupResponseMember
	for _, id := range []string{"a", "b", "c"} {
		joined = append(joined, kmsg.JoinGroupResponseMember{MemberID: id, ProtocolMetadata: b.JoinGroupMetadata([]string{"in", "left", "right"}, nil, -1)})
	}
	mb, _, err := b.MemberBalancer(joined)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"in": 3, "left": 4, "right": 4})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, s := range plan.IntoSyncAssignment() {
		got, err := b.ParseSyncAssignment(s.MemberAssignment)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got["left"], got["right"]) {
			t.Errorf("member %s: left %v and right %v are apart", s.MemberID, got["left"], got["right"])
		}
		total += len(got["in"]) + len(got["left"])
	}
	if total != 7 {
		t.Errorf("%d tasks assigned, want 7", total)
	}
}

func TestTaskWithoutOwnerGoesWhereItsStateIs(t *testing.T) {
	members := []groupMember{
		{ID: "a", Topics: []string{"in"}, Generation: -1},
		{ID: "b", Topics: []string{"in"}, Generation: -1, Previous: []task.ID{{Subtopology: 0, Partition: 0}, {Subtopology: 0, Partition: 2}}},
	}
	got, err := assignTasks(twoSubs[:1], map[string]int32{"in": 4}, members)
	if err != nil {
		t.Fatal(err)
	}
	if want := []task.ID{{Subtopology: 0, Partition: 0}, {Subtopology: 0, Partition: 2}}; !slices.Equal(got.Granted["b"], want) {
		t.Errorf("b got %v, want %v, whose state it holds", got.Granted["b"], want)
	}
}

func TestNewestClaimWinsAndOldOneIsWaitedFor(t *testing.T) {
	members := []groupMember{
		{ID: "a", Topics: []string{"in"}, Generation: 3, Owned: map[string][]int32{"in": {0}}},
		{ID: "b", Topics: []string{"in"}, Generation: 5, Owned: map[string][]int32{"in": {0}}},
	}
	got, err := assignTasks(twoSubs[:1], map[string]int32{"in": 1}, members)
	if err != nil {
		t.Fatal(err)
	}
	if got.Target[task.ID{Subtopology: 0, Partition: 0}] != "b" {
		t.Errorf("target %v, want b", got.Target)
	}
	if len(got.Granted["a"])+len(got.Granted["b"]) != 0 {
		t.Errorf("granted %v while two members claim it", got.Granted)
	}
}

func TestSubTopologyWithoutSubscriberIsNamed(t *testing.T) {
	_, err := assignTasks(twoSubs, map[string]int32{"in": 1, "left": 1, "right": 1}, []groupMember{{ID: "a", Topics: []string{"in"}}})
	if err == nil || !strings.Contains(err.Error(), "1_0") || !strings.Contains(err.Error(), "left") {
		t.Fatalf("got %v, want an error that names task 1_0 and its topics", err)
	}
}

func TestMemberOfUnknownVersionIsNamed(t *testing.T) {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.UserData = []byte{9}
	b := &balancer{groups: twoSubs}
	_, _, err := b.MemberBalancer([]kmsg.JoinGroupResponseMember{{MemberID: "future", ProtocolMetadata: meta.AppendTo(nil)}})
	if !errors.Is(err, ErrMemberVersion) || !strings.Contains(err.Error(), "future") {
		t.Fatalf("got %v, want ErrMemberVersion naming the member", err)
	}
}

// drawGroup draws sub-topologies, partition counts and members that may claim anything.
func drawGroup(t *rapid.T) ([]sourceGroup, map[string]int32, []groupMember) {
	var groups []sourceGroup
	partitions := make(map[string]int32)
	for sub := range rapid.IntRange(1, 3).Draw(t, "subs") {
		g := sourceGroup{SubTopology: sub}
		for k := range rapid.IntRange(1, 2).Draw(t, "topics") {
			topic := fmt.Sprintf("t%d-%d", sub, k)
			g.Topics = append(g.Topics, topic)
			partitions[topic] = rapid.Int32Range(1, 9).Draw(t, "partitions")
		}
		groups = append(groups, g)
	}
	var members []groupMember
	for i := range rapid.IntRange(1, 5).Draw(t, "members") {
		m := groupMember{ID: fmt.Sprintf("m%d", i), Topics: allTopics(groups), Generation: rapid.Int32Range(-1, 3).Draw(t, "generation"), Owned: make(map[string][]int32)}
		for _, topic := range sortedKeys(partitions) {
			for p := range partitions[topic] {
				if rapid.IntRange(0, 3).Draw(t, "owns") == 0 {
					m.Owned[topic] = append(m.Owned[topic], p)
				}
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "previous") {
			m.Previous = append(m.Previous, task.ID{Subtopology: rapid.IntRange(0, 3).Draw(t, "sub"), Partition: rapid.Int32Range(0, 9).Draw(t, "p")})
		}
		members = append(members, m)
	}
	return groups, partitions, members
}

func checkAssignment(t *rapid.T, groups []sourceGroup, members []groupMember, a assignment) {
	seen := make(map[task.ID]string)
	subOf := make(map[string]int)
	for _, g := range groups {
		for _, topic := range g.Topics {
			subOf[topic] = g.SubTopology
		}
	}
	for _, m := range members {
		for _, id := range a.Granted[m.ID] {
			if other, twice := seen[id]; twice {
				t.Fatalf("task %s granted to %s and %s", id, other, m.ID)
			}
			seen[id] = m.ID
		}
	}
	for _, m := range members {
		for topic, ps := range m.Owned {
			for _, p := range ps {
				if to := seen[task.ID{Subtopology: subOf[topic], Partition: p}]; to != "" && to != m.ID {
					t.Fatalf("task %d_%d granted to %s while %s owns %s-%d", subOf[topic], p, to, m.ID, topic, p)
				}
			}
		}
	}
}

func TestAnyGroupSettlesBalancedWithEveryTaskOwnedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups, partitions, members := drawGroup(t)
		var a assignment
		for generation := range int32(4) {
			var err error
			if a, err = assignTasks(groups, partitions, members); err != nil {
				t.Fatal(err)
			}
			checkAssignment(t, groups, members, a)
			revokeAndAdopt(groups, partitions, members, a, generation+4)
		}
		tasks, least, most := 0, 1<<30, 0
		for _, m := range members {
			n := len(a.Granted[m.ID])
			tasks, least, most = tasks+n, min(least, n), max(most, n)
		}
		if tasks != len(a.Target) || most-least > 1 {
			t.Fatalf("settled with %d of %d tasks, loads %d..%d", tasks, len(a.Target), least, most)
		}
		again, err := assignTasks(groups, partitions, members)
		if err != nil || !reflect.DeepEqual(again.Target, a.Target) {
			t.Fatalf("a settled group moved: %v then %v (%v)", a.Target, again.Target, err)
		}
	})
}

func TestLeavingMemberMovesOnlyItsOwnTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups, partitions, members := drawGroup(t)
		if len(members) < 2 {
			return
		}
		var a assignment
		for generation := range int32(4) {
			a, _ = assignTasks(groups, partitions, members)
			revokeAndAdopt(groups, partitions, members, a, generation+4)
		}
		gone := members[len(members)-1].ID
		after, err := assignTasks(groups, partitions, members[:len(members)-1])
		if err != nil {
			t.Fatal(err)
		}
		for id, owner := range a.Target {
			if owner != gone && after.Target[id] != owner {
				t.Fatalf("%s left, but %s moved from %s to %s", gone, id, owner, after.Target[id])
			}
		}
	})
}

func TestAssignmentDoesNotDependOnMemberOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups, partitions, members := drawGroup(t)
		a, _ := assignTasks(groups, partitions, members)
		b, _ := assignTasks(groups, maps.Clone(partitions), rapid.Permutation(members).Draw(t, "order"))
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%v\n%v", a, b)
		}
	})
}

func FuzzUserData(f *testing.F) {
	f.Add(userData{Instance: "i-1", Previous: []task.ID{{Subtopology: 0, Partition: 1}, {Subtopology: 2, Partition: 300}}}.appendTo(nil))
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{1, 3, 'a'})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, src []byte) {
		u, err := parseUserData(src)
		if err != nil {
			return
		}
		again, err := parseUserData(u.appendTo(nil))
		if err != nil || !reflect.DeepEqual(u, again) {
			t.Fatalf("%+v became %+v (%v)", u, again, err)
		}
	})
}

func FuzzMemberMetadata(f *testing.F) {
	b := &balancer{groups: twoSubs, instance: "i", previous: func() []task.ID { return []task.ID{{Subtopology: 1, Partition: 2}} }}
	f.Add(b.JoinGroupMetadata([]string{"in"}, map[string][]int32{"in": {1, 2}}, 7))
	f.Add(bytes.Repeat([]byte{0xff}, 20))
	f.Fuzz(func(t *testing.T, src []byte) {
		mb, _, err := b.MemberBalancer([]kmsg.JoinGroupResponseMember{{MemberID: "m", ProtocolMetadata: src}})
		if err != nil {
			return
		}
		_, _ = mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"in": 3, "left": 2, "right": 2})
	})
}
