package shard

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// Produce is one client batch for one partition, already validated by
// batch.Validate.
type Produce struct {
	// Raw is the batch. The partition keeps it, and writes the base offset
	// and the leader epoch into it.
	Raw             []byte
	Header          batch.Header
	TransactionalID string
	Version         int16 // of the Produce request; 12 and above speak transaction.version 2
	// AppendTime has the broker's clock replace the records' timestamps.
	AppendTime bool
}

// ProduceResult is the answer to a Produce.
type ProduceResult struct {
	Code         int16
	Message      string
	BaseOffset   batch.Offset
	LogStart     batch.Offset
	AppendTimeMs int64 // -1 unless AppendTime, or a duplicate
	// LSN must be durable before the answer may be sent.
	LSN seglog.LSN
}

// Produce appends a batch. done is called exactly once, on some shard's
// goroutine; it must not block.
func (p *Partition) Produce(r *Produce, done func(ProduceResult)) {
	done = once(done)
	p.actor.call(func() { p.produce(r, 0, done) }, func() {
		done(ProduceResult{Code: p.refusal(), BaseOffset: -1, LogStart: -1, AppendTimeMs: -1})
	})
}

func (p *Partition) produce(r *Produce, token prodstate.Token, done func(ProduceResult)) {
	fail := func(code int16, msg string, logStart batch.Offset, lsn seglog.LSN) {
		p.countFenced(code)
		done(ProduceResult{Code: code, Message: msg, BaseOffset: -1, LogStart: logStart, AppendTimeMs: -1, LSN: max(lsn, p.lastLSN)})
	}
	if code := p.errCode(); code != 0 {
		fail(code, "", -1, 0)
		return
	}
	now := nowMs()
	d := p.prod.Decide(now, prodstate.AppendBatch{Header: r.Header, TV2: r.Version >= 12, Token: token})
	switch d.Action {
	case prodstate.Reject:
		fail(d.Code, d.Message, p.log.Start(), 0)
	case prodstate.Duplicate:
		p.env.ctr.Duplicates.Add(1)
		// Kafka answers a duplicate with the batch's time whoever gave it.
		done(ProduceResult{BaseOffset: d.BaseOffset, LogStart: p.log.Start(), AppendTimeMs: d.TimestampMs, LSN: p.lastLSN})
	case prodstate.Verify:
		p.verify(r.TransactionalID, r.Header.ProducerID, r.Header.Epoch, r.Version >= 12,
			func(code int16, lsn seglog.LSN) {
				if code != 0 {
					fail(produceVerifyCode(code, r.Version), "", -1, lsn)
					return
				}
				p.produce(r, d.Token, done)
			})
	case prodstate.Append:
		res := ProduceResult{LogStart: p.log.Start(), AppendTimeMs: -1}
		if r.AppendTime {
			batch.SetAppendTime(r.Raw, now)
			r.Header.MaxTimestampMs, res.AppendTimeMs = now, now
		}
		base, err := p.append(r.Raw, r.Header, nil)
		if err != nil {
			fail(kerr.KafkaStorageError.Code, err.Error(), -1, 0)
			return
		}
		res.BaseOffset, res.LSN = base, p.lastLSN
		done(res)
	}
}

// verify asks the transaction coordinator whether this partition belongs to
// the producer's transaction, or adds it (version 2). then runs on this
// partition's goroutine again. Nothing waits for durability: if the
// coordinator appends, it does so before this partition appends the batch.
func (p *Partition) verify(id string, pid batch.ProducerID, epoch batch.Epoch, tv2 bool, then func(code int16, lsn seglog.LSN)) {
	back := func(code int16, lsn seglog.LSN) {
		p.actor.call(func() { then(code, lsn) }, func() { then(p.refusal(), lsn) })
	}
	c := p.env.Coordinator(id)
	if c == nil {
		back(kerr.InvalidProducerIDMapping.Code, 0)
		return
	}
	c.Txn(func(t txn.Token) txn.Command {
		return txn.AddPartitions{
			Token: t, TransactionalID: id, ProducerID: pid, Epoch: epoch,
			Partitions: []batch.TopicPartition{p.TP}, VerifyOnly: !tv2, TV2: tv2, Wait: tv2,
		}
	}, func(r txn.Reply, lsn seglog.LSN) {
		code := r.Code
		if code == 0 && len(r.Partitions) > 0 {
			code = r.Partitions[0].Code
		}
		back(code, lsn)
	})
}

// produceVerifyCode maps the coordinator's answer to Produce's codes (KIP-890;
// Kafka's AddPartitionsToTxnManager).
func produceVerifyCode(code, version int16) int16 {
	switch code {
	case kerr.TransactionAbortable.Code:
		if version <= 10 {
			return kerr.InvalidTxnState.Code
		}
	case kerr.ProducerFenced.Code:
		return kerr.InvalidProducerEpoch.Code
	case kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
		return kerr.NotEnoughReplicas.Code
	case kerr.ConcurrentTransactions.Code:
		if version < 12 {
			return kerr.NotEnoughReplicas.Code
		}
	}
	return code
}

func (p *Partition) countFenced(code int16) {
	if code == kerr.InvalidProducerEpoch.Code || code == kerr.ProducerFenced.Code {
		p.env.ctr.Fenced.Add(1)
	}
}

// append gives the batch its offsets, appends it and applies it. The actor is
// the only appender, so the log's end is stable here.
func (p *Partition) append(raw []byte, h batch.Header, marker *prodstate.Marker) (batch.Offset, error) {
	base := p.log.End()
	h.BaseOffset, h.PartitionLeaderEpoch = base, p.env.LeaderEpoch
	batch.SetBaseOffset(raw, base)
	batch.SetPartitionLeaderEpoch(raw, h.PartitionLeaderEpoch)
	if h.IsTransactional() && !h.IsControl() {
		p.undecided.Store(p.undecided.Load().Opening(base))
	}
	lsn, rolled, err := p.log.Append(raw, h)
	if err != nil {
		p.fail(err)
		return -1, err
	}
	p.lastLSN = lsn
	if rolled {
		p.saveProducers(base)
	}
	if err := p.apply(base, h, marker); err != nil {
		p.fail(err)
		return -1, err
	}
	p.publish()
	p.unsavedBytes += int64(len(raw))
	p.env.pending.add(lsn, p)
	// The append may have become durable before it was in the list; then no
	// later commit may ever come to find it.
	if p.env.Store.DurableLSN() >= lsn {
		p.env.OnDurable(p.env.Store.DurableLSN())
	}
	return base, nil
}

// apply brings the producer state up to the batch, and writes the index entry
// of an aborted transaction. It serves appends and the boot replay.
func (p *Partition) apply(base batch.Offset, h batch.Header, marker *prodstate.Marker) error {
	ended := p.prod.Apply(base, h, marker)
	if ended == nil || !ended.Aborted {
		return nil
	}
	return p.log.AppendAborted(seglog.AbortedTxn{
		ProducerID: ended.ProducerID, FirstOffset: ended.FirstOffset,
		LastOffset: ended.LastOffset, LastStableOffset: ended.LastStableOffset,
	})
}

// saveProducers writes a snapshot of the producer state as of the log end at.
func (p *Partition) saveProducers(at batch.Offset) {
	if err := p.log.WriteProducerSnapshot(at, p.prod.Snapshot()); err != nil {
		// A snapshot only shortens the next start.
		p.env.Logger.Warn("producer snapshot not written", "topic", p.TP.Topic, "partition", p.TP.Partition, "err", err)
		return
	}
	p.unsavedBytes = 0
}

// Save writes a producer snapshot if anything was appended since the last
// one. done may be nil.
func (p *Partition) Save(done func()) {
	answer := once(func(struct{}) {
		if done != nil {
			done()
		}
	})
	p.actor.call(func() {
		if p.err == nil && p.unsavedBytes > 0 {
			p.saveProducers(p.log.End())
		}
		answer(struct{}{})
	}, func() { answer(struct{}{}) })
}
