package group

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// entry is one offset of the world's log: a record, or a marker.
type entry struct {
	record Record
	pid    batch.ProducerID
	epoch  batch.Epoch
	txn    bool
	marker bool
	commit bool
	batch  int // entries of one batch have one number
}

// reporter is a testing.T or a rapid.T.
type reporter interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is the shell of the tests: a machine, its log and its clock.
type world struct {
	tb      reporter
	cfg     Config
	m       *Machine
	log     []entry
	batches int
	nowMs   int64
	dueMs   int64
	token   Token
	parked  map[Token]string // unanswered, with a label
	version map[Token]int16
}

const startMs = 1_000_000

func newWorld(tb reporter, cfg Config) *world {
	w := &world{tb: tb, cfg: cfg, nowMs: startMs}
	w.replay(w.log)
	return w
}

// replay starts a machine from a log; what waited is lost.
func (w *world) replay(log []entry) {
	w.m = replayed(w.tb, w.cfg, log)
	w.parked, w.version = make(map[Token]string), make(map[Token]int16)
	w.dueMs = w.m.Loaded(w.nowMs)
}

func replayed(tb reporter, cfg Config, log []entry) *Machine {
	m := New(cfg)
	for i, e := range log {
		applyEntry(tb, m, i, e)
	}
	return m
}

func applyEntry(tb reporter, m *Machine, i int, e entry) {
	if e.marker {
		m.ApplyMarker(batch.Offset(i), e.pid, e.epoch, e.commit)
		return
	}
	if err := m.Apply(batch.Offset(i), e.record, e.pid, e.epoch, e.txn); err != nil {
		tb.Fatalf("Apply: %v", err)
	}
}

// add appends an entry and applies it.
func (w *world) add(e entry) {
	w.log = append(w.log, e)
	applyEntry(w.tb, w.m, len(w.log)-1, e)
}

func (w *world) marker(pid batch.ProducerID, commit bool) {
	w.batches++
	w.add(entry{pid: pid, marker: true, txn: true, commit: commit, batch: w.batches})
}

// open gives out a token.
func (w *world) open(label string, version int16) Token {
	w.token++
	w.parked[w.token] = label
	w.version[w.token] = version
	return w.token
}

// do decides a command and does what the effects ask for.
func (w *world) do(c Command) Effects {
	before := hardState(w.m)
	eff := w.m.Decide(w.nowMs, c)
	if eff.Fatal != nil {
		w.tb.Fatalf("%T: %v", c, eff.Fatal)
	}
	if after := hardState(w.m); !slices.Equal(before, after) {
		w.tb.Fatalf("%T: Decide changed hard state:\n%s\n%s", c, strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	for _, a := range eff.Appends {
		w.batches++
		for _, r := range a.Records {
			w.add(entry{record: r, pid: a.ProducerID, epoch: a.Epoch, txn: a.Transactional(), batch: w.batches})
		}
	}
	for _, r := range eff.Replies {
		w.checkReply(r)
	}
	w.dueMs = eff.DeadlineMs
	w.checkInvariants()
	return eff
}

// checkReply holds: each token is answered once, in the version of its request.
func (w *world) checkReply(r Reply) {
	label, ok := w.parked[r.Token]
	if !ok {
		w.tb.Fatalf("token %d answered again, or never given out", r.Token)
	}
	delete(w.parked, r.Token)
	if (r.Response == nil) == (r.OffsetFetch == nil) {
		w.tb.Fatalf("%s: want exactly one kind of answer", label)
	}
	if r.Response == nil {
		return
	}
	if got := r.Response.GetVersion(); got != w.version[r.Token] {
		w.tb.Fatalf("%s: answered in version %d, asked in %d", label, got, w.version[r.Token])
	}
	wire := r.Response.AppendTo(nil)
	again := kmsg.ResponseForKey(r.Response.Key())
	again.SetVersion(r.Response.GetVersion())
	if err := again.ReadFrom(wire); err != nil {
		w.tb.Fatalf("%s: response does not decode: %v", label, err)
	}
	if !bytes.Equal(again.AppendTo(nil), wire) {
		w.tb.Fatalf("%s: response does not survive the wire", label)
	}
}

// advance moves the clock, with a Tick at every deadline on the way.
func (w *world) advance(ms int64, report func(Effects)) {
	end := w.nowMs + ms
	for n := 0; w.dueMs != 0 && w.dueMs <= end; n++ {
		if n > 100_000 {
			w.tb.Fatal("Tick does not come to rest")
		}
		w.nowMs = max(w.dueMs, w.nowMs)
		report(w.do(Tick{}))
		if w.dueMs != 0 && w.dueMs <= w.nowMs {
			w.nowMs++
		}
	}
	w.nowMs = max(end, w.nowMs)
}

// checkInvariants are what must hold after every step.
func (w *world) checkInvariants() {
	for id, g := range w.m.groups {
		fail := func(format string, args ...any) {
			w.tb.Helper()
			w.tb.Fatalf("group %q (%s, generation %d): %s", id, g.state, g.generation, fmt.Sprintf(format, args...))
		}
		if !g.exists() {
			fail("kept, but the log holds nothing of it")
		}
		if len(g.members) != len(g.byID) {
			fail("%d members, %d by id", len(g.members), len(g.byID))
		}
		awaiting := 0
		for _, mem := range g.members {
			if g.byID[mem.id] != mem || (mem.instanceID != nil && g.byInstance[*mem.instanceID] != mem) {
				fail("member %s is not found by its ids", mem.id)
			}
			if mem.join.parked {
				awaiting++
				if g.state != PreparingRebalance {
					fail("member %s waits in JoinGroup", mem.id)
				}
			}
			if mem.sync.parked && g.state != CompletingRebalance {
				fail("member %s waits in SyncGroup", mem.id)
			}
			if !mem.join.parked && !mem.sync.parked && mem.session.index < 0 {
				fail("member %s has no session deadline", mem.id)
			}
			if mem.metadata(g.protocol) == nil && (g.state == Stable || g.state == CompletingRebalance) {
				fail("member %s does not know protocol %q", mem.id, g.protocol)
			}
		}
		if awaiting != g.awaitingJoin {
			fail("%d wait in JoinGroup, counted %d", awaiting, g.awaitingJoin)
		}
		if (len(g.members) == 0) != (g.leader == "") || (g.leader != "" && g.byID[g.leader] == nil) {
			fail("leader %q of %d members", g.leader, len(g.members))
		}
		if g.state == Empty && len(g.members) > 0 {
			fail("has members")
		}
		if g.state == PreparingRebalance && g.joinTimer.index < 0 {
			fail("no join deadline")
		}
		if g.state == CompletingRebalance && g.syncTimer.index < 0 {
			fail("no sync deadline")
		}
		if g.state == Stable && (g.stored.Generation != g.generation || len(g.stored.Members) != len(g.members)) {
			fail("stable, but stored is generation %d with %d members", g.stored.Generation, len(g.stored.Members))
		}
	}
}

// hardState is all the log says, readable.
func hardState(m *Machine) []string {
	var out []string
	for r := range m.Records() {
		line := fmt.Sprintf("@%d %s", r.Offset, showRecord(r.Record))
		if r.ProducerID >= 0 {
			line += fmt.Sprintf(" pending pid=%d epoch=%d", r.ProducerID, r.Epoch)
		}
		out = append(out, line)
	}
	for _, id := range m.groupIDs() {
		g := m.groups[id]
		for _, tp := range sortedKeys(g.pending) {
			out = append(out, fmt.Sprintf("%s %s-%d pending %d times", id, tp.Topic, tp.Partition, g.pending[tp]))
		}
	}
	return out
}

func showRecord(r Record) string {
	if kind, _ := batch.KeyType(r.Key); kind == batch.KeyTypeGroupMetadata {
		id, _ := batch.ParseGroupKey(r.Key)
		if r.Value == nil {
			return id + ": tombstone"
		}
		v, err := batch.UnmarshalGroupValue(r.Value)
		if err != nil {
			return err.Error()
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s: generation=%d type=%q protocol=%s leader=%s members=[", id, v.Generation, v.ProtocolType, show(v.Protocol), show(v.Leader))
		for i, mem := range v.Members {
			if i > 0 {
				b.WriteString(" ")
			}
			b.WriteString(mem.MemberID)
			if mem.InstanceID != nil {
				fmt.Fprintf(&b, "(%s)", *mem.InstanceID)
			}
			fmt.Fprintf(&b, "=%s", mem.Assignment)
		}
		return b.String() + "]"
	}
	k, _ := batch.ParseOffsetKey(r.Key)
	where := fmt.Sprintf("%s: %s-%d", k.Group, k.Topic, k.Partition)
	if r.Value == nil {
		return where + " tombstone"
	}
	v, err := batch.UnmarshalOffsetValue(r.Value)
	if err != nil {
		return err.Error()
	}
	where = fmt.Sprintf("%s=%d", where, v.Offset)
	if v.Metadata != "" {
		where += fmt.Sprintf(" metadata=%q", v.Metadata)
	}
	if v.ExpireMs >= 0 {
		where += fmt.Sprintf(" expires=+%d", v.ExpireMs-v.CommitMs)
	}
	return where
}

func show(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func errName(c int16) string {
	if c == 0 {
		return "ok"
	}
	return fmt.Sprintf("%s(%d)", kerr.TypedErrorForCode(c).Message, c)
}
