package core

import "testing"

// sentCommit brings a transaction with one acknowledged batch to EndTxn.
func sentCommit(t *testing.T, v int16, cfg Config) *rig {
	t.Helper()
	r := newRig(t, v, 1, cfg)
	r.begin()
	r.append(0, 1)
	if v == 1 {
		r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
	}
	r.answer(r.one(), 0)
	r.step(CommitEvent{})
	if c := r.controls(ReqEndTxn); len(c) != 1 || !c[0].Commit {
		t.Fatalf("EndTxn %+v", c)
	}
	return r
}

// unknownCommit is a commit whose answer never came.
func unknownCommit(t *testing.T, v int16) *rig {
	t.Helper()
	r := sentCommit(t, v, Config{EndTxnTimeoutMs: 1000})
	r.reply(ReqEndTxn, ControlReplyEvent{Lost: true})
	r.later(1000)
	r.wantDone(Unknown, ReasonTimeout)
	return r
}

func TestCommitTakesTheNextIdentityAndRestartsSequences(t *testing.T) {
	r := sentCommit(t, 2, Config{})
	// At exhaustion the next identity is another producer id at epoch 0.
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{8, 0}})
	r.wantDone(Committed, ReasonNone)
	r.begin()
	r.append(0, 1)
	if b := r.one().Batches[0]; b.Identity() != (Identity{8, 0}) || b.Sequence() != 0 {
		t.Fatalf("batch under %v with sequence %d", b.Identity(), b.Sequence())
	}
}

func TestVersion1CommitKeepsIdentityAndSequences(t *testing.T) {
	r := sentCommit(t, 1, Config{})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: NoIdentity})
	r.wantDone(Committed, ReasonNone)
	r.begin()
	r.append(0, 1)
	r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
	if b := r.one().Batches[0]; b.Identity() != (Identity{7, 0}) || b.Sequence() != 1 {
		t.Fatalf("batch under %v with sequence %d", b.Identity(), b.Sequence())
	}
}

func TestCommitWithoutAnswerIsUnknownAndBlocksEverythingButRecover(t *testing.T) {
	r := unknownCommit(t, 2)
	for _, ev := range []Event{BeginEvent{}, AbortEvent{}, CommitEvent{}, FlushEvent{}} {
		r.step(ev)
		r.wantDone(Aborted, ReasonState)
	}
	if r.step(RecoverEvent{}); r.m.op != opResolve {
		t.Fatal("Recover was refused")
	}
}

func TestRecoverFindsOutThatTheCommitHappened(t *testing.T) {
	r := unknownCommit(t, 2)
	r.step(RecoverEvent{})
	r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: 1})
	r.reply(ReqEndTxn, ControlReplyEvent{Code: 48}) // an abort of what is committed
	if c := r.controls(ReqEndTxn); len(c) != 1 || !c[0].Commit {
		t.Fatalf("EndTxn %+v, want the commit again for its identity", c)
	}
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	r.wantDone(Committed, ReasonNone)
	if r.m.Identity() != (Identity{7, 1}) {
		t.Fatalf("identity %v", r.m.Identity())
	}
}

func TestRecoverAbortsWhatWasNotCommitted(t *testing.T) {
	r := unknownCommit(t, 2)
	r.step(RecoverEvent{})
	r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: 1})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	r.wantDone(Aborted, ReasonNone)
	r.begin()
}

func TestVersion1RecoverBumpsAndLeavesTheOutcomeOpen(t *testing.T) {
	for _, code := range []int16{0, 48} {
		r := unknownCommit(t, 1)
		r.step(RecoverEvent{})
		r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: 1})
		r.reply(ReqEndTxn, ControlReplyEvent{Code: code, Identity: NoIdentity})
		if c := r.controls(ReqInitProducerID); len(c) != 1 || c[0].Identity != (Identity{7, 0}) {
			t.Fatalf("InitProducerId %+v", c)
		}
		r.reply(ReqInitProducerID, ControlReplyEvent{Identity: Identity{7, 1}})
		r.wantDone(Unknown, ReasonNone)
		r.begin()
	}
}

func TestCommitNeverSentIsAborted(t *testing.T) {
	r := sentCommit(t, 2, Config{EndTxnTimeoutMs: 1000})
	r.reply(ReqEndTxn, ControlReplyEvent{NotSent: true})
	r.later(1000)
	r.wantDone(Aborted, ReasonTimeout)
}

func TestCommitAfterCoordinatorTimeoutIsAborted(t *testing.T) {
	for _, lostBefore := range []bool{false, true} {
		r := sentCommit(t, 2, Config{})
		if lostBefore { // a commit that had succeeded would answer its retry with success
			r.reply(ReqEndTxn, ControlReplyEvent{Lost: true})
			r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: 1})
			r.later(100)
		}
		r.reply(ReqEndTxn, ControlReplyEvent{Code: 48})
		r.wantDone(Aborted, ReasonTimedOutByCoordinator)
		r.step(AbortEvent{})
		r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
		r.wantDone(Aborted, ReasonNone)
		r.begin()
	}
}

func TestFencedCommitIsAbortedOrUnknown(t *testing.T) {
	r := sentCommit(t, 2, Config{})
	r.reply(ReqEndTxn, ControlReplyEvent{Code: 90})
	r.wantDone(Aborted, ReasonFenced)

	r = sentCommit(t, 2, Config{})
	r.reply(ReqEndTxn, ControlReplyEvent{Lost: true}) // this one may have committed
	r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: 1})
	r.later(100)
	r.reply(ReqEndTxn, ControlReplyEvent{Code: 90})
	r.wantDone(Unknown, ReasonFenced)
	r.step(RecoverEvent{})
	r.wantDone(Aborted, ReasonFenced)
}

func TestOffsetsOnlyTransaction(t *testing.T) {
	for _, v := range []int16{1, 2} {
		r := newRig(t, v, 1, Config{})
		r.begin()
		r.step(CommitEvent{Offsets: true})
		if v == 1 {
			r.reply(ReqAddOffsets, ControlReplyEvent{})
		} else if len(r.controls(ReqAddOffsets)) != 0 {
			t.Fatal("AddOffsetsToTxn under version 2")
		}
		r.reply(ReqFindGroupCoordinator, ControlReplyEvent{Node: 3})
		r.reply(ReqTxnOffsetCommit, ControlReplyEvent{Codes: []int16{0}})
		r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
		r.wantDone(Committed, ReasonNone)
	}
}

func TestEmptyTransactionSendsNothing(t *testing.T) {
	for _, ev := range []Event{CommitEvent{}, AbortEvent{}} {
		r := newRig(t, 2, 1, Config{})
		r.begin()
		r.step(ev)
		if len(effects[SendControl](r.out)) != 0 || len(effects[OpDone](r.out)) != 1 {
			t.Fatalf("%T: %#v", ev, r.out)
		}
	}
}

func TestRebalanceDuringCommitIsReportedAsSuch(t *testing.T) {
	for _, code := range []int16{22, 25, 82} {
		r := newRig(t, 2, 1, Config{})
		r.begin()
		r.step(CommitEvent{Offsets: true})
		r.reply(ReqFindGroupCoordinator, ControlReplyEvent{Node: 3})
		r.reply(ReqTxnOffsetCommit, ControlReplyEvent{Codes: []int16{0, code}})
		r.wantDone(Aborted, ReasonRebalanced)
	}
}

func TestCancelBeforeEndTxnAbortsAndAfterItDoesNot(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	r.append(0, 1)
	r.step(CommitEvent{})
	r.step(CancelEvent{})
	r.wantDone(Aborted, ReasonCanceled)

	r = sentCommit(t, 2, Config{})
	if r.step(CancelEvent{}); len(effects[OpDone](r.out)) != 0 {
		t.Fatal("the outcome was given away")
	}
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	r.wantDone(Committed, ReasonNone)
}

func TestIdempotentProducerRecoversWithANewProducerID(t *testing.T) {
	r := newRig(t, 0, 1, Config{})
	r.append(0, 1)
	r.answer(r.one(), 45)
	r.step(FlushEvent{})
	r.wantDone(Unknown, ReasonSequence)
	r.step(RecoverEvent{})
	if c := r.controls(ReqInitProducerID); len(c) != 1 || c[0].Identity != NoIdentity {
		t.Fatalf("InitProducerId %+v", c)
	}
	r.reply(ReqInitProducerID, ControlReplyEvent{Identity: Identity{9, 0}})
	r.append(0, 1)
	if b := r.one().Batches[0]; b.Identity() != (Identity{9, 0}) || b.Sequence() != 0 {
		t.Fatalf("batch under %v with sequence %d", b.Identity(), b.Sequence())
	}
}

func TestLostMappingTakesANewIdentity(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	r.append(0, 1)
	r.answer(r.one(), 49)
	r.step(AbortEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Code: 49})
	r.reply(ReqInitProducerID, ControlReplyEvent{Identity: Identity{20, 0}})
	if r.m.state != stateReady || r.m.Identity() != (Identity{20, 0}) {
		t.Fatalf("state %d, identity %v", r.m.state, r.m.Identity())
	}
}

func TestRecreatedTopicIsAdoptedByTheNextTransaction(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	r.append(0, 1)
	r.answer(r.one(), 0)
	r.append(0, 1)
	r.answer(r.one(), 100)
	r.step(AbortEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	r.begin()
	r.append(0, 1)
	r.reply(ReqMetadata, ControlReplyEvent{Leaders: []LeaderInfo{{Node: rigNode, Recreated: true}}})
	if r.m.poisoned || len(r.sent()) != 1 {
		t.Fatalf("poisoned %v (%+v), %d requests", r.m.poisoned, r.m.failure, len(r.sent()))
	}
}

func TestLeaderMoveResendsToTheNewLeaderInOrder(t *testing.T) {
	r := newRig(t, 2, 1, Config{})
	r.begin()
	s := r.inFlight(3)
	for _, x := range s {
		r.answer(x, 6)
	}
	r.later(1000)
	r.leaders(2)
	for want := int32(1); want <= 3; want++ {
		got := r.one()
		if got.Node != 2 || got.Batches[0].Sequence() != want {
			t.Fatalf("sequence %d to node %d, want %d to 2", got.Batches[0].Sequence(), got.Node, want)
		}
		r.written(got)
		r.answer(got, 0)
	}
}

func TestPoisonGuardHasTeeth(t *testing.T) {
	r := newRig(t, 2, 1, Config{Break: Break{Poison: true}})
	r.begin()
	r.append(0, 1)
	r.answer(r.one(), 10)
	if r.step(CommitEvent{}); len(r.controls(ReqEndTxn)) != 1 {
		t.Fatal("with the guard off the commit should have gone out without its data")
	}
}

func TestFencedAnswerWhileTheLastTransactionCompletesIsNotBelieved(t *testing.T) {
	r := sentCommit(t, 2, Config{})
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 1}})
	r.reply(ReqDescribeTransaction, ControlReplyEvent{Code: 53})
	r.step(BeginEvent{})
	r.append(0, 1)
	r.lose(r.one())
	r.step(AbortEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Code: 90})
	if r.m.state == stateFatal {
		t.Fatal("took the answer for a fence")
	}
	r.later(100)
	r.reply(ReqEndTxn, ControlReplyEvent{Identity: Identity{7, 2}})
	r.wantDone(Aborted, ReasonNone)

	r.begin()
	r.append(0, 1)
	r.leaders(rigNode)
	r.answer(r.one(), 0) // the coordinator has acted under this epoch
	r.step(AbortEvent{})
	r.reply(ReqEndTxn, ControlReplyEvent{Code: 90})
	r.wantDone(Unknown, ReasonFenced)
}
