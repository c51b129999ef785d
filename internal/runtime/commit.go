package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/internal/producer"
)

// transactor is what the commit protocol needs of the producer.
type transactor interface {
	Begin() error
	Flush(ctx context.Context) error
	Commit(ctx context.Context, group producer.GroupMetadata, offsets producer.Offsets) (producer.Outcome, error)
	Recover(ctx context.Context) error
}

// txnCommit is one commit of exactly_once_v2, from the record boundary on:
//
//	flush → TxnOffsetCommit + EndTxn → outcome → stores kept or dropped
//
// Committed keeps the overlays. Aborted drops them. Unknown does neither, until
// the producer was initialised anew, which ends the transaction one way or the
// other at the coordinator, and the group's stable offsets were read: if they
// are the ones we sent and nobody else can have written them, the transaction
// was committed.
type txnCommit struct {
	prod transactor
	// open says that a transaction has begun.
	open bool
	// stable reads the group's committed offsets, waiting out pending ones.
	stable func(ctx context.Context, partitions []batch.TopicPartition) (map[batch.TopicPartition]committedOffset, error)
	// stillMember says whether the group's coordinator still takes us for the
	// member that we were.
	stillMember func(ctx context.Context) bool
	faults      faults.Set
}

// verdict is what a commit means for the overlays.
type verdict int

const (
	// dropped: the transaction had no effect; replay from the committed offsets.
	dropped verdict = iota
	// kept: the transaction is committed; apply the overlays.
	kept
	// droppedUnknown: the transaction may have had its effect, or another
	// member may have gone on since: drop the overlays and read the changelog.
	droppedUnknown
)

// run commits. An error comes with a verdict other than kept; asked says that
// the outcome was unknown at first.
func (c *txnCommit) run(ctx context.Context, group producer.GroupMetadata, offsets producer.Offsets) (v verdict, asked bool, err error) {
	if !c.open {
		if err := c.prod.Begin(); err != nil {
			return dropped, false, fmt.Errorf("begin a transaction: %w", err)
		}
		c.open = true
	}
	if err := c.prod.Flush(ctx); err != nil {
		return dropped, false, fmt.Errorf("flush before the commit: %w", err)
	}
	outcome, err := c.prod.Commit(ctx, group, offsets)
	switch outcome {
	case producer.Committed:
		return kept, false, nil
	case producer.Aborted:
		if err == nil {
			err = errors.New("the coordinator aborted the transaction")
		}
		return dropped, false, fmt.Errorf("commit: %w", err)
	}
	if c.faults.UnknownIsAborted {
		return dropped, true, err
	}
	v, err = c.resolve(ctx, offsets)
	return v, true, err
}

// resolve finds out how a transaction of unknown outcome ended.
func (c *txnCommit) resolve(ctx context.Context, offsets producer.Offsets) (verdict, error) {
	if err := retry(ctx, func() error { return c.prod.Recover(ctx) }); err != nil {
		return droppedUnknown, fmt.Errorf("recover the producer after an unknown outcome: %w", err)
	}
	if len(offsets) == 0 {
		// Nothing committed tells which; the changelog does.
		return droppedUnknown, nil
	}
	partitions := make([]batch.TopicPartition, 0, len(offsets))
	for tp := range offsets {
		partitions = append(partitions, tp)
	}
	var have map[batch.TopicPartition]committedOffset
	err := retry(ctx, func() (err error) {
		have, err = c.stable(ctx, partitions)
		return err
	})
	if err != nil {
		return droppedUnknown, fmt.Errorf("read stable offsets after an unknown outcome: %w", err)
	}
	for tp, o := range offsets {
		if have[tp].Offset != o.Offset {
			return droppedUnknown, nil
		}
	}
	if !c.stillMember(ctx) {
		return droppedUnknown, nil
	}
	return kept, nil
}

// commit commits all tasks of the worker, if there is anything to commit.
func (w *worker) commit(ctx context.Context) error {
	started := time.Now()
	w.lastCommit = started
	for _, t := range w.tasks {
		if t.stage == stageRunning {
			if err := t.task.Flush(); err != nil {
				return w.handle(ctx, err)
			}
		}
	}
	offsets := w.offsetsToCommit()
	if len(offsets) == 0 && !w.out.open {
		return nil
	}
	var err error
	if w.opts.ExactlyOnce {
		err = w.commitTransaction(ctx, offsets)
	} else {
		err = w.commitAtLeastOnce(ctx, offsets)
	}
	w.stats.commitNanos.Add(int64(time.Since(started)))
	return err
}

func (w *worker) offsetsToCommit() producer.Offsets {
	offsets := make(producer.Offsets)
	for _, t := range w.tasks {
		if t.stage != stageRunning {
			continue
		}
		t.changed(func(tp batch.TopicPartition, offset int64, metadata string) {
			offsets[tp] = producer.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1, Metadata: metadata}
		})
	}
	return offsets
}

// errMembership says that there is no membership to commit under.
var errMembership = fmt.Errorf("the worker is no member of the group now: %w", producer.ErrRebalanced)

// groupMetadata is the membership for a commit. The member id must be the one
// that the tasks were assigned under; the generation may have moved on (see
// checkMembership). An empty membership would commit unfenced.
func (w *worker) groupMetadata() (producer.GroupMetadata, error) {
	member, generation := w.consumer.GroupMetadata()
	if member == "" || generation < 0 || member != w.member {
		return producer.GroupMetadata{}, errMembership
	}
	return producer.GroupMetadata{GroupID: w.opts.ApplicationID, MemberID: member, GenerationID: generation}, nil
}

func (w *worker) commitTransaction(ctx context.Context, offsets producer.Offsets) error {
	group, err := w.groupMetadata()
	if err != nil {
		return w.handle(ctx, err)
	}
	if w.out.failed != nil {
		return w.handle(ctx, w.out.failed)
	}
	inTxn, err := w.breakBefore(ctx, group, offsets)
	if err != nil {
		return w.handle(ctx, err)
	}
	c := &txnCommit{
		prod: w.prod, open: w.out.open, faults: w.opts.Faults, stillMember: w.stillMember,
		stable: func(ctx context.Context, tps []batch.TopicPartition) (map[batch.TopicPartition]committedOffset, error) {
			return fetchStableOffsets(ctx, w.control, w.opts.ApplicationID, tps)
		},
	}
	v, asked, err := c.run(ctx, group, inTxn)
	w.out.open = c.open
	if asked {
		w.stats.unknown.Add(1)
		w.log.Warn("the outcome of a commit was unknown", "kept", v == kept, "err", err)
	}
	if v == kept && w.opts.Faults.OffsetsOutsideTransaction {
		if err := w.breakAfter(ctx, offsets); err != nil {
			return w.handle(ctx, err)
		}
	}
	return w.conclude(ctx, v, asked, err)
}

// conclude applies a verdict to the tasks.
func (w *worker) conclude(ctx context.Context, v verdict, asked bool, err error) error {
	switch {
	case v == kept:
		w.out.ended()
		if asked {
			w.stats.kept.Add(1)
		}
		return w.applyCommit()
	case asked && w.opts.Faults.UnknownIsAborted:
		w.breakUnknown()
		return nil
	case asked && err == nil:
		// Resolved: the producer is ready, the overlays are not wanted.
		w.stats.abort(causeUnknown)
		w.out.ended()
		for _, t := range w.tasks {
			w.rewind(t, v == droppedUnknown)
		}
		w.countTasks()
		return nil
	case asked && ctx.Err() == nil:
		w.stats.abort(causeUnknown)
		w.out.ended()
		w.needProducer = true
		w.noteFenced(err)
		for _, t := range w.tasks {
			w.rewind(t, true)
		}
		w.countTasks()
		if decide(err).action == actStop {
			return fmt.Errorf("%w%s", err, remedy(err))
		}
		w.log.Warn("resolving an unknown outcome with a new producer", "err", err)
		return nil
	}
	return w.handle(ctx, err)
}

// applyCommit moves everything into the stores, and notes the positions.
func (w *worker) applyCommit() error {
	if err := w.commitStores(); err != nil {
		return err
	}
	w.stats.commits.Add(1)
	w.fencing.inARow, w.backoff = 0, 0
	for _, t := range w.tasks {
		if t.stage == stageRunning {
			t.committed()
			w.purge.note(t)
		}
	}
	w.purge.kick()
	return nil
}

func (w *worker) commitStores() error {
	for _, t := range w.tasks {
		if t.stage == stageRunning {
			if err := t.commitStores(); err != nil {
				return err
			}
		}
	}
	return nil
}
