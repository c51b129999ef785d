package txn

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// tick lets time pass. The model knows which transactions have timed out and
// which ids have expired.
func (w *world) tick(rt *rapid.T) {
	w.rt = rt
	w.passTime(rapid.SampledFrom([]int64{1, 10, 100, 1000, 6000, 604_800_000}).Draw(rt, "ms"))
}

func (w *world) passTime(ms int64) {
	w.nowMs += ms
	type due struct{ fence, expire bool }
	want := map[string]due{}
	for id, n := range w.ids {
		switch {
		case n.known && n.md.state == Ongoing && n.md.startMs+int64(n.md.timeoutMs) < w.nowMs:
			want[id] = due{fence: true}
		case n.known && n.md.state.resting() && n.md.updateMs <= w.nowMs-w.m.cfg.IDExpirationMs:
			want[id] = due{expire: true}
		}
	}
	deadline := w.m.deadlineMs
	if len(want) > 0 && (deadline == 0 || deadline > w.nowMs) {
		w.rt.Fatalf("Tick is wanted at %d, but %v is due at %d", deadline, want, w.nowMs)
	}
	firstID := w.nextID
	eff := w.do(Tick{})
	nextID := w.nextID
	w.nextID = firstID
	for _, id := range slices.Sorted(maps.Keys(w.ids)) {
		n := w.ids[id]
		switch {
		case want[id].fence:
			if n.md.exhausted() {
				w.nextID++ // the ids were taken in this order
			}
			w.prepared(id, false, 2)
		case want[id].expire:
			w.ids[id] = &naive{}
		}
	}
	if w.nextID != nextID {
		w.rt.Fatalf("%d producer ids were taken, want %d", nextID-firstID, w.nextID-firstID)
	}
	for _, r := range eff.Replies {
		w.checkGaveUp(r)
	}
}

// checkGaveUp takes a parked command's 51 after MaxWaitMs.
func (w *world) checkGaveUp(r Reply) {
	for _, n := range w.ids {
		if n.ending == r.Token {
			n.ending = 0
			if r.Code == 51 {
				return
			}
		}
		if i := slices.IndexFunc(n.parked, func(c AddPartitions) bool { return c.Token == r.Token }); i >= 0 && r.Code == 51 {
			n.parked = slices.Delete(n.parked, i, i+1)
			return
		}
	}
	w.rt.Fatalf("Tick answered %+v", r)
}

// restart loses everything soft: markers and answers under way, parked requests.
func (w *world) restartAll(rt *rapid.T) {
	w.rt = rt
	clear(w.open)
	w.sent = nil
	before := fingerprint(w.m)
	for _, n := range w.ids {
		n.ending, n.parked = 0, nil
		n.missing = map[batch.TopicPartition]bool{}
		if n.md.state.prepared() {
			for _, tp := range n.md.partitions {
				n.missing[tp] = true
			}
		}
	}
	last := maps.Clone(w.lastMD)
	w.stepped = nil
	eff := w.bench.restart(len(w.log))
	w.stepped = w.observe
	w.lastMD = last
	if fingerprint(w.m) != before {
		rt.Fatalf("replay gives another state than the live machine had")
	}
	if len(eff.Records)+len(eff.Replies) > 0 {
		rt.Fatalf("resume:\n%s", formatEffects(eff))
	}
	w.observe(eff)
}

// crash replays a random prefix of the log into a second machine and lets every
// partition answer: what the prefix decided must come out, whatever the boundary.
func (w *world) crash(rt *rapid.T) {
	w.rt = rt
	keep := rapid.IntRange(max(0, len(w.log)-6), len(w.log)).Draw(rt, "keep")
	decided := map[string]metadata{}
	for _, r := range w.log[:keep] {
		id, _ := decodeKey(r.Key)
		delete(decided, id)
		if r.Value != nil {
			decided[id], _ = decodeValue(r.Value)
		}
	}
	b := &bench{tb: rt, cfg: w.cfg, nowMs: w.nowMs, log: slices.Clone(w.log)}
	b.cfg.NextID = nil
	eff := b.restart(keep)
	for _, mk := range eff.Markers {
		md := decided[mk.TransactionalID]
		if !equalTPs(mk.Partitions, md.partitions) {
			rt.Fatalf("resume sends %+v for %s", mk, formatMetadata(md))
		}
		b.do(written(mk, 0))
	}
	if b.m.Len() != len(decided) {
		rt.Fatalf("%d ids after the crash, want %d", b.m.Len(), len(decided))
	}
	for id, md := range decided {
		want := md.state
		if want.prepared() {
			want = md.complete(0).state
		}
		if now := b.md(id); now.state != want {
			rt.Fatalf("%s was %s at the crash and became %s", id, formatMetadata(md), formatMetadata(now))
		}
	}
}

// check compares model and machine after every action.
func (w *world) check(rt *rapid.T) {
	w.rt = rt
	for id, n := range w.ids {
		d, code := w.m.Describe(id)
		if (code == 0) != n.known {
			rt.Fatalf("%s: describe gives %d, known %v", id, code, n.known)
		}
		if !n.known {
			continue
		}
		if got, want := formatMetadata(w.md(id)), formatMetadata(n.md); got != want {
			rt.Fatalf("%s is\n%s, want\n%s", id, got, want)
		}
		left := n.md.partitions
		if n.md.state.prepared() {
			left = slices.SortedFunc(maps.Keys(n.missing), batch.TopicPartition.Compare)
		}
		if !equalTPs(d.Partitions, left) {
			rt.Fatalf("%s shows partitions %v, want %v", id, d.Partitions, left)
		}
	}
}

// settle lets every partition answer and checks that nothing is left hanging.
func (w *world) settle() {
	for rounds := 0; len(w.sent) > 0 || w.waitsForRetry(); rounds++ {
		if rounds > 100 {
			w.rt.Fatal("markers never end")
		}
		for len(w.sent) > 0 {
			w.answer(0, w.sent[0].Partitions[0], 0)
		}
		w.passTime(w.m.cfg.MarkerRetryMs)
	}
	if len(w.open) > 0 {
		w.rt.Fatalf("requests without an answer: %v", w.open)
	}
	for id, n := range w.ids {
		if n.md.state.prepared() {
			w.rt.Fatalf("%s stays %v", id, n.md.state)
		}
	}
}

// waitsForRetry reports whether some refused marker is to be sent again.
func (w *world) waitsForRetry() bool {
	for _, e := range w.m.entries {
		if len(e.retry) > 0 {
			return true
		}
	}
	return false
}

func TestRandomCommandsMatchTheNaiveModel(t *testing.T) {
	ended := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":        w.check,
			"init":    w.init,
			"add":     w.add,
			"add2":    w.add,
			"end":     w.end,
			"end2":    w.end,
			"marker":  w.marker,
			"marker2": w.marker,
			"marker3": w.marker,
			"tick":    w.tick,
			"restart": w.restartAll,
			"crash":   w.crash,
		})
		w.rt = rt
		w.settle()
		ended += w.ended
	})
	if ended == 0 {
		t.Error("no transaction ended: the run proves nothing")
	}
	t.Logf("%d transactions ended", ended)
}
