package core

import (
	"slices"
	"testing"
)

// rig drives a machine by hand: time stands still unless a test moves it.
type rig struct {
	t     *testing.T
	m     *Machine
	nowMs int64
	out   []Effect // of the last step
}

const rigNode = 1

// newRig returns a rig with an initialised producer, partitions whose leader is
// rigNode, and the transaction protocol given; 0 is a producer without id.
func newRig(t *testing.T, protocol int16, partitions int, cfg Config) *rig {
	t.Helper()
	cfg.Transactional = protocol != 0
	r := &rig{t: t, m: New(cfg), nowMs: 1}
	for range partitions {
		r.m.AddPartition()
	}
	r.step(InitEvent{})
	if protocol != 0 {
		r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: rigNode})
		f := Features{ProduceMax: 13, InitProducerIDMax: 5, TxnOffsetCommitMax: 5, EndTxnMax: 5}
		if protocol == 2 {
			f.TransactionVersion = 2
		}
		r.reply(ReqFeatures, ControlReplyEvent{Features: f})
	}
	r.reply(ReqInitProducerID, ControlReplyEvent{Identity: Identity{7, 0}})
	r.wantDone(Committed, ReasonNone)
	for i := range r.m.partitions {
		r.m.partitions[i].leader = rigNode
	}
	r.m.broker(rigNode)
	return r
}

func (r *rig) step(ev Event) []Effect {
	r.out = slices.Clone(r.m.Step(r.nowMs, ev))
	return r.out
}

// later moves time and ticks.
func (r *rig) later(ms int64) []Effect {
	r.nowMs += ms
	return r.step(TickEvent{})
}

// reply answers the control request of a kind that is under way.
func (r *rig) reply(k Request, e ControlReplyEvent) []Effect {
	r.t.Helper()
	e.Request = r.m.slots[k].request
	if e.Request == 0 {
		r.t.Fatalf("no %v is under way", k)
	}
	return r.step(e)
}

// wantDone checks that the last step ended the operation so.
func (r *rig) wantDone(o Outcome, reason Reason) {
	r.t.Helper()
	for _, e := range r.out {
		if d, ok := e.(OpDone); ok {
			if d.Outcome != o || d.Failure.Reason != reason {
				r.t.Fatalf("operation ended %v with reason %d (%+v), want %v with %d", d.Outcome, d.Failure.Reason, d.Failure, o, reason)
			}
			return
		}
	}
	r.t.Fatalf("no operation ended; effects %#v", r.out)
}

// begin opens a transaction with everything before it settled.
func (r *rig) begin() {
	r.t.Helper()
	if r.m.unsettledUntilMs != 0 {
		r.reply(ReqDescribeTransaction, ControlReplyEvent{Settled: true})
	}
	r.step(BeginEvent{})
	r.wantDone(Committed, ReasonNone)
}

// append hands over n batches of one record each for a partition.
func (r *rig) append(partition, n int) []*Batch {
	batches := make([]*Batch, n)
	for i := range batches {
		batches[i] = &Batch{Partition: partition, Count: 1, SizeBytes: 100}
	}
	r.step(AppendEvent{Batches: batches})
	return batches
}

// sent returns the Produce requests of the last step.
func (r *rig) sent() []SendProduce { return effects[SendProduce](r.out) }

// controls returns the control requests of a kind in the last step.
func (r *rig) controls(k Request) []SendControl {
	return slices.DeleteFunc(effects[SendControl](r.out), func(c SendControl) bool { return c.Kind != k })
}

func effects[E Effect](out []Effect) []E {
	var found []E
	for _, e := range out {
		if x, ok := e.(E); ok {
			found = append(found, x)
		}
	}
	return found
}

// one returns the only Produce request of the last step.
func (r *rig) one() SendProduce {
	r.t.Helper()
	s := r.sent()
	if len(s) != 1 {
		r.t.Fatalf("%d Produce requests, want 1", len(s))
	}
	return s[0]
}

func (r *rig) written(s SendProduce) []Effect { return r.step(WrittenEvent{s.Request}) }

// answer ends a Produce request with one code for all its batches.
func (r *rig) answer(s SendProduce, code int16) []Effect {
	e := ProduceReplyEvent{Request: s.Request}
	for range s.Batches {
		e.Results = append(e.Results, ProduceResult{Code: code, BaseOffset: 10})
	}
	return r.step(e)
}

func (r *rig) lose(s SendProduce) []Effect {
	return r.step(ProduceReplyEvent{Request: s.Request, Lost: true})
}

// leaders answers a Metadata request with rigNode for every partition.
func (r *rig) leaders(node int32) []Effect {
	r.t.Helper()
	var l []LeaderInfo
	for _, i := range r.m.slots[ReqMetadata].partitions {
		l = append(l, LeaderInfo{Partition: i, Node: node})
	}
	return r.reply(ReqMetadata, ControlReplyEvent{Leaders: l})
}

// inFlight fills a partition's pipe: it acknowledges a first batch, so that
// the identity is no longer fresh, and returns n requests on the wire.
func (r *rig) inFlight(n int) []SendProduce {
	r.t.Helper()
	r.append(0, 1)
	r.written(r.one())
	var first SendProduce
	for id := range r.m.requests {
		first = SendProduce{Request: id, Batches: r.m.requests[id].batches}
	}
	r.answer(first, 0)
	var out []SendProduce
	for range n {
		r.append(0, 1)
		s := r.one()
		out = append(out, s)
		r.written(s)
	}
	return out
}

func sequences(s SendProduce) []int32 {
	var out []int32
	for _, b := range s.Batches {
		out = append(out, b.Sequence())
	}
	return out
}
