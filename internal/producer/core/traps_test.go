package core

import (
	"slices"
	"testing"
)

// Trap 1: Broker.Request promises no order between callers.
func TestNextRequestWaitsUntilTheLastWasWritten(t *testing.T) {
	r := newRig(t, 2, 2, Config{})
	r.begin()
	r.append(0, 1)
	first := r.one()
	r.append(1, 1)
	if len(r.sent()) != 0 {
		t.Fatal("a request was sent while the last one was not written")
	}
	if r.written(first); len(r.sent()) != 1 {
		t.Fatal("nothing was sent after the last one was written")
	}
}

func TestReadyBatchesOfOneBrokerShareARequest(t *testing.T) {
	r := newRig(t, 2, 3, Config{})
	r.begin()
	r.step(AppendEvent{Batches: []*Batch{{Partition: 2, Count: 1}, {Partition: 0, Count: 1}, {Partition: 1, Count: 1}}})
	if s := r.one(); len(s.Batches) != 3 {
		t.Fatalf("%d batches in the request, want 3", len(s.Batches))
	}
}

// Trap 2: a later batch on a new connection is refused while the failure of
// the earlier one is still under way.
func TestOutOfOrderBehindAPendingBatchIsResentInOrder(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	s := r.inFlight(3)
	r.answer(s[1], 45)
	r.answer(s[2], 45)
	if r.m.poisoned {
		t.Fatal("the transaction failed although nothing was lost")
	}
	if r.later(5000); len(r.sent()) != 0 {
		t.Fatal("resent while the earlier batch is in flight")
	}
	r.lose(s[0])
	r.later(5000)
	r.leaders(rigNode)
	got := r.one()
	if seq := sequences(got); seq[0] != 1 {
		t.Fatalf("resent sequence %d first, want 1", seq[0])
	}
	r.written(got)
	if r.answer(got, 0); sequences(r.one())[0] != 2 {
		t.Fatal("the next one in order did not follow")
	}
}

func TestOutOfOrderOfTheOldestBatchFailsTheTransaction(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	s := r.inFlight(1)
	r.answer(s[0], 45)
	if !r.m.poisoned || r.m.failure.Reason != ReasonSequence {
		t.Fatalf("failure %+v", r.m.failure)
	}
}

// Trap 3: five batches from the oldest unacknowledged one.
func TestWindowCountsFromTheOldestUnacknowledgedBatch(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	s := r.inFlight(5)
	r.append(0, 1)
	if len(r.sent()) != 0 {
		t.Fatal("a sixth batch was sent")
	}
	// The broker has 1 to 4 but the answer for 0 was lost: a sixth batch would
	// push 0 out of its memory, and the retry could not be recognised.
	r.lose(s[0])
	for _, x := range s[1:] {
		r.answer(x, 0)
	}
	r.later(1000)
	r.leaders(rigNode)
	got := r.one()
	if len(got.Batches) != 1 || got.Batches[0].Sequence() != s[0].Batches[0].Sequence() {
		t.Fatalf("sent sequences %v, want the oldest alone", sequences(got))
	}
	r.written(got)
	if len(r.sent()) != 0 {
		t.Fatal("the sixth batch was sent before the oldest was acknowledged")
	}
	if r.answer(got, 46); len(r.sent()) != 1 {
		t.Fatal("the sixth batch did not follow")
	}
}

// Trap 4: a partition that does not know the identity accepts any sequence.
func TestFreshIdentityHasOneBatchInFlight(t *testing.T) {
	for _, v := range []int16{0, 1, 2} {
		r := newRig(t, v, 1, Config{})
		if v != 0 {
			r.begin()
		}
		r.append(0, 3)
		if v == 1 {
			r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
		}
		first := r.one()
		if r.written(first); len(r.sent()) != 0 {
			t.Fatalf("version %d: a second batch was sent before the first acknowledgement", v)
		}
		r.answer(first, 0)
		second := r.one()
		if r.written(second); len(r.sent()) != 1 {
			t.Fatalf("version %d: the pipe did not open after it", v)
		}
	}
}

// Trap 5: there is no effect that cancels a Produce request, and an abort
// waits for those under way.
func TestAbortWaitsForProduceInFlight(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	r.inFlight(2)
	r.append(0, 5) // one more goes on the wire; the gate keeps the rest
	r.step(AbortEvent{})
	if n := len(effects[Release](r.out)); n != 4 {
		t.Fatalf("%d unsent batches given back, want 4", n)
	}
	for id, q := range r.m.requests {
		if len(r.controls(ReqEndTxn)) != 0 {
			t.Fatal("EndTxn was sent with batches in flight")
		}
		r.lose(SendProduce{Request: id, Batches: q.batches})
	}
	if c := r.controls(ReqEndTxn); len(c) != 1 || c[0].Commit {
		t.Fatalf("EndTxn %v", c)
	}
}

// Trap 6: the hold after a throttle is ours and concerns one broker's produce.
func TestThrottleHoldsBackProduceOnly(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	s := r.inFlight(1)
	r.step(ProduceReplyEvent{Request: s[0].Request, ThrottleMs: 35_000, Results: []ProduceResult{{}}})
	r.step(CommitEvent{Offsets: true})
	if len(r.controls(ReqFindGroupCoordinator)) != 1 {
		t.Fatal("control traffic was held back")
	}
	r.reply(ReqFindGroupCoordinator, ControlReplyEvent{Node: rigNode})
	r.reply(ReqTxnOffsetCommit, ControlReplyEvent{Codes: []int16{0}})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	r.wantDone(Committed, ReasonNone)
	r.begin()
	if r.append(0, 1); len(r.sent()) != 0 {
		t.Fatal("produced in spite of the throttle")
	}
	if r.later(34_000); len(r.sent()) != 0 {
		t.Fatal("produced before the throttle ended")
	}
	if r.later(1_000); len(r.sent()) != 1 {
		t.Fatal("nothing was produced after the throttle")
	}
}

// Trap 7: a Produce that comes too early waits 20 ms inside the broker.
func TestNextTransactionWritesOnceTheLastHasCompleted(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	r.inFlight(0)
	r.step(CommitEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	if len(r.controls(ReqDescribeTransaction)) != 1 {
		t.Fatal("nobody asks whether the transaction has completed")
	}
	r.step(BeginEvent{})
	if r.append(0, 1); len(r.sent()) != 0 {
		t.Fatal("produced before the last transaction completed")
	}
	r.reply(ReqDescribeTransaction, ControlReplyEvent{Settled: false})
	r.later(2)
	if r.reply(ReqDescribeTransaction, ControlReplyEvent{Settled: true}); len(r.sent()) != 1 {
		t.Fatal("nothing was produced after it completed")
	}
}

func TestDescribeTransactionsRefusedIsNotAskedAgain(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	r.inFlight(0)
	r.step(CommitEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	r.reply(ReqDescribeTransaction, ControlReplyEvent{Code: 53})
	r.step(BeginEvent{})
	if r.append(0, 1); len(r.sent()) != 1 {
		t.Fatal("production waits for an answer that will not come")
	}
	if r.later(1000); len(r.controls(ReqDescribeTransaction)) != 0 {
		t.Fatal("asked again")
	}
}

// Trap 8: Produce v13 can answer CONCURRENT_TRANSACTIONS, which kerr does not
// call retriable; UNKNOWN_TOPIC_ID is one it does.
func TestProduceCodesThatKerrJudgesDifferently(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	s := r.inFlight(1)
	r.answer(s[0], 51)
	if r.m.poisoned {
		t.Fatal("CONCURRENT_TRANSACTIONS failed the transaction")
	}
	r.later(100)
	r.answer(r.one(), 100)
	if r.m.failure.Reason != ReasonTopicRecreated {
		t.Fatalf("UNKNOWN_TOPIC_ID: %+v", r.m.failure)
	}
}

// Trap 9: versions.
func TestVersionsArePinnedPerProtocol(t *testing.T) {
	want := map[int16]map[Request][2]int16{ // min, max
		1: {ReqProduce: {0, 11}, ReqTxnOffsetCommit: {3, 4}, ReqEndTxn: {0, 4}, ReqAddPartitions: {0, 3}},
		2: {ReqProduce: {12, 0}, ReqTxnOffsetCommit: {5, 5}, ReqEndTxn: {5, 5}},
	}
	for v, want := range want {
		got := make(map[Request][2]int16)
		r := newRig(t, v, 1, Config{})
		note := func() {
			for _, c := range effects[SendControl](r.out) {
				if _, ok := want[c.Kind]; ok {
					got[c.Kind] = [2]int16{c.VersionMin, c.VersionMax}
				}
			}
			for _, s := range r.sent() {
				got[ReqProduce] = [2]int16{s.VersionMin, s.VersionMax}
			}
		}
		r.begin()
		r.append(0, 1)
		note()
		if v == 1 {
			r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
			note()
		}
		s := r.one()
		r.answer(s, 0)
		r.step(CommitEvent{Offsets: true})
		if v == 1 {
			r.reply(ReqAddOffsets, ControlReplyEvent{})
		}
		r.reply(ReqFindGroupCoordinator, ControlReplyEvent{Node: 2})
		note()
		r.reply(ReqTxnOffsetCommit, ControlReplyEvent{Codes: []int16{0}})
		note()
		for k, w := range want {
			if got[k] != w {
				t.Errorf("version %d: %v has versions %v, want %v", v, k, got[k], w)
			}
		}
	}
}

func TestProtocolFollowsTheClusterAndTheCaps(t *testing.T) {
	full := Features{TransactionVersion: 2, ProduceMax: 13, InitProducerIDMax: 5, TxnOffsetCommitMax: 5, EndTxnMax: 5}
	with := func(change func(*Features)) Features { f := full; change(&f); return f }
	for name, c := range map[string]struct {
		f    Features
		max  int16
		want int16
	}{
		"all":                {full, 0, 2},
		"forced":             {full, 1, 1},
		"no feature":         {with(func(f *Features) { f.TransactionVersion = 0 }), 0, 1},
		"produce capped":     {with(func(f *Features) { f.ProduceMax = 11 }), 0, 1},
		"end capped":         {with(func(f *Features) { f.EndTxnMax = 4 }), 0, 1},
		"offsets capped":     {with(func(f *Features) { f.TxnOffsetCommitMax = 4 }), 0, 1},
		"broker before 2.5":  {with(func(f *Features) { f.InitProducerIDMax = 2 }), 0, 0},
		"no group metadata":  {with(func(f *Features) { f.TxnOffsetCommitMax = 2 }), 0, 0},
		"no transaction API": {Features{ProduceMax: 3, InitProducerIDMax: -1, TxnOffsetCommitMax: -1, EndTxnMax: -1}, 0, 0},
	} {
		r := &rig{t: t, m: New(Config{Transactional: true, TransactionVersionMax: c.max})}
		r.step(InitEvent{})
		r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: 1})
		r.reply(ReqFeatures, ControlReplyEvent{Features: c.f})
		if r.m.protocol != c.want {
			t.Errorf("%s: protocol %d, want %d", name, r.m.protocol, c.want)
		}
		if c.want == 0 {
			r.wantDone(Unknown, ReasonUnsupported)
		}
	}
}

// Trap 13: offsets were once committed without their data.
func TestFailedAppendPoisonsTheCommit(t *testing.T) {
	for name, fail := range map[string]func(r *rig){
		"refused batch":   func(r *rig) { r.append(0, 1); r.answer(r.one(), 10) },
		"refused record":  func(r *rig) { r.step(PoisonEvent{Failure{Reason: ReasonRecordTooLarge}}) },
		"late in the end": func(r *rig) { r.append(0, 1); r.nowMs += 200_000; r.later(1) },
	} {
		r := newRig(t, 2, 1, Config{})
		r.begin()
		r.inFlight(0)
		fail(r)
		r.step(CommitEvent{Offsets: true})
		for _, k := range []Request{ReqEndTxn, ReqTxnOffsetCommit} {
			if len(r.controls(k)) != 0 {
				t.Fatalf("%s: %v was sent", name, k)
			}
		}
		if d := effects[OpDone](r.out); len(d) != 1 || d[0].Outcome != Aborted || d[0].Failure.Reason == ReasonNone {
			t.Fatalf("%s: %+v", name, d)
		}
	}
}

// Trap 14: a version-1 abort is always followed by InitProducerId with id and
// epoch.
func TestVersion1AbortBumpsTheEpoch(t *testing.T) {
	r := newRig(t, 1, 1, Config{})
	r.begin()
	r.append(0, 1)
	r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
	r.answer(r.one(), 0)
	r.step(AbortEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: NoIdentity})
	c := r.controls(ReqInitProducerID)
	if len(c) != 1 || c[0].Identity != (Identity{7, 0}) {
		t.Fatalf("InitProducerId %+v", c)
	}
	r.reply(ReqInitProducerID, ControlReplyEvent{Identity: Identity{7, 1}})
	r.wantDone(Aborted, ReasonNone)
	r.begin()
	r.append(0, 1)
	r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
	if s := r.one(); s.Batches[0].Sequence() != 0 || s.Batches[0].Identity() != (Identity{7, 1}) {
		t.Fatalf("sequence %d of %v after the bump", s.Batches[0].Sequence(), s.Batches[0].Identity())
	}
}

// A version-1 commit whose first answer was lost may still be under way; the
// next transaction has the same epoch, and the old request would end it.
func TestVersion1CommitRetriedBumpsBeforeTheNextWrite(t *testing.T) {
	r := newRig(t, 1, 1, Config{})
	r.begin()
	r.append(0, 1)
	r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
	r.answer(r.one(), 0)
	r.step(CommitEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Lost: true})
	r.later(100)
	r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: 1})
	r.later(100)
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: NoIdentity})
	r.wantDone(Committed, ReasonNone)
	r.reply(ReqDescribeTransaction, ControlReplyEvent{Settled: true})
	r.step(BeginEvent{})
	r.append(0, 1)
	if len(r.controls(ReqAddPartitions)) != 0 {
		t.Fatal("the transaction wrote under the old epoch")
	}
	r.reply(ReqInitProducerID, ControlReplyEvent{Identity: Identity{7, 1}})
	if c := r.controls(ReqAddPartitions); len(c) != 1 || c[0].Identity.Epoch != 1 {
		t.Fatalf("AddPartitionsToTxn %+v", c)
	}
}

func TestVersion1AbortFindsOutAboutBatchesThatMayBeUnderWay(t *testing.T) {
	r := newRig(t, 1, 1, Config{})
	r.begin()
	r.append(0, 1)
	r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
	r.lose(r.one())
	r.step(AbortEvent{})
	if len(r.controls(ReqEndTxn)) != 0 {
		t.Fatal("aborted while a copy of the batch may be under way")
	}
	r.later(1000)
	if r.m.slots[ReqMetadata].request != 0 {
		r.leaders(rigNode)
	}
	r.answer(r.one(), 0)
	if len(r.controls(ReqEndTxn)) != 1 {
		t.Fatal("the abort did not go on")
	}
}

func TestSequenceWrapsToZero(t *testing.T) {
	if got := sequenceAdd(1<<31-3, 5); got != 2 {
		t.Fatalf("2^31-3 + 5 = %d, want 2", got)
	}
	if got := sequenceAdd(1<<31-3, 3); got != 0 {
		t.Fatalf("2^31-3 + 3 = %d, want 0", got)
	}
}

func TestEffectsDoNotDependOnAnythingButEvents(t *testing.T) {
	run := func() []string {
		r := newRig(t, 2, 6, Config{})
		r.begin()
		var log []string
		for i := range 40 {
			r.append(i%6, 1+i%2)
			for _, s := range r.sent() {
				r.written(s)
				r.answer(s, int16([]int{0, 0, 6, 0, 51}[i%5]))
			}
			for _, e := range r.out {
				if s, ok := e.(SendProduce); ok {
					for _, b := range s.Batches {
						log = append(log, string(rune('a'+b.Partition))+string(rune('0'+b.sequence)))
					}
				}
			}
			r.later(50)
		}
		return log
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Fatalf("%v\n%v", a, b)
	}
}
