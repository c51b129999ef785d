package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// everyCode is every protocol code that Kafka has, as kerr knows them.
func everyCode() []int16 {
	var out []int16
	for c := int16(-1); c < 140; c++ {
		if c == 0 || kerr.TypedErrorForCode(c) != nil {
			out = append(out, c)
		}
	}
	return out
}

// TestEveryCodeOfEveryRequest feeds each code, as the answer to each request,
// to a machine in the middle of a commit, and checks that what happens is what
// the table says.
func TestEveryCodeOfEveryRequest(t *testing.T) {
	for _, v := range []int16{1, 2} {
		for _, k := range []Request{ReqProduce, ReqAddPartitions, ReqAddOffsets, ReqTxnOffsetCommit, ReqEndTxn} {
			if v == 2 && (k == ReqAddPartitions || k == ReqAddOffsets) {
				continue
			}
			for _, code := range everyCode() {
				t.Run(fmt.Sprintf("v%d/%v/%d", v, k, code), func(t *testing.T) { checkCode(t, v, k, code) })
			}
		}
	}
}

func checkCode(t *testing.T, v int16, k Request, code int16) {
	r := newRig(t, v, 1, Config{})
	feedCode(r, v, k, code)
	want := VerdictFor(k, code)
	fatal, poisoned := r.m.state == stateFatal, r.m.poisoned
	switch want.Action {
	case ActOK, ActDuplicate:
		if poisoned || fatal {
			t.Fatalf("failed: %+v", r.m.failure)
		}
	case ActRetry, ActRefresh:
		if poisoned || fatal {
			t.Fatalf("failed: %+v", r.m.failure)
		}
		before := r.m.lastID
		for range 4 { // lookups come first
			r.later(2000)
			for _, find := range []Request{ReqFindTxnCoordinator, ReqFindGroupCoordinator} {
				if r.m.slots[find].request != 0 {
					r.reply(find, ControlReplyEvent{Node: rigNode})
				}
			}
			if r.m.slots[ReqMetadata].request != 0 {
				r.leaders(rigNode)
			}
		}
		if k == ReqProduce && r.m.inFlight != 1 || k != ReqProduce && r.m.slots[k].request <= before {
			t.Fatal("not sent again")
		}
	case ActGap, ActAbort, ActFail:
		if fatal {
			t.Fatalf("fatal: %+v", r.m.failure)
		}
		if k != ReqEndTxn && r.m.failure.Reason != want.Reason {
			t.Fatalf("failure %+v, want reason %d", r.m.failure, want.Reason)
		}
		r.step(AbortEvent{})
		if r.m.op != opResolve {
			t.Fatal("cannot be aborted")
		}
	case ActFenced, ActFatal:
		if !fatal || r.m.failure.Reason != want.Reason {
			t.Fatalf("state %d, failure %+v", r.m.state, r.m.failure)
		}
	}
}

// feedCode brings a transaction to the point where k is under way and answers
// it with code.
func feedCode(r *rig, v int16, k Request, code int16) {
	r.begin()
	r.append(0, 1)
	if v == 1 {
		if k == ReqAddPartitions {
			r.reply(k, ControlReplyEvent{Codes: []int16{code}})
			return
		}
		r.reply(ReqAddPartitions, ControlReplyEvent{Codes: []int16{0}})
	}
	s := r.one()
	if k == ReqProduce {
		r.written(s)
		r.answer(s, code)
		return
	}
	r.answer(s, 0)
	r.step(CommitEvent{Offsets: true})
	if v == 1 {
		if k == ReqAddOffsets {
			r.reply(k, ControlReplyEvent{Code: code})
			return
		}
		r.reply(ReqAddOffsets, ControlReplyEvent{})
	}
	r.reply(ReqFindGroupCoordinator, ControlReplyEvent{Node: rigNode})
	if k == ReqTxnOffsetCommit {
		r.reply(k, ControlReplyEvent{Codes: []int16{0, code}})
		return
	}
	r.reply(ReqTxnOffsetCommit, ControlReplyEvent{Codes: []int16{0}})
	id := NoIdentity
	if v == 2 {
		id = Identity{7, 1}
	}
	r.reply(ReqEndTxn, ControlReplyEvent{Code: code, Identity: id})
}

func TestEveryCodeOfInitProducerID(t *testing.T) {
	for _, code := range everyCode() {
		r := &rig{t: t, m: New(Config{Transactional: true})}
		r.step(InitEvent{})
		r.reply(ReqFindTxnCoordinator, ControlReplyEvent{Node: rigNode})
		r.reply(ReqFeatures, ControlReplyEvent{Features: Features{InitProducerIDMax: 5, TxnOffsetCommitMax: 5}})
		r.reply(ReqInitProducerID, ControlReplyEvent{Code: code, Identity: Identity{7, 0}})
		want := VerdictFor(ReqInitProducerID, code)
		d := effects[OpDone](r.out)
		switch want.Action {
		case ActOK:
			r.wantDone(Committed, ReasonNone)
		case ActRetry, ActRefresh:
			if len(d) != 0 {
				t.Errorf("code %d: ended with %+v instead of a retry", code, d)
			}
		case ActFail:
			r.wantDone(Unknown, want.Reason)
			if r.step(InitEvent{}); r.m.op != opInit {
				t.Errorf("code %d: Init cannot be called again", code)
			}
		default:
			r.wantDone(Unknown, want.Reason)
			if r.m.state != stateFatal {
				t.Errorf("code %d: not fatal", code)
			}
		}
	}
}

// TestTheTableSaysWhatTheSpecificationSays pins the rows that decide about
// exactly-once, independently of the table's own text.
func TestTheTableSaysWhatTheSpecificationSays(t *testing.T) {
	rows := []struct {
		k     Request
		codes []int16
		want  Verdict
	}{
		{ReqProduce, []int16{45}, Verdict{ActGap, ReasonSequence}},
		{ReqProduce, []int16{46}, Verdict{ActDuplicate, ReasonNone}},
		{ReqProduce, []int16{47, 120}, abort(ReasonAbortable)},
		{ReqProduce, []int16{48}, abort(ReasonTimedOutByCoordinator)},
		{ReqProduce, []int16{51, 7, 19, 20}, retry},
		{ReqProduce, []int16{3, 6, 56, 74}, refresh},
		{ReqProduce, []int16{100, 103}, abort(ReasonTopicRecreated)},
		{ReqProduce, []int16{10, 18}, abort(ReasonRecordTooLarge)},
		{ReqProduce, []int16{90}, fenced},
		{ReqInitProducerID, []int16{47, 90}, fenced},
		{ReqInitProducerID, []int16{51, 14}, retry},
		{ReqInitProducerID, []int16{15, 16}, refresh},
		{ReqInitProducerID, []int16{50}, fatal(ReasonInvalidConfig)},
		{ReqTxnOffsetCommit, []int16{22, 25, 82, 69, 113}, abort(ReasonRebalanced)},
		{ReqTxnOffsetCommit, []int16{47}, abort(ReasonAbortable)},
		{ReqTxnOffsetCommit, []int16{51, 14}, retry},
		{ReqEndTxn, []int16{48}, abort(ReasonTimedOutByCoordinator)},
		{ReqEndTxn, []int16{47, 90}, fenced},
		{ReqEndTxn, []int16{51, 14, -1}, retry},
		{ReqEndTxn, []int16{53}, fatal(ReasonUnauthorized)},
		{ReqAddPartitions, []int16{55, 120}, abort(ReasonAbortable)},
		{ReqAddPartitions, []int16{90, 47}, fenced},
		{ReqAddOffsets, []int16{30}, abort(ReasonUnauthorized)},
	}
	for _, row := range rows {
		for _, c := range row.codes {
			if got := VerdictFor(row.k, c); got != row.want {
				t.Errorf("%v code %d: %+v, want %+v", row.k, c, got, row.want)
			}
		}
	}
}

func TestNoRequestSilentlyAcceptsAnErrorCode(t *testing.T) {
	for k := range requestKinds {
		for _, code := range everyCode() {
			a := VerdictFor(k, code).Action
			if code != 0 && a == ActOK {
				t.Errorf("%v takes code %d for success", k, code)
			}
			if code != 0 && k != ReqProduce && slices.Contains([]Action{ActDuplicate, ActGap}, a) {
				t.Errorf("%v code %d: action %d is for Produce only", k, code, a)
			}
		}
	}
}
