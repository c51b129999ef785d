package shard

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// Group gives a command to the group coordinator of this __consumer_offsets
// partition. done is called exactly once, with the zero Reply (no token) if
// the coordinator is not available (NOT_COORDINATOR).
func (p *Partition) Group(makeCmd func(group.Token) group.Command, done func(group.Reply, seglog.LSN)) {
	token := p.env.tokens.Add(1)
	if !p.actor.post(func() {
		if p.coordinatorErr() != 0 {
			done(group.Reply{}, p.lastLSN)
			return
		}
		p.replies[token] = groupReply(done)
		p.decideGroup(makeCmd(group.Token(token)))
	}) {
		done(group.Reply{}, 0)
	}
}

func groupReply(done func(group.Reply, seglog.LSN)) func(any, seglog.LSN) {
	return func(r any, lsn seglog.LSN) {
		reply, _ := r.(group.Reply) // nil when the shard failed meanwhile
		done(reply, lsn)
	}
}

// TxnOffsetCommit writes offsets inside a transaction: first the check that
// the transaction covers this partition (added here under version 2, request
// v5 and above), then the group's checks of member and generation.
// fail is called instead of done when the transaction's checks refuse.
func (p *Partition) TxnOffsetCommit(req *kmsg.TxnOffsetCommitRequest, done func(group.Reply, seglog.LSN), fail func(code int16, lsn seglog.LSN)) {
	give := once(func(answer func()) { answer() })
	onceDone := func(r group.Reply, lsn seglog.LSN) { give(func() { done(r, lsn) }) }
	onceFail := func(code int16, lsn seglog.LSN) { give(func() { fail(code, lsn) }) }
	p.actor.call(func() { p.txnOffsetCommit(req, 0, onceDone, onceFail) }, func() { onceDone(group.Reply{}, 0) })
}

func (p *Partition) txnOffsetCommit(req *kmsg.TxnOffsetCommitRequest, token prodstate.Token, done func(group.Reply, seglog.LSN), fail func(int16, seglog.LSN)) {
	if p.coordinatorErr() != 0 {
		done(group.Reply{}, p.lastLSN)
		return
	}
	pid, epoch := batch.ProducerID(req.ProducerID), batch.Epoch(req.ProducerEpoch)
	d := p.prod.Decide(nowMs(), prodstate.AppendBatch{
		Header: batch.Header{
			Magic: 2, Attributes: batch.AttrTransactional, ProducerID: pid, Epoch: epoch,
			BaseSequence: batch.NoSequence, Count: 1,
		},
		TV2: req.Version >= 5, Token: token, Coordinator: true,
	})
	switch d.Action {
	case prodstate.Verify:
		p.verify(req.TransactionalID, pid, epoch, req.Version >= 5, func(code int16, lsn seglog.LSN) {
			if code != 0 {
				fail(offsetVerifyCode(code, req.Version), max(lsn, p.lastLSN))
				return
			}
			p.txnOffsetCommit(req, d.Token, done, fail)
		})
	case prodstate.Reject:
		p.countFenced(d.Code)
		fail(d.Code, p.lastLSN)
	default:
		t := p.env.tokens.Add(1)
		p.replies[t] = groupReply(done)
		p.decideGroup(group.TxnOffsetCommit{Token: group.Token(t), Request: req})
	}
}

// offsetVerifyCode maps the transaction coordinator's answer to
// TxnOffsetCommit's codes (Kafka's GroupCoordinatorService).
func offsetVerifyCode(code, version int16) int16 {
	switch code {
	case kerr.TransactionAbortable.Code:
		if version <= 3 {
			return kerr.InvalidTxnState.Code
		}
	case kerr.ProducerFenced.Code:
		return kerr.InvalidProducerEpoch.Code
	case kerr.NetworkException.Code:
		return kerr.CoordinatorLoadInProgress.Code
	case kerr.UnknownTopicOrPartition.Code, kerr.RequestTimedOut.Code, kerr.NotEnoughReplicas.Code:
		return kerr.CoordinatorNotAvailable.Code
	case kerr.NotLeaderForPartition.Code, kerr.KafkaStorageError.Code:
		return kerr.NotCoordinator.Code
	case kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code:
		return kerr.UnknownServerError.Code
	}
	return code
}

func (p *Partition) decideGroup(first group.Command) {
	for queue := []group.Command{first}; len(queue) > 0 && p.err == nil; queue = queue[1:] {
		eff := p.group.Decide(nowMs(), queue[0])
		if eff.Fatal != nil {
			p.fail(eff.Fatal)
			return
		}
		for _, a := range eff.Appends {
			if !p.appendGroupRecords(a) {
				return
			}
		}
		for _, r := range eff.Replies {
			p.reply(uint64(r.Token), r)
		}
		queue = append(queue, eff.Requeue...)
		p.arm(eff.DeadlineMs)
	}
}

func (p *Partition) appendGroupRecords(a group.Append) bool {
	if len(a.Records) == 0 {
		return true
	}
	transactional := a.ProducerID >= 0
	opts := batch.BuilderOptions{
		ProducerID: a.ProducerID, Epoch: a.Epoch, BaseSequence: batch.NoSequence, BaseTimestampMs: nowMs(),
	}
	if transactional {
		opts.Attributes = batch.AttrTransactional
	}
	p.builder.Reset(opts)
	for _, r := range a.Records {
		p.builder.Append(opts.BaseTimestampMs, r.Key, r.Value, nil)
	}
	base, ok := p.appendBuilt()
	if !ok {
		return false
	}
	for i, r := range a.Records {
		if err := p.group.Apply(base+batch.Offset(i), r, a.ProducerID, a.Epoch, transactional); err != nil {
			p.fail(fmt.Errorf("apply own record: %w", err))
			return false
		}
	}
	return true
}
