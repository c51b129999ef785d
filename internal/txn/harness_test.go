package txn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// bench runs a machine the way a shard does: records are applied at once and
// requeued commands follow. It checks on the way that Decide leaves hard state
// alone and that every record is a legal successor.
type bench struct {
	tb      failer
	m       *Machine
	cfg     Config
	log     []Record
	nowMs   int64
	nextID  batch.ProducerID
	noIDs   bool
	last    Token
	stepped func(Effects) // sees each Decide's effects, if set
}

func newBench(tb failer) *bench {
	b := &bench{tb: tb, nextID: 1000, nowMs: 1_000_000}
	b.cfg = Config{CoordinatorEpoch: 7, NextID: func() (batch.ProducerID, bool) {
		if b.noIDs {
			return 0, false
		}
		b.nextID++
		return b.nextID - 1, true
	}}
	b.m = New(b.cfg)
	return b
}

// failer is the part of a test that a bench needs: of testing's and of rapid's.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// token returns a fresh token.
func (b *bench) token() Token { b.last++; return b.last }

// do decides c and all that follows from it, and returns the joined effects.
func (b *bench) do(c Command) Effects {
	b.tb.Helper()
	before := fingerprint(b.m)
	eff := b.m.Decide(b.nowMs, c)
	if eff.Fatal != nil {
		b.tb.Fatalf("%+v: %v", c, eff.Fatal)
	}
	if after := fingerprint(b.m); after != before {
		b.tb.Fatalf("Decide(%+v) changed hard state\nfrom %s\nto   %s", c, before, after)
	}
	for _, r := range eff.Records {
		b.apply(r)
	}
	if b.stepped != nil {
		b.stepped(eff)
	}
	requeue := eff.Requeue
	for _, next := range requeue {
		more := b.do(next)
		eff.Records = append(eff.Records, more.Records...)
		eff.Replies = append(eff.Replies, more.Replies...)
		eff.Markers = append(eff.Markers, more.Markers...)
		eff.DeadlineMs = more.DeadlineMs
	}
	return eff
}

func (b *bench) apply(r Record) {
	b.tb.Helper()
	if err := b.m.Apply(batch.Offset(len(b.log)), r); err != nil {
		b.tb.Fatal(err)
	}
	b.log = append(b.log, r)
}

// restart replays the first n records into a new machine and resumes it.
func (b *bench) restart(n int) Effects {
	b.tb.Helper()
	log := b.log[:n]
	b.log = nil
	b.cfg.CoordinatorEpoch++
	b.m = New(b.cfg)
	for _, r := range log {
		b.apply(r)
	}
	return b.do(Resume{})
}

// seed writes a state into the log directly.
func (b *bench) seed(id string, md metadata) {
	b.tb.Helper()
	b.apply(Record{Key: encodeKey(id), Value: encodeValue(md)})
}

// md returns the state of an id.
func (b *bench) md(id string) metadata {
	b.tb.Helper()
	e := b.m.entries[id]
	if e == nil {
		b.tb.Fatalf("transactional id %q is unknown", id)
	}
	return e.md
}

// fingerprint is the hard state in a comparable form.
func fingerprint(m *Machine) string {
	var sb strings.Builder
	for r := range m.Records() {
		fmt.Fprintf(&sb, "%x=%x;", r.Key, r.Value)
	}
	return sb.String()
}

func tps(names ...string) []batch.TopicPartition {
	out := make([]batch.TopicPartition, 0, len(names))
	for _, n := range names {
		out = append(out, parseTP(n))
	}
	return out
}

// parseTP reads "topic-partition".
func parseTP(s string) batch.TopicPartition {
	i := strings.LastIndexByte(s, '-')
	var tp batch.TopicPartition
	tp.Topic = s[:i]
	if _, err := fmt.Sscan(s[i+1:], &tp.Partition); err != nil {
		panic(fmt.Sprintf("%q is not topic-partition: %v", s, err))
	}
	return tp
}

func formatTPs(tps []batch.TopicPartition) string {
	var out []string
	for _, tp := range tps {
		out = append(out, fmt.Sprintf("%s-%d", tp.Topic, tp.Partition))
	}
	return strings.Join(out, " ")
}

func formatResults(rs []PartitionResult) string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%s-%d:%d", r.Topic, r.Partition, r.Code))
	}
	return strings.Join(out, " ")
}

func formatMetadata(md metadata) string {
	s := fmt.Sprintf("%v %d/%d last=%d previous=%d", md.state, md.producerID, md.epoch, md.lastEpoch, md.previousID)
	if md.nextID != batch.NoProducerID {
		s += fmt.Sprintf(" next=%d", md.nextID)
	}
	s += fmt.Sprintf(" timeout=%d start=%d update=%d tv=%d", md.timeoutMs, md.startMs, md.updateMs, md.clientVersion)
	if len(md.partitions) > 0 {
		s += " [" + formatTPs(md.partitions) + "]"
	}
	return s
}

func formatEffects(eff Effects) string {
	var sb strings.Builder
	for _, r := range eff.Records {
		id, err := decodeKey(r.Key)
		if err != nil {
			panic(err)
		}
		if r.Value == nil {
			fmt.Fprintf(&sb, "record %s: tombstone\n", id)
			continue
		}
		md, err := decodeValue(r.Value)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&sb, "record %s: %s\n", id, formatMetadata(md))
	}
	for _, r := range eff.Replies {
		fmt.Fprintf(&sb, "reply #%d: %d", r.Token, r.Code)
		if r.ProducerID != batch.NoProducerID || r.Epoch != batch.NoEpoch {
			fmt.Fprintf(&sb, " %d/%d", r.ProducerID, r.Epoch)
		}
		if len(r.Partitions) > 0 {
			fmt.Fprintf(&sb, " %s", formatResults(r.Partitions))
		}
		if r.Message != "" {
			fmt.Fprintf(&sb, " (%s)", r.Message)
		}
		sb.WriteByte('\n')
	}
	for _, mk := range eff.Markers {
		outcome, tv := "ABORT", 1
		if mk.Commit {
			outcome = "COMMIT"
		}
		if mk.TV2 {
			tv = 2
		}
		fmt.Fprintf(&sb, "marker %s: %s %d/%d coordinator=%d tv=%d [%s]\n", mk.TransactionalID, outcome,
			mk.ProducerID, mk.Epoch, mk.CoordinatorEpoch, tv, formatTPs(mk.Partitions))
	}
	for _, s := range eff.Stalled {
		fmt.Fprintf(&sb, "stalled %s: %s\n", s.TransactionalID, formatResults([]PartitionResult{s.PartitionResult}))
	}
	if sb.Len() == 0 {
		return "nothing\n"
	}
	return sb.String()
}

// written answers all partitions of a marker with one code.
func written(mk MarkerBatch, code int16) MarkersWritten {
	c := MarkersWritten{TransactionalID: mk.TransactionalID, ProducerID: mk.ProducerID, Epoch: mk.Epoch}
	for _, tp := range mk.Partitions {
		c.Partitions = append(c.Partitions, PartitionResult{TopicPartition: tp, Code: code})
	}
	return c
}

func onlyReply(tb failer, eff Effects) Reply {
	tb.Helper()
	if len(eff.Replies) != 1 {
		tb.Fatalf("want one reply, have\n%s", formatEffects(eff))
	}
	return eff.Replies[0]
}

func equalTPs(a, b []batch.TopicPartition) bool { return slices.Equal(a, b) }
