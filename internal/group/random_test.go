package group

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// chooser draws the numbers of a random run.
type chooser interface{ n(limit int) int }

type rapidChooser struct{ t *rapid.T }

func (c rapidChooser) n(limit int) int { return rapid.IntRange(0, limit-1).Draw(c.t, "n") }

type seeded struct{ *rand.Rand }

func (c seeded) n(limit int) int { return c.IntN(limit) }

// actor is a client of the random runs. Actors that share an instance id fence
// each other.
type actor struct {
	name   string
	inst   *string
	member string
	gen    int32
	leads  bool
	others []string // members, known to the leader
}

// run is one random run: actors that mostly do what clients do, at times with
// stale knowledge, against a world that crashes.
type run struct {
	chooser
	w      *world
	actors []*actor
	asking map[Token]*actor
	ids    int
	// What must never be undone, by group; forgotten when the group goes.
	synced  map[string]int32            // the latest generation that some member was assigned
	leaders map[string]map[int32]string // the one told to assign
	wrong   string                      // the first violation of fencing
}

var runGroups = []string{"g", "h"}

func newRun(w *world, c chooser) *run {
	r := &run{
		chooser: c, w: w, asking: map[Token]*actor{},
		synced: map[string]int32{}, leaders: map[string]map[int32]string{},
	}
	s1, s2 := "s1", "s2"
	for i, inst := range []*string{nil, nil, nil, &s1, &s1, &s2} {
		r.actors = append(r.actors, &actor{name: fmt.Sprintf("c%d", i), inst: inst, gen: -1})
	}
	return r
}

// groupOf keeps an actor in one group.
func (r *run) groupOf(a *actor) string {
	return runGroups[int(a.name[1]-'0')%3/2]
}

func (r *run) violated(format string, args ...any) {
	if r.wrong == "" {
		r.wrong = fmt.Sprintf(format, args...)
	}
}

func (r *run) step() {
	a := r.actors[r.n(len(r.actors))]
	switch k := r.n(40); {
	case k < 9:
		r.join(a)
	case k < 16:
		r.sync(a)
	case k < 19:
		req := kmsg.NewPtrHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 4, r.groupOf(a), a.member, a.inst, r.gen(a)
		r.do(Heartbeat{r.open(a, "heartbeat", 4), req})
	case k < 21:
		r.leave(a)
	case k < 24:
		r.commit(a)
	case k < 29:
		r.txnCommit(a)
	case k < 32:
		r.w.marker(batch.ProducerID(1+r.n(3)), r.n(3) > 0)
	case k < 33:
		r.delete(a)
	case k < 35:
		r.w.advance(int64(1+r.n(8000)), func(e Effects) { r.learn(nil, e) })
	case k < 36:
		r.w.advance(int64(1+r.n(3_000_000)), func(e Effects) { r.learn(nil, e) })
	case k < 37:
		r.w.replay(r.w.log)
		clear(r.asking)
	default:
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 6, runGroups
		r.do(Describe{r.open(nil, "describe", 6), req})
	}
	for _, id := range runGroups {
		if r.w.m.lookup(id) == nil {
			delete(r.synced, id)
			delete(r.leaders, id)
		}
	}
}

// gen is what the actor believes, at times what it believed before.
func (r *run) gen(a *actor) int32 {
	if r.n(8) == 0 {
		return a.gen - int32(r.n(3))
	}
	return a.gen
}

func (r *run) open(a *actor, label string, version int16) Token {
	t := r.w.open(label, version)
	r.asking[t] = a
	return t
}

func (r *run) do(c Command) { r.learn(c, r.w.do(c)) }

func (r *run) join(a *actor) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = []int16{3, 5, 8, 9}[r.n(4)]
	if a.inst != nil && req.Version < 5 {
		req.Version = 5
	}
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = r.groupOf(a), a.member, a.inst, "consumer"
	if a.inst != nil && r.n(4) == 0 {
		req.MemberID = "" // restarted
	}
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(6000+1000*r.n(20)), int32(1000*r.n(60))
	for _, name := range [][]string{{"x"}, {"x", "y"}, {"y", "x"}, {"y"}}[r.n(4)] {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, []byte(strconv.Itoa(r.n(2)))
		req.Protocols = append(req.Protocols, p)
	}
	r.ids++
	r.do(Join{Token: r.open(a, "join", req.Version), Request: req, ClientID: a.name, NewMemberID: strconv.Itoa(r.ids)})
}

func (r *run) sync(a *actor) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 5, r.groupOf(a), a.member, a.inst, r.gen(a)
	if a.leads {
		for _, m := range a.others {
			ga := kmsg.NewSyncGroupRequestGroupAssignment()
			ga.MemberID, ga.MemberAssignment = m, []byte(m)
			req.GroupAssignment = append(req.GroupAssignment, ga)
		}
	}
	r.do(Sync{r.open(a, "sync", 5), req})
}

func (r *run) leave(a *actor) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.MemberID = []int16{2, 5}[r.n(2)], r.groupOf(a), a.member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID = a.member, a.inst
	if a.inst != nil && r.n(3) == 0 {
		m.MemberID = ""
	}
	req.Members = append(req.Members, m)
	r.do(Leave{r.open(a, "leave", req.Version), req})
}

func (r *run) commit(a *actor) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 9, r.groupOf(a), a.member, a.inst, r.gen(a)
	if r.n(6) == 0 {
		req.MemberID, req.InstanceID, req.Generation = "", nil, -1
	}
	t := kmsg.NewOffsetCommitRequestTopic()
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	t.Topic, p.Partition, p.Offset = "t", int32(r.n(2)), int64(r.n(1000))
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	r.do(OffsetCommit{r.open(a, "commit", 9), req})
}

func (r *run) txnCommit(a *actor) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 5, r.groupOf(a), a.member, a.inst, r.gen(a)
	req.ProducerID, req.ProducerEpoch = int64(1+r.n(3)), 0
	for i := range 1 + r.n(2) {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		t.Topic, p.Partition, p.Offset = "t", int32((i+r.n(2))%2), int64(r.n(1000))
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	r.do(TxnOffsetCommit{r.open(a, "txncommit", 5), req})
}

func (r *run) delete(a *actor) {
	group := r.groupOf(a)
	switch r.n(4) {
	case 0:
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version, req.Groups = 2, []string{group}
		r.do(Delete{r.open(a, "delete", 2), req})
	case 1:
		r.do(TopicDeleted{Topic: "t", Partitions: []int32{int32(r.n(2))}})
	default:
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = "t"
		t.Partitions = append(t.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: int32(r.n(2))})
		req.Topics = append(req.Topics, t)
		r.do(OffsetDelete{r.open(a, "offsetdelete", 0), req})
	}
}

// learn lets actors take in their replies and checks what replies may say.
func (r *run) learn(c Command, eff Effects) {
	for _, reply := range eff.Replies {
		a := r.asking[reply.Token]
		delete(r.asking, reply.Token)
		switch v := reply.Response.(type) {
		case *kmsg.JoinGroupResponse:
			r.joined(a, v)
		case *kmsg.SyncGroupResponse:
			if v.ErrorCode == 0 {
				r.synced[r.groupOf(a)] = max(r.synced[r.groupOf(a)], r.w.m.groups[r.groupOf(a)].generation)
			}
		case *kmsg.TxnOffsetCommitResponse:
			req := c.(TxnOffsetCommit).Request
			if code := v.Topics[0].Partitions[0].ErrorCode; code == 0 && req.Generation >= 0 && req.Generation < r.synced[req.Group] {
				r.violated("TxnOffsetCommit of generation %d accepted, %d has been assigned", req.Generation, r.synced[req.Group])
			}
		}
	}
}

func (r *run) joined(a *actor, v *kmsg.JoinGroupResponse) {
	switch v.ErrorCode {
	case 0:
	case 79:
		a.member, a.gen = v.MemberID, -1
		return
	case 25, 82, 24, 81:
		a.member, a.gen, a.leads = "", -1, false
		return
	default:
		return
	}
	a.member, a.gen = v.MemberID, v.Generation
	a.leads = v.LeaderID == v.MemberID && !v.SkipAssignment
	a.others = nil
	for _, m := range v.Members {
		a.others = append(a.others, m.MemberID)
	}
	if !a.leads {
		return
	}
	group := r.groupOf(a)
	if r.leaders[group] == nil {
		r.leaders[group] = map[int32]string{}
	}
	for gen, leader := range r.leaders[group] {
		if gen > v.Generation || (gen == v.Generation && leader != v.MemberID) {
			r.w.tb.Fatalf("%s told to lead generation %d of %s; %s led generation %d", v.MemberID, v.Generation, group, leader, gen)
		}
	}
	r.leaders[group][v.Generation] = v.MemberID
}

// checkOffsets holds the machine to what the log says, read naively: a commit
// counts if it is plain or its producer's next marker commits, and no tombstone
// of its key follows it; of those that count the last in the log is committed.
func (r *run) checkOffsets() {
	type key struct {
		group string
		p     int32
	}
	committed, unstable := map[key]int64{}, map[key]bool{}
	for i, e := range r.w.log {
		kind, _ := batch.KeyType(e.record.Key)
		if e.marker || kind != batch.KeyTypeOffsetCommit || e.record.Value == nil {
			continue
		}
		k, _ := batch.ParseOffsetKey(e.record.Key)
		v, _ := batch.UnmarshalOffsetValue(e.record.Value)
		open, counts := e.txn, true
		for _, later := range r.w.log[i+1:] {
			if open && later.marker && later.pid == e.pid {
				open, counts = false, counts && later.commit
			}
			if !later.marker && later.record.Value == nil && slices.Equal(later.record.Key, e.record.Key) {
				open, counts = false, false
			}
		}
		at := key{k.Group, k.Partition}
		switch {
		case open:
			unstable[at] = true
		case counts:
			committed[at] = int64(v.Offset)
		}
	}
	for _, group := range runGroups {
		for p := range int32(2) {
			for _, stable := range []bool{false, true} {
				eff := r.w.do(GroupOffsetFetch{
					Token: r.w.open("fetch", 0), Group: group, RequireStable: stable,
					Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{p}}},
				})
				got := eff.Replies[0].OffsetFetch.Topics[0].Partitions[0]
				want, ok := committed[key{group, p}]
				wantCode := int16(0)
				if !ok {
					want = -1
				}
				if stable && unstable[key{group, p}] {
					want, wantCode = -1, 88
				}
				if got.Offset != want || got.ErrorCode != wantCode {
					r.w.tb.Fatalf("group %s t-%d stable=%v: offset %d code %d, want %d code %d", group, p, stable, got.Offset, got.ErrorCode, want, wantCode)
				}
			}
		}
	}
}

// checkReplay holds a crash right now to what is known now: the same hard state,
// and stable groups are the same groups.
func (r *run) checkReplay() {
	again := replayed(r.w.tb, r.w.cfg, r.w.log)
	if got, want := hardState(again), hardState(r.w.m); !slices.Equal(got, want) {
		r.w.tb.Fatalf("after replay:\n%q\nbefore:\n%q", got, want)
	}
	compacted := New(r.w.cfg)
	for l := range r.w.m.Records() {
		if err := compacted.Apply(l.Offset, l.Record, l.ProducerID, l.Epoch, l.ProducerID >= 0); err != nil {
			r.w.tb.Fatal(err)
		}
	}
	if got, want := hardState(compacted), hardState(r.w.m); !slices.Equal(got, want) {
		r.w.tb.Fatalf("from Records:\n%q\nbefore:\n%q", got, want)
	}
	again.Loaded(r.w.nowMs)
	for id, g := range r.w.m.groups {
		if g.state != Stable {
			continue
		}
		var live, loaded kmsg.DescribeGroupsResponse
		live.Groups, loaded.Groups = make([]kmsg.DescribeGroupsResponseGroup, 1), make([]kmsg.DescribeGroupsResponseGroup, 1)
		g.describeInto(&live.Groups[0])
		again.groups[id].describeInto(&loaded.Groups[0])
		live.Version, loaded.Version = 4, 4
		if !bytes.Equal(live.AppendTo(nil), loaded.AppendTo(nil)) {
			r.w.tb.Fatalf("group %s after replay: %+v, before: %+v", id, loaded, live)
		}
		if again.groups[id].leader != g.leader || again.groups[id].generation != g.generation {
			r.w.tb.Fatalf("group %s after replay: leader %s generation %d, before: %s, %d", id,
				again.groups[id].leader, again.groups[id].generation, g.leader, g.generation)
		}
	}
}

// drain lets all time pass: whoever waits must be answered.
func (r *run) drain() {
	r.w.advance(3_600_000, func(e Effects) { r.learn(nil, e) })
	if len(r.w.parked) > 0 {
		r.w.tb.Fatalf("never answered: %v", r.w.parked)
	}
}

func runConfig(c chooser) Config {
	return Config{
		InitialRebalanceDelayMs: int64(3000 * c.n(2)), MaxSize: 3 * c.n(2), OffsetRetentionMs: 2_000_000,
	}
}

// TestRandomRuns: any order of requests, markers, timeouts and crashes answers
// every token once, keeps one leader per generation, fences older generations,
// and gives the offsets that the log says, before and after a replay.
func TestRandomRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapidChooser{t}
		r := newRun(newWorld(t, runConfig(c)), c)
		for range 1 + c.n(120) {
			r.step()
			r.checkReplay()
		}
		r.checkOffsets()
		r.drain()
		r.checkOffsets()
		if r.wrong != "" {
			t.Fatal(r.wrong)
		}
	})
}

// TestRandomRunsReachAllStates shows that the random runs are not idle.
func TestRandomRunsReachAllStates(t *testing.T) {
	seen, accepted := map[State]int{}, 0
	for seed := range uint64(40) {
		c := seeded{rand.New(rand.NewPCG(seed, 1))}
		r := newRun(newWorld(t, runConfig(c)), c)
		for range 300 {
			r.step()
			for _, g := range r.w.m.groups {
				seen[g.state]++
			}
		}
		for _, e := range r.w.log {
			if e.txn && !e.marker {
				accepted++
			}
		}
		r.checkOffsets()
		r.drain()
	}
	for _, s := range []State{Empty, PreparingRebalance, CompletingRebalance, Stable} {
		if seen[s] < 100 {
			t.Errorf("state %s seen %d times", s, seen[s])
		}
	}
	if accepted < 100 {
		t.Errorf("%d offsets committed in transactions", accepted)
	}
}

// TestNoGenerationCheckIsNoticed is the negative control: without the check
// the property of TestRandomRuns must be seen broken, and with it never.
func TestNoGenerationCheckIsNoticed(t *testing.T) {
	for _, off := range []bool{false, true} {
		broken := 0
		for seed := range uint64(60) {
			c := seeded{rand.New(rand.NewPCG(seed, 2))}
			cfg := runConfig(c)
			cfg.NoGenerationCheck = off
			r := newRun(newWorld(t, cfg), c)
			for range 300 {
				r.step()
			}
			if r.wrong != "" {
				broken++
			}
		}
		if off && broken == 0 {
			t.Error("the control is green: no zombie's commit was noticed without the check")
		}
		if !off && broken > 0 {
			t.Errorf("%d runs with a zombie's commit in spite of the check", broken)
		}
	}
}
