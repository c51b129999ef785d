package core

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The simulation runs machines against a model of brokers and network, in
// virtual time and from a seed: requests race to their connection, connections
// are cut with requests on them, replies are lost, copies act late.

type simEvent struct {
	at  int64
	n   int
	run func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// simConn is one connection that carries Produce requests, in order.
type simConn struct {
	dead      bool
	lateLeft  int // requests that the broker still acts on after the cut
	lastExec  int64
	lastReply int64
	pending   []*simProduce
}

type simProduce struct {
	req      SendProduce
	executed bool
	replied  bool
	results  []ProduceResult
}

type sim struct {
	m       *Machine
	rng     *rand.Rand
	nowMs   int64
	queue   simQueue
	n       int
	done    []OpDone
	conns   map[int32]*simConn
	cluster *simCluster
	leaders []int32

	faults         bool
	cuts, canceled int // connections cut, operations given up
	gaps           int // batches refused for their sequence and sent again
}

func newSim(seed uint64, v int16, partitions int, cfg Config) *sim {
	cfg.Transactional = true
	cfg.RetryBackoffMs, cfg.RetryBackoffMaxMs = 2, 20
	cfg.EndTxnTimeoutMs = 12
	cfg.DeliveryTimeoutMs = 60_000
	s := &sim{
		m: New(cfg), rng: rand.New(rand.NewPCG(seed, 9)), conns: map[int32]*simConn{1: {}, 2: {}},
		cluster: newSimCluster(v, partitions), leaders: make([]int32, partitions),
	}
	s.cluster.rng = s.rng
	s.cluster.later = s.later
	for i := range s.leaders {
		s.leaders[i] = 1 + int32(i%2)
		s.m.AddPartition()
	}
	return s
}

func (s *sim) later(ms int64, f func()) {
	s.n++
	heap.Push(&s.queue, simEvent{s.nowMs + ms, s.n, f})
}

func (s *sim) rand(n int) int64 { return int64(s.rng.IntN(n + 1)) }
func (s *sim) chance(percent int) bool {
	return s.faults && s.rng.IntN(100) < percent
}

func (s *sim) runNext() bool {
	if len(s.queue) == 0 {
		return false
	}
	e := heap.Pop(&s.queue).(simEvent)
	s.nowMs = max(s.nowMs, e.at)
	e.run()
	return true
}

func (s *sim) step(ev Event) {
	for _, e := range slices.Clone(s.m.Step(s.nowMs, ev)) {
		switch e := e.(type) {
		case SendProduce:
			s.later(s.rand(2), func() { s.handOver(e) })
		case SendControl:
			s.control(e)
		case OpDone:
			s.done = append(s.done, e)
		case Wake:
			s.later(e.AtMs-s.nowMs, func() { s.step(TickEvent{}) })
		case Retried:
			if e.Code == 45 {
				s.gaps++
			}
		}
	}
}

// do runs one operation to its end.
func (s *sim) do(ev Event) OpDone {
	s.done = nil
	s.step(ev)
	for limit := 0; len(s.done) == 0; limit++ {
		if s.chance(100) && s.rng.IntN(300) == 0 { // the caller's context ends
			s.canceled++
			s.step(CancelEvent{})
			continue
		}
		if !s.runNext() || limit > 200_000 {
			panic(fmt.Sprintf("%T does not end: op %d phase %d state %d", ev, s.m.op, s.m.phase, s.m.state))
		}
	}
	return s.done[0]
}

// handOver is the moment at which kgo's writer takes a request.
func (s *sim) handOver(e SendProduce) {
	c := s.conns[e.Node]
	if s.chance(3) {
		s.cut(e.Node)
		c = s.conns[e.Node]
	}
	p := &simProduce{req: e}
	c.pending = append(c.pending, p)
	c.lastExec = max(c.lastExec, s.nowMs) + s.rand(2)
	if s.chance(3) {
		c.lastExec += 10
	}
	s.later(c.lastExec-s.nowMs, func() { s.execute(c, p) })
	s.step(WrittenEvent{e.Request})
}

func (s *sim) execute(c *simConn, p *simProduce) {
	if c.dead {
		if c.lateLeft == 0 {
			return
		}
		c.lateLeft--
	}
	p.executed = true
	for _, b := range p.req.Batches {
		p.results = append(p.results, s.cluster.produce(b, p.req.Node, s.leaders[b.Partition]))
	}
	c.lastReply = max(c.lastReply, s.nowMs) + s.rand(2)
	s.later(c.lastReply-s.nowMs, func() {
		if c.dead || p.replied {
			return
		}
		p.replied = true
		c.pending = slices.DeleteFunc(c.pending, func(x *simProduce) bool { return x == p })
		s.step(ProduceReplyEvent{Request: p.req.Request, Results: p.results})
	})
}

// cut kills a connection. The broker may still act on some of what was written,
// and the failures reach the machine later than a new connection is up.
func (s *sim) cut(node int32) {
	s.cuts++
	c := s.conns[node]
	c.dead = true
	s.conns[node] = &simConn{}
	waiting := 0
	for _, p := range c.pending {
		if !p.executed {
			waiting++
		}
		if !p.replied {
			p.replied = true
			s.later(s.rand(5), func() { s.step(ProduceReplyEvent{Request: p.req.Request, Lost: true}) })
		}
	}
	c.lateLeft = s.rng.IntN(waiting + 1)
}

// control carries out a control request: answered, lost before the broker,
// lost after it, or lost and acted on much later.
func (s *sim) control(e SendControl) {
	offering := s.cluster.offering // travels with the request
	act := func() ControlReplyEvent {
		r := s.cluster.control(e, offering)
		if e.Kind == ReqMetadata {
			for _, i := range e.Partitions {
				r.Leaders = append(r.Leaders, LeaderInfo{Partition: i, Node: s.leaders[i]})
			}
		}
		r.Request = e.Request
		return r
	}
	lost := ControlReplyEvent{Request: e.Request, Lost: true}
	fate := 9
	if s.faults {
		fate = s.rng.IntN(20)
	}
	switch fate {
	case 0:
		s.later(s.rand(3), func() { s.step(lost) })
	case 1:
		s.later(s.rand(3), func() { act(); s.later(s.rand(3), func() { s.step(lost) }) })
	case 2:
		s.later(s.rand(3), func() { s.step(lost) })
		// A late InitProducerId only fences the producer itself, for which
		// the remedy is a new one.
		if e.Kind != ReqInitProducerID {
			s.later(5+s.rand(60), func() { act() })
		}
	default:
		s.later(s.rand(2), func() { r := act(); s.later(s.rand(2), func() { s.step(r) }) })
	}
}

// simResult is what a run came to.
type simResult struct {
	aborted, unknown, chosen, fenced int
	wrong                            string
}

// run commits txns transactions, each with an offset, retrying the aborted
// ones as a stream processor does, and checks the committed content.
func (s *sim) run(txns int) (res simResult) {
	for d := s.do(InitEvent{}); d.Failure.Reason != ReasonNone; d = s.do(InitEvent{}) {
		if d.Failure.Reason != ReasonCanceled {
			panic(fmt.Sprintf("%+v", d))
		}
	}
	want := make([][]int, len(s.leaders))
	for position := 0; position < txns; {
		if d := s.do(BeginEvent{}); d.Failure.Reason != ReasonNone {
			panic(fmt.Sprintf("begin: %+v", d))
		}
		content := s.appendAll(position)
		next, o := s.finish(position, &res)
		if o != Unknown {
			s.done = nil
		}
		if next > position {
			for i := range want {
				want[i] = append(want[i], content[i]...)
			}
		}
		position = next
		if s.chance(10) {
			i := s.rng.IntN(len(s.leaders))
			s.leaders[i] = 3 - s.leaders[i]
		}
	}
	s.faults = false
	for s.cluster.busy() && s.runNext() {
	}
	for i, p := range s.cluster.parts {
		if got := p.committed(); !slices.Equal(got, want[i]) {
			res.wrong = fmt.Sprintf("partition %d holds %v\nwant %v", i, got, want[i])
		}
	}
	return res
}

// appendAll appends the records of one position, the same at every try.
func (s *sim) appendAll(position int) [][]int {
	fixed := rand.New(rand.NewPCG(uint64(position), 3))
	content := make([][]int, len(s.leaders))
	for i := range fixed.IntN(25) {
		p := fixed.IntN(len(s.leaders))
		values := []int{position*100 + i*2, position*100 + i*2 + 1}
		content[p] = append(content[p], values...)
		s.step(AppendEvent{Batches: []*Batch{{Partition: p, Count: 2, SizeBytes: 10, Payload: values}}})
		for range s.rng.IntN(3) {
			s.runNext()
		}
	}
	return content
}

func (s *sim) finish(position int, res *simResult) (int, Outcome) {
	if s.chance(8) {
		res.chosen++
		s.resolve(AbortEvent{}, res)
		return position, Aborted
	}
	s.cluster.offering = position + 1
	d := s.do(CommitEvent{Offsets: true})
	switch d.Outcome {
	case Committed:
		return position + 1, Committed
	case Aborted:
		if d.Failure.Reason != ReasonTimeout && d.Failure.Reason != ReasonFenced && d.Failure.Reason != ReasonCanceled {
			res.aborted++
		}
		ev := Event(AbortEvent{})
		if s.m.cfg.Break.UnknownIsAborted {
			ev = RecoverEvent{}
		}
		s.resolve(ev, res)
		return position, Aborted
	}
	res.unknown++
	resolved := s.resolve(RecoverEvent{}, res)
	for s.cluster.busy() { // OffsetFetch with RequireStable
		s.runNext()
	}
	// Init after a fence answers Committed for itself, not for the transaction.
	if fenced := s.m.txn == 0; !fenced && resolved == Committed && s.cluster.offset != position+1 || !fenced && resolved == Aborted && s.cluster.offset > position {
		res.wrong = fmt.Sprintf("resolved as %v, the offset is %d at position %d", resolved, s.cluster.offset, position)
	}
	return s.cluster.offset, Unknown
}

// resolve aborts or recovers. Under version 1 a copy of AddPartitionsToTxn that
// acts after the abort makes InitProducerId fence its own sender; the remedy is
// a new producer with the same id.
func (s *sim) resolve(ev Event, res *simResult) Outcome {
	d := s.do(ev)
	for d.Failure.Reason == ReasonCanceled {
		d = s.do(ev)
	}
	if d.Failure.Reason == ReasonFenced && s.cluster.v == 1 {
		res.fenced++
		old := s.m
		s.m = New(old.cfg)
		s.m.lastID = old.lastID // replies to the old one must not be taken for ours
		for range s.leaders {
			s.m.AddPartition()
		}
		for d = s.do(InitEvent{}); d.Failure.Reason == ReasonCanceled; {
			d = s.do(InitEvent{})
		}
	}
	if d.Failure.Reason != ReasonNone {
		panic(fmt.Sprintf("%T: %+v", ev, d.Failure))
	}
	return d.Outcome
}

func TestSimulatedFaultsLoseAndDoubleNothing(t *testing.T) {
	for _, v := range []int16{2, 1} {
		t.Run(fmt.Sprintf("version%d", v), func(t *testing.T) {
			var total simResult
			cuts, canceled := 0, 0
			for seed := range uint64(150) {
				s := newSim(seed, v, 3, Config{})
				s.faults = true
				res := s.run(25)
				if res.wrong != "" {
					t.Fatalf("seed %d: %s", seed, res.wrong)
				}
				total.aborted += res.aborted
				total.unknown += res.unknown
				total.chosen += res.chosen
				total.fenced += res.fenced
				cuts += s.cuts
				canceled += s.canceled
			}
			t.Logf("%d cuts, %d cancelled, %d aborted by failure, %d by choice, %d unknown, %d fenced by themselves", cuts, canceled, total.aborted, total.chosen, total.unknown, total.fenced)
			if total.aborted > 0 {
				t.Errorf("%d transactions were aborted by faults that a retry cures", total.aborted)
			}
			if cuts == 0 || canceled == 0 || total.unknown == 0 || total.chosen == 0 {
				t.Error("no faults happened: this run proves nothing")
			}
		})
	}
}

// TestNegativeControls disables one protection at a time; the property it
// guards must then be seen to fail.
func TestNegativeControls(t *testing.T) {
	gaps := 0 // batches refused for their sequence
	count := func(v int16, b Break, faults bool) (aborted, wrong int) {
		gaps = 0
		for seed := range uint64(60) {
			s := newSim(seed, v, 3, Config{Break: b})
			s.faults = faults
			func() {
				defer func() { // a broken machine may not even end
					if recover() != nil {
						wrong++
					}
				}()
				res := s.run(15)
				aborted += res.aborted
				gaps += s.gaps
				if res.wrong != "" {
					wrong++
				}
			}()
		}
		return aborted, wrong
	}
	for _, v := range []int16{1, 2} {
		if a, w := count(v, Break{}, true); a != 0 || w != 0 {
			t.Errorf("version %d: %d aborted and %d wrong with every protection on", v, a, w)
		}
		if count(v, Break{}, false); gaps != 0 {
			t.Errorf("version %d: %d batches out of order without any fault", v, gaps)
		}
		if count(v, Break{OrderingGate: true}, false); gaps == 0 {
			t.Errorf("version %d: nothing came out of order without the ordering gate", v)
		}
		if a, w := count(v, Break{Window: true}, true); a+w == 0 {
			t.Errorf("version %d: nothing went wrong without the window", v)
		}
		if _, w := count(v, Break{UnknownIsAborted: true}, true); w == 0 {
			t.Errorf("version %d: nothing was doubled with unknown taken for aborted", v)
		}
	}
	if a, w := count(1, Break{FreshIdentity: true}, true); a+w == 0 {
		t.Error("nothing went wrong without stop-and-wait for a fresh identity")
	}
}
