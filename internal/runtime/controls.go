package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// This file breaks the commit protocol on purpose, for the negative controls
// of package faults. Nothing in it runs without a fault.

// faultWindow makes the moment in which a broken protocol is exposed long
// enough for a kill to hit it.
const faultWindow = 200 * time.Millisecond

// breakBefore runs the faults that come before the commit. It returns the
// offsets that are left for the transaction.
func (w *worker) breakBefore(ctx context.Context, group producer.GroupMetadata, offsets producer.Offsets) (producer.Offsets, error) {
	f := w.opts.Faults
	if f.StoreBeforeCommit {
		if err := w.prod.Flush(ctx); err != nil {
			return nil, err
		}
		if err := w.commitStores(); err != nil {
			return nil, err
		}
		_ = pause(ctx, faultWindow)
	}
	switch {
	case f.OffsetsOutsideTransaction:
		return nil, nil
	case f.NoGroupMetadata && w.out.open:
		return nil, w.commitUnfenced(ctx, group.GroupID, offsets)
	}
	return offsets, nil
}

// breakAfter commits the offsets that were left out of the transaction.
func (w *worker) breakAfter(ctx context.Context, offsets producer.Offsets) error {
	_ = pause(ctx, faultWindow)
	return w.commitPlain(ctx, offsets)
}

// breakUnknown replays from the positions that we remember, as if an outcome
// that is unknown were an abort.
func (w *worker) breakUnknown() {
	w.stats.abort(causeUnknown)
	w.out.ended()
	w.needProducer = true
	for _, t := range w.tasks {
		w.rewind(t, false)
		if t.stage == stageOffsets {
			t.stage = stageRestore // neither offsets nor changelog are looked at
		}
	}
	w.countTasks()
}

// commitUnfenced adds offsets to the open transaction without saying who we
// are, as a client with group id only does. It knows transaction.version 2
// only, where TxnOffsetCommit adds the group to the transaction by itself.
func (w *worker) commitUnfenced(ctx context.Context, group string, offsets producer.Offsets) error {
	if err := w.prod.Flush(ctx); err != nil || len(offsets) == 0 {
		return err
	}
	id := w.prod.Identity()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = w.transactionalID(), group
	req.ProducerID, req.ProducerEpoch = int64(id.ProducerID), int16(id.Epoch)
	req.Generation, req.MemberID = -1, ""
	for tp, o := range offsets {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = tp.Topic
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = tp.Partition, o.Offset, -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	coordinator, err := groupCoordinator(ctx, w.control, group)
	if err != nil {
		return err
	}
	reply, err := w.control.Broker(coordinator).Request(ctx, offsetsByName{req})
	if err != nil {
		return fmt.Errorf("commit offsets unfenced: %w", err)
	}
	for _, t := range reply.(*kmsg.TxnOffsetCommitResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("commit offset of %s/%d unfenced: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}

// offsetsByName keeps TxnOffsetCommit at the last version that names topics.
type offsetsByName struct{ *kmsg.TxnOffsetCommitRequest }

// MaxVersion implements kmsg.Request.
func (offsetsByName) MaxVersion() int16 { return 5 }
