// Package shard runs the pure machines of the broker over the logs of
// internal/seglog: one logical goroutine per partition takes commands, lets a
// machine decide, appends what it decided, applies it, and hands out replies
// with the journal position that must be durable before anyone may see them.
//
// All partitions share one journal whose durable part is always a prefix of
// the append order. A message from one shard to another therefore need not
// wait for durability: whatever the receiver appends because of it comes later
// in the journal than its cause. Only replies to clients wait.
package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// Env is what the partitions of one broker share.
type Env struct {
	Store  *seglog.Store
	Logger *slog.Logger
	// Lookup finds a partition, nil if there is none (any more).
	Lookup func(batch.TopicPartition) *Partition
	// Coordinator finds the __transaction_state partition of a transactional
	// id, nil while there is none.
	Coordinator func(transactionalID string) *Partition
	// Groups configures the group machines, Txn the transaction machines.
	Groups group.Config
	Txn    txn.Config
	// LeaderEpoch is written into every batch. One node never elects another
	// leader, and in mode sync no visible record is ever truncated, so it does
	// not move.
	LeaderEpoch int32
	// ProducerIDExpirationMs is how long an idle producer's state is kept.
	ProducerIDExpirationMs int64
	Faults                 Faults

	wg      sync.WaitGroup
	tokens  atomic.Uint64
	pending pendingDurable
	ctr     Counters
}

// Faults are switches that break one property each, so that tests can see
// that their checkers notice. They are never set outside tests.
type Faults struct {
	// MarkersBeforePrepare sends a transaction's markers before the decision
	// has been appended: a crash in between tears the transaction.
	MarkersBeforePrepare bool
}

// Counters count events of all partitions since the start.
type Counters struct {
	Committed, Aborted, Fenced, Duplicates atomic.Int64
}

// Counters returns the live counters.
func (e *Env) Counters() *Counters { return &e.ctr }

// Wait returns when no shard has work left. Call it after Stop of every
// partition.
func (e *Env) Wait() { e.wg.Wait() }

// nowMs is the wall clock in milliseconds since 1970, virtual under synctest.
func nowMs() int64 { return time.Now().UnixMilli() }

// Partition is one partition: a log, its producer state, and for a partition
// of an internal topic the coordinator machine that lives in it.
type Partition struct {
	TP    batch.TopicPartition
	LogID seglog.LogID

	env   *Env
	log   *seglog.Log
	actor actor

	// Owned by the actor.
	prod    *prodstate.Machine
	txn     *txn.Machine
	group   *group.Machine
	replies map[uint64]func(any, seglog.LSN)
	lastLSN seglog.LSN
	err     error // set once: the shard has failed or was deleted
	timer   *time.Timer
	timerMs int64
	builder batch.Builder
	// unsavedBytes were appended since the last producer snapshot.
	unsavedBytes int64

	published uint64 // version of undecided

	// undecided are the transactions that read_committed may not pass. Written
	// by the actor, read by any goroutine.
	undecided atomic.Pointer[prodstate.Undecided]
	stopped   atomic.Bool
	waiters   waiters
}

// Role says which coordinator lives in a partition.
type Role int

// The roles.
const (
	RoleData Role = iota
	RoleTransactions
	RoleGroups
)

// Open builds the partition's machines by replaying its log.
func Open(env *Env, log *seglog.Log, id seglog.LogID, tp batch.TopicPartition, role Role) (*Partition, error) {
	p := &Partition{TP: tp, LogID: id, env: env, log: log, replies: map[uint64]func(any, seglog.LSN){}}
	p.actor.wg = &env.wg
	p.actor.failed = p.fail
	switch role {
	case RoleTransactions:
		p.txn = txn.New(env.Txn)
	case RoleGroups:
		p.group = group.New(env.Groups)
	}
	if err := p.recover(); err != nil {
		return nil, fmt.Errorf("open partition %s-%d: %w", tp.Topic, tp.Partition, err)
	}
	return p, nil
}

// Start begins the coordinator's work: timers, and the markers of decided
// transactions that a crash interrupted.
func (p *Partition) Start() {
	switch {
	case p.txn != nil:
		p.actor.post(func() { p.decideTxn(txn.Resume{}) })
	case p.group != nil:
		p.actor.post(func() {
			p.group.Loaded(nowMs())
			p.decideGroup(group.Tick{})
			p.forgetDeleted()
		})
	}
}

// Stop refuses further commands; what is queued still runs. Env.Wait waits.
func (p *Partition) Stop() {
	p.stopped.Store(true)
	p.actor.post(func() {
		if p.timer != nil {
			p.timer.Stop()
		}
	})
	p.actor.stop()
	p.waiters.wake()
}

// ErrDeleted is a partition's state after its topic was deleted.
var ErrDeleted = errors.New("topic was deleted")

// Delete makes every further command fail with UNKNOWN_TOPIC_OR_PARTITION and
// then calls done on the shard's goroutine.
func (p *Partition) Delete(done func()) {
	p.stopped.Store(true)
	if !p.actor.post(func() {
		if p.err == nil {
			p.err = ErrDeleted
		}
		p.waiters.wake()
		done()
	}) {
		done()
	}
}

// fail stops the shard. Runs on the actor.
func (p *Partition) fail(err error) {
	if p.err == nil {
		p.err = err
		p.env.Logger.Error("shard stopped", "topic", p.TP.Topic, "partition", p.TP.Partition, "err", err,
			"remedy", "restart the broker; the partition is rebuilt from its log")
	}
	for token, reply := range p.replies {
		delete(p.replies, token)
		reply(nil, p.lastLSN)
	}
}

// refusal is the code of a command that the shard did not run, or not to its
// end. It may be called from any goroutine once the shard is stopped.
func (p *Partition) refusal() int16 {
	if p.stopped.Load() {
		return kerr.NotLeaderForPartition.Code
	}
	return p.errCode()
}

// errCode is the protocol code of the shard's failure, 0 if it has none.
func (p *Partition) errCode() int16 {
	switch {
	case p.err == nil:
		return 0
	case errors.Is(p.err, ErrDeleted):
		return kerr.UnknownTopicOrPartition.Code
	default:
		return kerr.KafkaStorageError.Code
	}
}

// HighWatermark is the first offset that is not durable yet.
func (p *Partition) HighWatermark() batch.Offset { return p.log.DurableEnd() }

// LogStart is the first offset that was not deleted.
func (p *Partition) LogStart() batch.Offset { return p.log.Start() }

// LogEnd is the offset of the next record appended.
func (p *Partition) LogEnd() batch.Offset { return p.log.End() }

// LastStable is the first offset that a read_committed reader may not see:
// the high watermark, or the start of the earliest undecided transaction.
func (p *Partition) LastStable() batch.Offset {
	// Read the picture, the high watermark, and the picture again: with one
	// read, a transaction that begins and becomes durable in between would be
	// shown. If the picture was empty, then not, then empty again, what was in
	// it has been decided durably, so the answer is right as well.
	for {
		undecided := p.undecided.Load()
		hw := p.log.DurableEnd()
		if p.undecided.Load() == undecided {
			return max(undecided.LastStable(hw), min(p.log.Start(), hw))
		}
	}
}

// Log is the partition's log, for reads.
func (p *Partition) Log() *seglog.Log { return p.log }

// Stopped reports whether the partition was deleted or shut down.
func (p *Partition) Stopped() bool { return p.stopped.Load() }

// publish makes the producer state's view of undecided transactions visible to
// readers. It runs on the actor after every change. A batch that may open a
// transaction is shown before its append (see append): once appended, it can
// become durable, and so visible, at any moment. A transaction whose marker is
// appended stays in the picture, because until the marker is durable a power
// cut may take it, and with it the decision, while the data before it stays.
func (p *Partition) publish() {
	p.prod.AdvanceHighWatermark(p.log.DurableEnd())
	if v := p.prod.UndecidedVersion(); v != p.published {
		p.undecided.Store(p.prod.Undecided())
		p.published = v
	}
}
