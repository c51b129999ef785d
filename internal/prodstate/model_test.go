package prodstate

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// The oracle keeps nothing but what happened, in order, and answers every
// question by reading all of it: slow, and too plain to be wrong in the same way.

// happening is one thing that happened: a batch or a marker in the log, or an
// attempt that was told to verify.
type happening struct {
	kind   string // "data", "marker", "verify"
	h      batch.Header
	base   batch.Offset
	marker Marker
	tv2    bool
	token  Token
}

type oracle struct{ past []happening }

func (o *oracle) of(pid batch.ProducerID) []happening {
	var own []happening
	for _, x := range o.past {
		if x.h.ProducerID == pid {
			own = append(own, x)
		}
	}
	return own
}

// epoch is that of the producer's last batch or marker in the log.
func (o *oracle) epoch(pid batch.ProducerID) batch.Epoch {
	epoch := batch.NoEpoch
	for _, x := range o.of(pid) {
		if x.kind != "verify" {
			epoch = x.h.Epoch
		}
	}
	return epoch
}

// known are the batches of the current epoch, at most five.
func (o *oracle) known(pid batch.ProducerID) []happening {
	var known []happening
	epoch := batch.NoEpoch
	for _, x := range o.of(pid) {
		if x.kind == "verify" {
			continue
		}
		if x.h.Epoch != epoch {
			known, epoch = nil, x.h.Epoch
		}
		if x.kind == "data" {
			known = append(known, x)
		}
	}
	return known[max(0, len(known)-5):]
}

// openSince is the first transactional batch after the last marker, or -1.
func (o *oracle) openSince(pid batch.ProducerID) batch.Offset {
	since := batch.Offset(-1)
	for _, x := range o.of(pid) {
		switch {
		case x.kind == "marker":
			since = -1
		case x.kind == "data" && x.h.IsTransactional() && since < 0:
			since = x.base
		}
	}
	return since
}

func (o *oracle) coordinatorEpoch(pid batch.ProducerID) int32 {
	epoch := int32(-1)
	for _, x := range o.of(pid) {
		if x.kind == "marker" {
			epoch = x.marker.CoordinatorEpoch
		}
	}
	return epoch
}

// verifying are the attempts since the token was last cleared.
func (o *oracle) verifying(pid batch.ProducerID) []happening {
	var attempts []happening
	for _, x := range o.of(pid) {
		switch x.kind {
		case "verify":
			attempts = append(attempts, x)
		case "data":
			if x.h.IsTransactional() {
				attempts = nil
			}
		case "marker":
			newest := batch.NoEpoch
			for _, a := range attempts {
				newest = max(newest, a.h.Epoch)
			}
			if !x.marker.TV2 || newest < x.h.Epoch {
				attempts = nil
			}
		}
	}
	return attempts
}

// lowest is the lowest sequence of the newest epoch, and whether version 2 asked
// for it first.
func lowest(attempts []happening) (sequence int32, tv2 bool) {
	newest := batch.NoEpoch
	for _, a := range attempts {
		if a.h.Epoch > newest {
			newest, sequence, tv2 = a.h.Epoch, a.h.BaseSequence, a.tv2
		} else if a.h.Epoch == newest {
			sequence = min(sequence, a.h.BaseSequence)
		}
	}
	return sequence, tv2
}

// decide answers as the table in the specification reads.
func (o *oracle) decide(c AppendBatch) (Action, int16, batch.Offset) {
	h := c.Header
	known, epoch, open := o.known(h.ProducerID), o.epoch(h.ProducerID), o.openSince(h.ProducerID)
	if h.Epoch == epoch && !c.Coordinator {
		for _, x := range known {
			if x.h.BaseSequence == h.BaseSequence && x.h.LastSequence() == h.LastSequence() {
				return Duplicate, 0, x.base
			}
		}
	}
	if h.Epoch < epoch {
		return Reject, 47, 0
	}
	attempts := o.verifying(h.ProducerID)
	if h.IsTransactional() && (open < 0 || epoch != h.Epoch) {
		if c.Token == 0 {
			return Verify, 0, 0
		}
		if len(attempts) == 0 || attempts[0].token != c.Token {
			return Reject, 48, 0
		}
	}
	if !c.Coordinator && !o.inSequence(h, known, epoch, attempts) {
		return Reject, 45, 0
	}
	if open >= 0 && !h.IsTransactional() {
		return Reject, 48, 0
	}
	return Append, 0, 0
}

func (o *oracle) inSequence(h batch.Header, known []happening, epoch batch.Epoch, attempts []happening) bool {
	if len(attempts) > 0 {
		sequence, tv2 := lowest(attempts)
		if tv2 && len(known) == 0 && h.BaseSequence != 0 || h.BaseSequence > sequence {
			return false
		}
	}
	switch {
	case epoch == batch.NoEpoch:
		return true
	case h.Epoch > epoch || len(known) == 0:
		return h.BaseSequence == 0
	}
	last := known[len(known)-1].h.LastSequence()
	if last == math.MaxInt32 {
		return h.BaseSequence == 0
	}
	return h.BaseSequence == last+1
}

func (o *oracle) decideMarker(c AppendMarker) (Action, int16) {
	epoch := o.epoch(c.ProducerID)
	switch {
	case c.Epoch < epoch:
		return Reject, 47
	case c.TV2 && c.Epoch == epoch && o.openSince(c.ProducerID) >= 0 && c.Epoch != 32767:
		return Reject, 47
	case c.CoordinatorEpoch < o.coordinatorEpoch(c.ProducerID):
		return Reject, 52
	}
	return Append, 0
}

// lastStable looks at every offset from the start for one that must be hidden.
func (o *oracle) lastStable(hw, start batch.Offset) batch.Offset {
	for _, x := range o.past {
		if x.kind != "data" || !x.h.IsTransactional() || x.base >= hw {
			continue
		}
		hidden := true
		for _, y := range o.past {
			if y.kind == "marker" && y.h.ProducerID == x.h.ProducerID && y.base > x.base {
				hidden = y.base >= hw
				break
			}
		}
		if hidden {
			return max(x.base, start)
		}
	}
	return max(hw, start)
}

// TestAgainstTheAppendList drives random producers, well behaved and not.
func TestAgainstTheAppendList(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{m: New(Options{}), o: &oracle{}, seen: seen}
		t.Repeat(map[string]func(*rapid.T){
			"batch":      w.batch,
			"next batch": w.nextBatch,
			"retry":      w.retry,
			"marker":     w.marker,
			"restart":    w.restart,
			"hw":         w.advance,
			"":           w.check,
		})
	})
	for _, want := range []string{"append", "duplicate", "verify", "reject 45", "reject 47", "reject 48", "reject 52", "restart in a transaction"} {
		if seen[want] == 0 {
			t.Errorf("the run never met %q: %v", want, seen)
		}
	}
}

type world struct {
	m        *Machine
	o        *oracle
	end, hw  batch.Offset
	logStart batch.Offset
	tries    []AppendBatch
	seen     map[string]int
	picture  *Undecided // as of version *pictured
	pictured *uint64
}

func (w *world) note(a Action, code int16) {
	name := a.String()
	if a == Reject {
		name = fmt.Sprintf("reject %d", code)
	}
	w.seen[name]++
}

func (w *world) batch(t *rapid.T) {
	c := AppendBatch{TV2: rapid.Bool().Draw(t, "tv2"), Coordinator: rapid.IntRange(0, 9).Draw(t, "coordinator") == 0}
	n := rapid.Int32Range(1, 3).Draw(t, "n")
	c.Header = batch.Header{
		ProducerID:      batch.ProducerID(rapid.IntRange(0, 2).Draw(t, "pid")),
		Epoch:           batch.Epoch(rapid.IntRange(0, 3).Draw(t, "epoch")),
		BaseSequence:    rapid.SampledFrom([]int32{0, 0, 1, 2, 5, math.MaxInt32 - 1, math.MaxInt32}).Draw(t, "sequence"),
		Count:           n,
		LastOffsetDelta: n - 1,
	}
	if rapid.Bool().Draw(t, "transactional") {
		c.Header.Attributes = batch.AttrTransactional
	}
	if c.Coordinator {
		c.Header.BaseSequence, c.Header.Attributes = batch.NoSequence, batch.AttrTransactional
	}
	c.Token = Token(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "token"))
	w.try(t, c)
}

// nextBatch is what a well-behaved client sends.
func (w *world) nextBatch(t *rapid.T) {
	pid := batch.ProducerID(rapid.IntRange(0, 2).Draw(t, "pid"))
	c := AppendBatch{TV2: rapid.Bool().Draw(t, "tv2")}
	n := rapid.Int32Range(1, 3).Draw(t, "n")
	c.Header = batch.Header{ProducerID: pid, Epoch: max(w.o.epoch(pid), 0), Count: n, LastOffsetDelta: n - 1}
	if known := w.o.known(pid); len(known) > 0 {
		c.Header.BaseSequence = int32((int64(known[len(known)-1].h.LastSequence()) + 1) & math.MaxInt32)
	}
	if w.o.openSince(pid) >= 0 || rapid.Bool().Draw(t, "transactional") {
		c.Header.Attributes = batch.AttrTransactional
	}
	w.try(t, c)
}

// retry sends something again, perhaps with the token it was given.
func (w *world) retry(t *rapid.T) {
	if len(w.tries) == 0 {
		return
	}
	w.try(t, w.tries[len(w.tries)-1-rapid.IntRange(0, min(8, len(w.tries)-1)).Draw(t, "which")])
}

func (w *world) try(t *rapid.T, c AppendBatch) {
	action, code, base := w.o.decide(c)
	before := w.m.Snapshot()
	d := w.m.Decide(0, c)
	if d.Action != action || d.Code != code || action == Duplicate && d.BaseOffset != base {
		t.Fatalf("%+v: %+v; the oracle says %v %d, base %d", c, d, action, code, base)
	}
	if !bytes.Equal(before, w.m.Snapshot()) {
		t.Fatal("Decide changed hard state")
	}
	w.note(action, code)
	w.tries = append(w.tries, c)
	switch action {
	case Append:
		w.m.Apply(w.end, c.Header, nil)
		w.o.past = append(w.o.past, happening{kind: "data", h: c.Header, base: w.end})
		w.end += batch.Offset(c.Header.Count)
	case Verify:
		if attempts := w.o.verifying(c.Header.ProducerID); len(attempts) > 0 && attempts[0].token != d.Token {
			t.Fatalf("token %d, but %d is installed", d.Token, attempts[0].token)
		}
		w.o.past = append(w.o.past, happening{kind: "verify", h: c.Header, tv2: c.TV2, token: d.Token})
		c.Token = d.Token
		w.tries = append(w.tries, c)
	}
}

func (w *world) marker(t *rapid.T) {
	c := AppendMarker{
		ProducerID:       batch.ProducerID(rapid.IntRange(0, 2).Draw(t, "pid")),
		CoordinatorEpoch: rapid.Int32Range(0, 2).Draw(t, "coordinator"),
		TV2:              rapid.Bool().Draw(t, "tv2"),
	}
	c.Epoch = batch.Epoch(max(0, int(w.o.epoch(c.ProducerID))+rapid.IntRange(-1, 1).Draw(t, "epoch step")))
	abort := rapid.Bool().Draw(t, "abort")
	action, code := w.o.decideMarker(c)
	d := w.m.Decide(0, c)
	if d.Action != action || d.Code != code {
		t.Fatalf("%+v: %+v; the oracle says %v %d", c, d, action, code)
	}
	w.note(action, code)
	if action != Append {
		return
	}
	since := w.o.openSince(c.ProducerID)
	h := batch.Header{ProducerID: c.ProducerID, Epoch: c.Epoch, BaseSequence: -1, Count: 1,
		Attributes: batch.AttrControl | batch.AttrTransactional}
	marker := Marker{Type: batch.ControlCommit, CoordinatorEpoch: c.CoordinatorEpoch, TV2: c.TV2}
	if abort {
		marker.Type = batch.ControlAbort
	}
	ended := w.m.Apply(w.end, h, &marker)
	w.o.past = append(w.o.past, happening{kind: "marker", h: h, base: w.end, marker: marker})
	w.end++
	if (ended != nil) != (since >= 0) {
		t.Fatalf("ended %+v, open since %d", ended, since)
	}
	if ended != nil {
		want := EndedTxn{ProducerID: c.ProducerID, FirstOffset: since, LastOffset: w.end - 1, Aborted: abort,
			LastStableOffset: w.o.lastStable(w.end, 0)}
		if *ended != want {
			t.Fatalf("ended %+v, want %+v", *ended, want)
		}
	}
}

// restart loses the tokens, and nothing else.
func (w *world) restart(t *rapid.T) {
	m, err := Restore(w.m.Snapshot(), Options{LogStart: w.logStart, FirstToken: w.m.nextToken})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.open) > 0 {
		w.seen["restart in a transaction"]++
	}
	// What was restored is durable.
	w.hw = w.end
	w.m, w.pictured = m, nil
	w.m.AdvanceHighWatermark(w.hw)
	var kept []happening
	for _, x := range w.o.past {
		if x.kind != "verify" {
			kept = append(kept, x)
		}
	}
	w.o.past = kept
}

func (w *world) advance(t *rapid.T) {
	w.hw = batch.Offset(rapid.Int64Range(int64(w.hw), int64(w.end)).Draw(t, "hw"))
	w.m.AdvanceHighWatermark(w.hw)
	if rapid.IntRange(0, 9).Draw(t, "delete records") == 0 {
		w.logStart = batch.Offset(rapid.Int64Range(int64(w.logStart), int64(w.hw)).Draw(t, "log start"))
		w.m.SetLogStart(w.logStart)
	}
}

func (w *world) check(t *rapid.T) {
	if v := w.m.UndecidedVersion(); w.pictured == nil || *w.pictured != v {
		w.picture, w.pictured = w.m.Undecided(), &v
	}
	for hw := w.hw; hw <= w.end; hw++ {
		if got, want := w.m.LastStable(hw), w.o.lastStable(hw, w.logStart); got != want {
			t.Fatalf("last stable offset under %d is %d, want %d", hw, got, want)
		}
		if got, want := max(w.picture.LastStable(hw), w.logStart), w.m.LastStable(hw); got != want {
			t.Fatalf("last stable offset under %d is %d in the picture, want %d", hw, got, want)
		}
	}
	for _, p := range w.m.Describe() {
		if p.Epoch != w.o.epoch(p.ProducerID) || p.TxnStartOffset != w.o.openSince(p.ProducerID) ||
			p.CoordinatorEpoch != w.o.coordinatorEpoch(p.ProducerID) {
			t.Fatalf("%+v", p)
		}
	}
}
