package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sizes and waits of a restore's fetches.
const (
	restoreFetchBytes  = 8 << 20
	restoreFetchWaitMs = 100
	restoreBackoffMin  = 20 * time.Millisecond
	restoreBackoffMax  = time.Second
)

// tombstonesKept is for how long the changelog surely holds a tombstone. Compaction
// may drop it delete.retention.ms (24 h by default) after it was written, and a
// store that has missed it would keep the row for ever. Half of that leaves time
// for the restore itself.
const tombstonesKept = 12 * time.Hour

// restoreProgress is one store's way to its target, read by Stats while the
// restore writes it.
type restoreProgress struct {
	topic     string
	partition int32
	startMs   int64
	from      atomic.Int64
	position  atomic.Int64
	target    atomic.Int64
}

// changelogReader reads one changelog partition into a store.
//
// The target is the high watermark at the start, read uncommitted, because the
// last stable offset would hide transactions that are committed behind an open
// one (KAFKA-10167). Reading is read_committed: the position reaches the target
// only when every transaction below it has ended. The position passes control
// records and aborted batches.
type changelogReader struct {
	cl            *kgo.Client
	tp            batch.TopicPartition
	store         store.Store
	readCommitted bool
	progress      *restoreProgress
	restored      *atomic.Int64 // counts records

	leader int32 // broker id, -1 when not known
}

// restore brings the store up to the changelog's end.
func (r *changelogReader) restore(ctx context.Context) error {
	r.leader = -1
	one := []batch.TopicPartition{r.tp}
	var ends, starts map[batch.TopicPartition]int64
	err := retry(ctx, func() (err error) {
		if ends, err = listOffsets(ctx, r.cl, listLatest, one); err != nil {
			return err
		}
		starts, err = listOffsets(ctx, r.cl, listEarliest, one)
		return err
	})
	if err != nil {
		return fmt.Errorf("restore from changelog %s/%d: %w", r.tp.Topic, r.tp.Partition, err)
	}
	start, target := starts[r.tp], ends[r.tp]
	position, ok := r.store.Offset()
	// Outside the log: the topic was recreated or its head deleted, and no longer
	// holds what the store has seen. Away for long: see tombstonesKept.
	outside := position < start || position > target
	away := position < target && time.Since(time.UnixMilli(r.store.CaughtUpMs())) > tombstonesKept
	if ok && (outside || away) {
		if err := r.store.Wipe(); err != nil {
			return fmt.Errorf("wipe a store whose offset %d can no longer be gone on from in %d..%d of changelog %s/%d: %w", position, start, target, r.tp.Topic, r.tp.Partition, err)
		}
		ok = false
	}
	if !ok {
		position = start
	}
	r.progress.from.Store(position)
	r.progress.target.Store(target)
	for position < target {
		next, err := r.step(ctx, position)
		if err != nil {
			return fmt.Errorf("restore from changelog %s/%d at offset %d: %w", r.tp.Topic, r.tp.Partition, position, err)
		}
		position = next
		r.progress.position.Store(position)
	}
	if err := r.store.CaughtUp(); err != nil {
		return fmt.Errorf("end the restore from changelog %s/%d: %w", r.tp.Topic, r.tp.Partition, err)
	}
	return nil
}

// step fetches once and applies what came. It returns the next position.
func (r *changelogReader) step(ctx context.Context, position int64) (int64, error) {
	var fetched kgo.FetchPartition
	var next int64
	err := retry(ctx, func() (err error) {
		fetched, next, err = r.fetch(ctx, position)
		return err
	})
	if errors.Is(err, kerr.OffsetOutOfRange) {
		if err := r.store.Wipe(); err != nil {
			return 0, fmt.Errorf("wipe the store: %w", err)
		}
		// The reply need not say where the log starts now.
		starts, err := listOffsets(ctx, r.cl, listEarliest, []batch.TopicPartition{r.tp})
		return starts[r.tp], err
	}
	if err != nil {
		return 0, err
	}
	if next <= position {
		return position, nil // an open transaction: the broker waited for us
	}
	records := make([]task.Record, 0, len(fetched.Records))
	for _, rec := range fetched.Records {
		records = append(records, task.Record{Offset: rec.Offset, TimestampMs: rec.Timestamp.UnixMilli(), Key: rec.Key, Value: rec.Value})
	}
	r.restored.Add(int64(len(records)))
	if err := r.store.Restore(records, next); err != nil {
		return 0, fmt.Errorf("apply to the store: %w", err)
	}
	return next, nil
}

// fetch asks the leader once. An error of the partition is returned as such.
func (r *changelogReader) fetch(ctx context.Context, position int64) (kgo.FetchPartition, int64, error) {
	if r.leader < 0 {
		leader, err := partitionLeader(ctx, r.cl, r.tp)
		if err != nil {
			return kgo.FetchPartition{}, 0, err
		}
		r.leader = leader
	}
	resp, err := r.cl.Broker(int(r.leader)).Request(ctx, r.request(position))
	if err != nil {
		r.leader = -1
		return kgo.FetchPartition{}, 0, err
	}
	reply := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(reply.ErrorCode); err != nil {
		return kgo.FetchPartition{}, 0, err
	}
	if len(reply.Topics) != 1 || len(reply.Topics[0].Partitions) != 1 {
		return kgo.FetchPartition{}, 0, errors.New("the fetch reply does not hold the one partition asked for")
	}
	isolation := kgo.ReadUncommitted()
	if r.readCommitted {
		isolation = kgo.ReadCommitted()
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: position, IsolationLevel: isolation, Topic: r.tp.Topic, Partition: r.tp.Partition,
	}, &reply.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		r.leader = -1
	}
	return fp, next, fp.Err
}

func (r *changelogReader) request(position int64) kmsg.Request {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = restoreFetchWaitMs, 1, restoreFetchBytes
	if r.readCommitted {
		req.IsolationLevel = 1
	}
	req.SessionEpoch = -1 // no fetch session
	t := kmsg.NewFetchRequestTopic()
	t.Topic = r.tp.Topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.tp.Partition, position, restoreFetchBytes
	p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset = -1, -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return fetchByName{req}
}

// fetchByName keeps Fetch at the last version that names topics; version 13
// wants topic ids (KIP-516).
type fetchByName struct{ *kmsg.FetchRequest }

// MaxVersion implements kmsg.Request.
func (fetchByName) MaxVersion() int16 { return 12 }

// partitionLeader asks for the broker that leads the partition.
func partitionLeader(ctx context.Context, cl *kgo.Client, tp batch.TopicPartition) (int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(tp.Topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return -1, fmt.Errorf("find the leader of %s/%d: %w", tp.Topic, tp.Partition, err)
	}
	for _, topic := range resp.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			return -1, fmt.Errorf("find the leader of %s/%d: %w", tp.Topic, tp.Partition, err)
		}
		for _, p := range topic.Partitions {
			if p.Partition != tp.Partition {
				continue
			}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return -1, fmt.Errorf("find the leader of %s/%d: %w", tp.Topic, tp.Partition, err)
			}
			return p.Leader, nil
		}
	}
	return -1, fmt.Errorf("find the leader of %s/%d: %w", tp.Topic, tp.Partition, kerr.UnknownTopicOrPartition)
}

// retry calls do until it succeeds, fails for good or ctx ends.
func retry(ctx context.Context, do func() error) error {
	backoff := restoreBackoffMin
	for {
		err := do()
		if err == nil || !transient(err) {
			return err
		}
		timer := time.NewTimer(backoff)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; last error: %w", ctx.Err(), err)
		case <-timer.C:
		}
		backoff = min(backoff*2, restoreBackoffMax)
	}
}
