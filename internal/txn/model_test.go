package txn

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// naive is what a careful reader of the specification would keep on paper about
// one transactional id. It shares the tables' test oracles with the table tests,
// and nothing with the machine but the metadata type.
type naive struct {
	known   bool
	md      metadata
	missing map[batch.TopicPartition]bool // markers not yet acknowledged
	ending  Token
	parked  []AddPartitions
}

// world drives a machine with random commands next to naive models, simulated
// partitions and clients that remember too much.
type world struct {
	*bench
	rt      *rapid.T
	ids     map[string]*naive
	sent    []MarkerBatch
	granted map[string]bool                   // pairs that some client was given
	pairs   map[string][]Init                 // pairs that clients may still use, by id
	fenced  map[string]batch.Epoch            // partition and producer id → epoch of the last marker
	lastMD  map[string]metadata               // by id, from the records
	open    map[Token]bool                    // requests without an answer yet
	parts   map[string][]batch.TopicPartition // by id: partitions of the last prepared transaction
	ended   int
}

func newWorld(rt *rapid.T) *world {
	w := &world{bench: newBench(rt), rt: rt, ids: map[string]*naive{}, granted: map[string]bool{}, pairs: map[string][]Init{},
		fenced: map[string]batch.Epoch{}, lastMD: map[string]metadata{}, open: map[Token]bool{}, parts: map[string][]batch.TopicPartition{}}
	w.stepped = w.observe
	for i, id := range []string{"a", "b", "c"} {
		w.ids[id] = &naive{}
		if epoch := rapid.SampledFrom([]batch.Epoch{-1, 0, 32763, 32765, 32766}).Draw(rt, "start"); epoch >= 0 {
			md := newMetadata(batch.ProducerID(100+i), 60_000, w.nowMs)
			md.previousID, md.epoch = md.producerID, epoch
			w.seed(id, md)
			w.ids[id].known, w.ids[id].md, w.lastMD[id] = true, md, md
			w.remember(id, md.producerID, md.epoch)
		}
	}
	return w
}

func (w *world) remember(id string, pid batch.ProducerID, epoch batch.Epoch) {
	w.granted[pairKey(pid, epoch)] = true
	w.pairs[id] = append(w.pairs[id], Init{ProducerID: pid, Epoch: epoch})
}

func pairKey(pid batch.ProducerID, epoch batch.Epoch) string { return fmt.Sprintf("%d/%d", pid, epoch) }

// observe checks what holds for the effects of any command.
func (w *world) observe(eff Effects) {
	for _, r := range eff.Records {
		id, _ := decodeKey(r.Key)
		if r.Value == nil {
			if !w.lastMD[id].state.resting() {
				w.rt.Fatalf("%s expires in %v", id, w.lastMD[id].state)
			}
			delete(w.lastMD, id)
			continue
		}
		md, err := decodeValue(r.Value)
		if err != nil {
			w.rt.Fatal(err)
		}
		if old, ok := w.lastMD[id]; ok && old.state.prepared() {
			if want := old.complete(0).state; md.state != want {
				w.rt.Fatalf("%s was decided as %v and became %v", id, old.state, md.state)
			}
		}
		if md.state.prepared() {
			w.parts[id] = md.partitions
		}
		w.lastMD[id] = md
	}
	for _, mk := range eff.Markers {
		md := w.lastMD[mk.TransactionalID]
		if !md.state.prepared() || mk.Commit != (md.state == PrepareCommit) || mk.Epoch != md.epoch || mk.ProducerID != md.producerID ||
			!containsAll(md.partitions, mk.Partitions) || mk.CoordinatorEpoch != w.cfg.CoordinatorEpoch {
			w.rt.Fatalf("marker %+v does not fit %s", mk, formatMetadata(md))
		}
		w.sent = append(w.sent, mk)
	}
	for _, r := range eff.Replies {
		if !w.open[r.Token] {
			w.rt.Fatalf("request %d is answered twice, or was never made", r.Token)
		}
		delete(w.open, r.Token)
		if r.Epoch == maxEpoch {
			w.rt.Fatalf("epoch 32767 is given away: %+v", r)
		}
	}
}

func (w *world) request() Token {
	t := w.token()
	w.open[t] = true
	return t
}

// pick draws an id and a pair of producer id and epoch to use for it: mostly the
// newest, sometimes an older one, sometimes nonsense.
func (w *world) pick() (string, batch.ProducerID, batch.Epoch) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.rt, "id")
	n := len(w.pairs[id])
	if n == 0 || rapid.IntRange(0, 19).Draw(w.rt, "nonsense") == 0 {
		return id, batch.ProducerID(rapid.IntRange(99, 103).Draw(w.rt, "pid")), batch.Epoch(rapid.IntRange(0, 5).Draw(w.rt, "epoch"))
	}
	back := rapid.SampledFrom([]int{0, 0, 0, 0, 1, 1, 2, 3}).Draw(w.rt, "back")
	p := w.pairs[id][max(0, n-1-back)]
	return id, p.ProducerID, p.Epoch
}

func (w *world) init(rt *rapid.T) {
	w.rt = rt
	id, pid, epoch := w.pick()
	c := Init{Token: w.request(), TransactionalID: id, TimeoutMs: int32(rapid.IntRange(1, 5000).Draw(rt, "timeout")), ProducerID: pid, Epoch: epoch}
	if rapid.Bool().Draw(rt, "anew") {
		c.ProducerID, c.Epoch = -1, -1
	}
	n := w.ids[id]
	want := initWant{fresh: true, last: -1}
	if n.known {
		want = initRow(n.md, c)
	}
	if want.fresh {
		want.pid = w.nextID
	}
	r := onlyReply(rt, w.do(c))
	if r.Code != want.code || r.Code == 0 && (r.ProducerID != want.pid || r.Epoch != want.epoch) {
		rt.Fatalf("%+v at %s: %+v, want %+v", c, formatMetadata(n.md), r, want)
	}
	switch {
	case want.fence:
		w.prepared(id, false, 2)
	case r.Code == 0:
		if c.ProducerID == -1 && w.granted[pairKey(r.ProducerID, r.Epoch)] {
			rt.Fatalf("a new producer gets a pair that is in use: %+v", r)
		}
		if !n.known {
			n.md = newMetadata(r.ProducerID, 0, w.nowMs)
		}
		if r.ProducerID != n.md.producerID || r.Epoch != n.md.epoch {
			n.md.previousID = n.md.producerID
		}
		n.known = true
		n.md.state, n.md.producerID, n.md.epoch, n.md.lastEpoch = Empty, r.ProducerID, r.Epoch, want.last
		n.md.timeoutMs, n.md.startMs, n.md.partitions = c.TimeoutMs, -1, nil
		n.md.updateMs = w.nowMs
		w.remember(id, r.ProducerID, r.Epoch)
	}
}

// prepared moves the model to Prepare, and on if there is nothing to mark.
func (w *world) prepared(id string, commit bool, version int16) {
	n := w.ids[id]
	if n.md.state.resting() {
		n.md.startMs = w.nowMs
	}
	n.md.state = PrepareAbort
	if commit {
		n.md.state = PrepareCommit
	}
	n.md.previousID, n.md.clientVersion, n.md.updateMs = n.md.producerID, version, w.nowMs
	if version == 2 {
		if n.md.epoch >= 32766 {
			n.md.nextID = w.nextID - 1 // just taken
		}
		n.md.lastEpoch, n.md.epoch = n.md.epoch, n.md.epoch+1
	}
	n.missing = map[batch.TopicPartition]bool{}
	for _, tp := range n.md.partitions {
		n.missing[tp] = true
	}
	if len(n.missing) == 0 {
		w.completed(id)
	}
}

func (w *world) completed(id string) {
	n := w.ids[id]
	n.md.state += 2 // PrepareX to CompleteX
	n.md.previousID = n.md.producerID
	if n.md.nextID >= 0 {
		n.md.producerID, n.md.epoch, n.md.nextID = n.md.nextID, 0, -1
	}
	n.md.partitions, n.md.updateMs = nil, w.nowMs
	w.ended++
}

func (w *world) add(rt *rapid.T) {
	w.rt = rt
	id, pid, epoch := w.pick()
	c := AddPartitions{Token: w.request(), TransactionalID: id, ProducerID: pid, Epoch: epoch,
		VerifyOnly: rapid.IntRange(0, 4).Draw(rt, "verify") == 0, TV2: rapid.Bool().Draw(rt, "tv2"), Wait: rapid.Bool().Draw(rt, "wait")}
	for range rapid.IntRange(0, 3).Draw(rt, "n") {
		c.Partitions = append(c.Partitions, batch.TopicPartition{Topic: "t", Partition: int32(rapid.IntRange(0, 4).Draw(rt, "partition"))})
	}
	code := w.expectAdd(c)
	if code == 51 && c.Wait {
		w.ids[id].parked = append(w.ids[id].parked, c)
		if eff := w.do(c); len(eff.Replies)+len(eff.Records) > 0 {
			rt.Fatalf("%+v should wait: %s", c, formatEffects(eff))
		}
		return
	}
	w.checkAdded(c, code, onlyReply(rt, w.do(c)))
}

func (w *world) expectAdd(c AddPartitions) int16 {
	md := w.ids[c.TransactionalID].md
	switch {
	case !w.ids[c.TransactionalID].known || c.ProducerID != md.producerID:
		return 49
	case c.Epoch != md.epoch:
		return 90
	case md.state.prepared():
		return 51
	}
	return 0
}

// checkAdded compares an answer, and enters a granted add into the model.
func (w *world) checkAdded(c AddPartitions, code int16, r Reply) {
	n := w.ids[c.TransactionalID]
	if r.Code != code {
		w.rt.Fatalf("%+v at %s: %+v, want %d", c, formatMetadata(n.md), r, code)
	}
	for _, p := range r.Partitions {
		want := code
		if code == 0 && c.VerifyOnly && (n.md.state != Ongoing || !slices.Contains(n.md.partitions, p.TopicPartition)) {
			want = 120
		}
		if p.Code != want {
			w.rt.Fatalf("%+v at %s: %+v, want %d", c, formatMetadata(n.md), p, want)
		}
	}
	if code != 0 || c.VerifyOnly {
		return
	}
	if n.md.state == Ongoing && containsAll(n.md.partitions, c.Partitions) {
		return
	}
	if n.md.state != Ongoing {
		n.md.startMs = w.nowMs
	}
	n.md.state, n.md.previousID, n.md.updateMs, n.md.clientVersion = Ongoing, n.md.producerID, w.nowMs, 0
	if c.TV2 {
		n.md.clientVersion = 2
	}
	n.md.partitions = union(n.md.partitions, c.Partitions)
}

func (w *world) end(rt *rapid.T) {
	w.rt = rt
	id, pid, epoch := w.pick()
	c := EndTxn{Token: w.request(), TransactionalID: id, ProducerID: pid, Epoch: epoch,
		Commit: rapid.Bool().Draw(rt, "commit"), Version: rapid.SampledFrom([]int16{4, 5}).Draw(rt, "version")}
	n := w.ids[id]
	before := n.md
	want, version := w.expectEnd(c)
	eff := w.do(c)
	switch {
	case strings.HasPrefix(want, "Prepare") || strings.HasPrefix(want, "abort"):
		if before.exhausted() && version == 2 && n.md.nextID >= 0 {
			rt.Fatalf("model is out of step")
		}
		w.prepared(id, c.Commit, version)
		if !n.md.state.prepared() {
			w.checkEnded(c, onlyReply(rt, eff))
			return
		}
		n.ending = c.Token
		if len(eff.Replies) != 0 || len(eff.Markers) != 1 || !equalTPs(eff.Markers[0].Partitions, before.partitions) {
			rt.Fatalf("%+v at %s:\n%s", c, formatMetadata(before), formatEffects(eff))
		}
	case strings.HasPrefix(want, "0"):
		w.checkEnded(c, onlyReply(rt, eff))
	default:
		if r := onlyReply(rt, eff); fmt.Sprint(r.Code) != want {
			rt.Fatalf("%+v at %s: %+v, want %s", c, formatMetadata(before), r, want)
		}
	}
}

// expectEnd looks into the specification's tables.
func (w *world) expectEnd(c EndTxn) (want string, version int16) {
	n := w.ids[c.TransactionalID]
	find := func(table string) []string {
		for _, row := range rows(table) {
			if row[0] == n.md.state.String() {
				return row
			}
		}
		return nil
	}
	switch {
	case !n.known:
		return "49", 0
	case c.Version >= 5:
		return endCellV2(find(endTableV2), n.md, c), 2
	case c.ProducerID != n.md.producerID:
		return "49", 0
	case c.Epoch != n.md.epoch:
		return "90", 0
	case c.Commit:
		return find(endTableV1)[2], 0
	}
	return find(endTableV1)[1], 0
}

// checkEnded checks a successful EndTxn: the pair, and that from now on every
// partition of the transaction refuses its late batches.
func (w *world) checkEnded(c EndTxn, r Reply) {
	n := w.ids[c.TransactionalID]
	pid, epoch := n.md.producerID, n.md.epoch
	if c.Version < 5 {
		pid, epoch = -1, -1
	}
	if r.Code != 0 || r.ProducerID != pid || r.Epoch != epoch {
		w.rt.Fatalf("%+v answered %+v, want %d/%d", c, r, pid, epoch)
	}
	if c.Version >= 5 {
		w.remember(c.TransactionalID, pid, epoch)
	}
}

// marker answers part of a marker batch that is under way, or drops the answer.
func (w *world) marker(rt *rapid.T) {
	w.rt = rt
	if len(w.sent) == 0 {
		rt.Skip("no marker under way")
	}
	i := rapid.IntRange(0, len(w.sent)-1).Draw(rt, "batch")
	mk := w.sent[i]
	tp := mk.Partitions[rapid.IntRange(0, len(mk.Partitions)-1).Draw(rt, "at")]
	code := rapid.SampledFrom([]int16{0, 0, 0, 0, 3, 6, 56}).Draw(rt, "code")
	w.answer(i, tp, code)
}

// answer lets a partition answer one marker of a batch under way.
func (w *world) answer(i int, tp batch.TopicPartition, code int16) {
	mk := w.sent[i]
	one := mk
	one.Partitions = []batch.TopicPartition{tp}
	w.sent[i].Partitions = slices.DeleteFunc(slices.Clone(mk.Partitions), func(o batch.TopicPartition) bool { return o == tp })
	if len(w.sent[i].Partitions) == 0 {
		w.sent = slices.Delete(w.sent, i, i+1)
	}
	n := w.ids[mk.TransactionalID]
	live := n.md.state.prepared() && n.md.producerID == mk.ProducerID && n.md.epoch == mk.Epoch
	done := live && (code == 0 || code == 3)
	if code == 0 || code == 3 {
		w.fenced[fmt.Sprint(tp, mk.ProducerID)] = mk.Epoch
	}
	if done {
		delete(n.missing, tp)
	}
	if done && len(n.missing) == 0 {
		w.checkAllFenced(n)
		w.completed(mk.TransactionalID)
		w.checkCompletion(mk.TransactionalID, w.do(written(one, code)))
		return
	}
	if eff := w.do(written(one, code)); len(eff.Records)+len(eff.Replies)+len(eff.Markers) > 0 {
		w.rt.Fatalf("answer %d of %+v:\n%s", code, one, formatEffects(eff))
	}
}

// checkAllFenced checks, at the moment of completion, that each partition has
// seen the marker, so that it refuses late batches of the transaction.
func (w *world) checkAllFenced(n *naive) {
	for _, tp := range n.md.partitions {
		if e, ok := w.fenced[fmt.Sprint(tp, n.md.producerID)]; !ok || e != n.md.epoch {
			w.rt.Fatalf("%v is completed without the marker of %v", n.md, tp)
		}
	}
}

// checkCompletion matches the replies that Complete releases: EndTxn's first,
// then the parked commands in their order.
func (w *world) checkCompletion(id string, eff Effects) {
	n := w.ids[id]
	replies := eff.Replies
	if n.ending != 0 {
		if len(replies) == 0 || replies[0].Token != n.ending || replies[0].Code != 0 {
			w.rt.Fatalf("EndTxn %d is not answered first:\n%s", n.ending, formatEffects(eff))
		}
		if r := replies[0]; r.Epoch >= 0 {
			w.checkEnded(EndTxn{TransactionalID: id, Version: 5}, r)
		}
		replies, n.ending = replies[1:], 0
	}
	parked := n.parked
	n.parked = nil
	if len(parked) != len(replies) {
		w.rt.Fatalf("%d parked commands:\n%s", len(parked), formatEffects(eff))
	}
	for i, c := range parked {
		if replies[i].Token != c.Token {
			w.rt.Fatalf("parked commands are out of order:\n%s", formatEffects(eff))
		}
		w.checkAdded(c, w.expectAdd(c), replies[i])
	}
}
