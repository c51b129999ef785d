package shard

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// Txn gives a command to the transaction coordinator of this
// __transaction_state partition. makeCmd gets the token that the command must
// carry. done is called exactly once, on some shard's goroutine.
func (p *Partition) Txn(makeCmd func(txn.Token) txn.Command, done func(txn.Reply, seglog.LSN)) {
	token := p.env.tokens.Add(1)
	if !p.actor.post(func() {
		if code := p.coordinatorErr(); code != 0 {
			done(txn.Reply{Code: code, ProducerID: -1, Epoch: -1}, p.lastLSN)
			return
		}
		p.replies[token] = func(r any, lsn seglog.LSN) {
			reply, ok := r.(txn.Reply)
			if !ok { // the shard failed while the command was parked
				reply = txn.Reply{Code: kerr.NotCoordinator.Code, ProducerID: -1, Epoch: -1}
			}
			done(reply, lsn)
		}
		p.decideTxn(makeCmd(txn.Token(token)))
	}) {
		done(txn.Reply{Code: kerr.NotCoordinator.Code, ProducerID: -1, Epoch: -1}, 0)
	}
}

// QueryTxn runs a read of the coordinator's state. done gets false when the
// coordinator is not available.
func (p *Partition) QueryTxn(read func(*txn.Machine), done func(ok bool, lsn seglog.LSN)) {
	type answer struct {
		ok  bool
		lsn seglog.LSN
	}
	give := once(func(a answer) { done(a.ok, a.lsn) })
	p.actor.call(func() {
		ok := p.coordinatorErr() == 0
		if ok {
			read(p.txn)
		}
		give(answer{ok, p.lastLSN})
	}, func() { give(answer{}) })
}

func (p *Partition) coordinatorErr() int16 {
	if p.err != nil {
		return kerr.NotCoordinator.Code
	}
	return 0
}

func (p *Partition) decideTxn(first txn.Command) {
	for queue := []txn.Command{first}; len(queue) > 0 && p.err == nil; queue = queue[1:] {
		eff := p.txn.Decide(nowMs(), queue[0])
		if eff.Fatal != nil {
			p.fail(eff.Fatal)
			return
		}
		if p.env.Faults.MarkersBeforePrepare {
			p.markersFirst(eff.Markers)
			eff.Markers = nil
		}
		if !p.appendTxnRecords(eff.Records) {
			return
		}
		p.sendMarkers(eff.Markers)
		for _, r := range eff.Replies {
			p.reply(uint64(r.Token), r)
		}
		queue = append(queue, eff.Requeue...)
		p.arm(eff.DeadlineMs)
	}
}

func (p *Partition) reply(token uint64, r any) {
	if done := p.replies[token]; done != nil {
		delete(p.replies, token)
		done(r, p.lastLSN)
	}
}

func (p *Partition) appendTxnRecords(records []txn.Record) bool {
	if len(records) == 0 {
		return true
	}
	now := nowMs()
	p.builder.Reset(batch.BuilderOptions{ProducerID: -1, Epoch: -1, BaseSequence: -1, BaseTimestampMs: now})
	for _, r := range records {
		p.builder.Append(now, r.Key, r.Value, nil)
	}
	base, ok := p.appendBuilt()
	if !ok {
		return false
	}
	for i, r := range records {
		if err := p.txn.Apply(base+batch.Offset(i), r); err != nil {
			p.fail(fmt.Errorf("apply own record: %w", err))
			return false
		}
	}
	return true
}

// appendBuilt appends what the builder holds.
func (p *Partition) appendBuilt() (batch.Offset, bool) {
	raw := p.builder.Build(nil)
	h, err := batch.ParseHeader(raw)
	if err != nil {
		p.fail(err)
		return -1, false
	}
	base, err := p.append(raw, h, nil)
	return base, err == nil
}

// sendMarkers writes a transaction's markers to its partitions and tells the
// coordinator of each. A partition that is gone has nothing to be marked.
func (p *Partition) sendMarkers(batches []txn.MarkerBatch) {
	for _, mb := range batches {
		m := Marker{
			ProducerID: mb.ProducerID, Epoch: mb.Epoch, Commit: mb.Commit,
			CoordinatorEpoch: mb.CoordinatorEpoch, TV2: mb.TV2,
		}
		for _, tp := range mb.Partitions {
			written := func(code int16, _ seglog.LSN) {
				p.actor.post(func() {
					if p.err == nil {
						p.decideTxn(txn.MarkersWritten{
							TransactionalID: mb.TransactionalID, ProducerID: mb.ProducerID, Epoch: mb.Epoch,
							Partitions: []txn.PartitionResult{{TopicPartition: tp, Code: code}},
						})
					}
				})
			}
			if target := p.env.Lookup(tp); target != nil {
				target.WriteMarker(m, written)
			} else {
				written(kerr.UnknownTopicOrPartition.Code, 0)
			}
		}
		if mb.Commit {
			p.env.ctr.Committed.Add(1)
		} else {
			p.env.ctr.Aborted.Add(1)
		}
	}
}

// markersFirst is the fault MarkersBeforePrepare: the markers are in their logs
// before the decision is.
func (p *Partition) markersFirst(batches []txn.MarkerBatch) {
	p.sendMarkers(batches)
	for _, mb := range batches {
		for _, tp := range mb.Partitions {
			if target := p.env.Lookup(tp); target != nil {
				done := make(chan struct{})
				target.Save(func() { close(done) }) // queued behind the marker
				<-done
			}
		}
	}
}

// arm has the machine's Tick run at deadlineMs, 0 for none. A timer that is
// already set for an earlier time stays: a Tick too many does no harm.
func (p *Partition) arm(deadlineMs int64) {
	if deadlineMs == 0 || p.stopped.Load() {
		return
	}
	if p.timerMs != 0 && p.timerMs <= deadlineMs {
		return
	}
	p.timerMs = deadlineMs
	d := time.Duration(max(deadlineMs-nowMs(), 1)) * time.Millisecond
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(d, func() { p.actor.post(p.tick) })
}

func (p *Partition) tick() {
	if p.err != nil || p.stopped.Load() {
		return
	}
	p.timerMs = 0
	if p.txn != nil {
		p.decideTxn(txn.Tick{})
	} else if p.group != nil {
		p.decideGroup(group.Tick{})
	}
}
