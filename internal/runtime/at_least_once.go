package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitAtLeastOnce commits without a transaction, in the one order that can
// repeat effects but never lose any:
//
//	flush outputs and changelog → apply the stores → commit the offsets
//
// A crash after the flush replays input whose outputs are already there. A
// crash before the stores are applied finds their contents in the changelog. The
// offsets come last, so no input is ever passed over whose effects are missing.
func (w *worker) commitAtLeastOnce(ctx context.Context, offsets producer.Offsets) error {
	if w.out.failed != nil {
		return w.handle(ctx, w.out.failed)
	}
	if err := w.prod.Flush(ctx); err != nil {
		return w.handle(ctx, fmt.Errorf("flush before the commit: %w", err))
	}
	if err := w.commitStores(); err != nil {
		return err
	}
	w.out.ended()
	if len(offsets) == 0 {
		return nil
	}
	err := w.commitPlain(ctx, offsets)
	if err != nil && (decide(err).action == actRetry || transient(err)) {
		w.log.Info("offset commit put off", "err", err)
		return nil // the positions still differ from the committed ones: the next commit has them
	}
	if err != nil {
		return w.handle(ctx, err)
	}
	return w.applyCommit()
}

// commitPlain sends an OffsetCommit under the current membership.
func (w *worker) commitPlain(ctx context.Context, offsets producer.Offsets) error {
	group, err := w.groupMetadata()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group.GroupID, group.MemberID, group.GenerationID
	byTopic := make(map[string]*kmsg.OffsetCommitRequestTopic)
	for tp, o := range offsets {
		t := byTopic[tp.Topic]
		if t == nil {
			fresh := kmsg.NewOffsetCommitRequestTopic()
			fresh.Topic = tp.Topic
			t = &fresh
			byTopic[tp.Topic] = t
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, o.Offset, -1, kmsg.StringPtr(o.Metadata)
		t.Partitions = append(t.Partitions, p)
	}
	for _, topic := range sortedKeys(byTopic) {
		req.Topics = append(req.Topics, *byTopic[topic])
	}
	coordinator, err := groupCoordinator(ctx, w.control, group.GroupID)
	if err != nil {
		return err
	}
	reply, err := w.control.Broker(coordinator).Request(ctx, commitByName{req})
	if err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", group.GroupID, err)
	}
	resp := reply.(*kmsg.OffsetCommitResponse)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("commit offset of %s/%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	if len(resp.Topics) != len(req.Topics) {
		return errors.New("commit offsets: the reply leaves topics out")
	}
	return nil
}

// commitByName keeps OffsetCommit at the last version that names topics;
// version 10 wants topic ids (KIP-848).
type commitByName struct{ *kmsg.OffsetCommitRequest }

// MaxVersion implements kmsg.Request.
func (commitByName) MaxVersion() int16 { return 9 }
