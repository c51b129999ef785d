package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kgo"
)

// advance brings tasks nearer to running: open the stores, read the committed
// offsets, restore, seek. Nothing in it waits for long; what is not ready is
// looked at again in the next round.
//
// Offsets are read before the changelog's end: a transaction whose offsets are
// stable has written its changelog records before, so they lie below that end.
func (w *worker) advance(ctx context.Context) error {
	if !slices.ContainsFunc(w.tasks, func(t *activeTask) bool { return t.stage != stageRunning }) && !w.needProducer {
		return nil
	}
	if w.waitsForMembership() {
		return nil
	}
	if w.needProducer {
		if err := w.openProducer(ctx); err != nil {
			return err
		}
		w.needProducer = false
	}
	for _, t := range w.tasks {
		if t.stage == stageOpen {
			if err := w.openTask(t); err != nil {
				return err
			}
		}
	}
	if err := w.loadOffsets(ctx); err != nil {
		return err
	}
	var ready []*activeTask
	for _, t := range w.tasks {
		if t.stage == stageRestore {
			restored, err := w.restoreTask(ctx, t)
			if err != nil {
				return err
			}
			if restored {
				ready = append(ready, t)
			}
		}
	}
	w.startTasks(ready)
	return nil
}

// storeWait is after how long a task that waits for a store says so. Since the
// state directory is locked, the store is open in another worker of this process,
// which closes it when it hears that the task was taken from it.
const storeWait = 30 * time.Second

func (w *worker) openTask(t *activeTask) error {
	now := time.Now()
	if now.Before(t.retryAt) {
		return nil
	}
	err := w.openStores(t)
	if errors.Is(err, store.ErrLocked) {
		t.retryAt = now.Add(20 * time.Millisecond)
		if now.Sub(t.openSince) > storeWait {
			t.openSince = now
			w.log.Warn("a task waits for another worker to close its store", "task", t.id, "err", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	deps := task.Deps{Stores: make(map[string]task.KeyValueStore, len(t.stores)), Collector: workerCollector{w}}
	for _, s := range t.stores {
		deps.Stores[s.spec.Name] = s.store
	}
	if t.task, err = task.New(t.sub, t.id.Partition, deps); err != nil {
		return fmt.Errorf("make task %s: %w", t.id, err)
	}
	t.stage = stageOffsets
	return nil
}

// openStores opens all stores of the task or none.
func (w *worker) openStores(t *activeTask) error {
	if len(t.sub.Stores) > 0 {
		if err := w.app.dir.prepareTask(t.id); err != nil {
			return err
		}
	}
	for _, spec := range t.sub.Stores {
		s := store.NewMemory()
		if spec.Persistent {
			var err error
			if s, err = store.OpenPebble(w.app.dir.storeDir(t.id, spec.Name), store.PebbleOptions{Shared: w.app.shared}); err != nil {
				return errors.Join(fmt.Errorf("task %s: open store %s: %w", t.id, spec.Name, err), t.close())
			}
		}
		a := &activeStore{spec: spec, store: s}
		if spec.ChangelogTopic != "" {
			if a.changelog = w.out.partition(spec.ChangelogTopic, t.id.Partition); a.changelog == nil {
				t.stores = append(t.stores, a)
				return errors.Join(fmt.Errorf("task %s: changelog %s has no partition %d: a source topic has got more partitions; %w", t.id, spec.ChangelogTopic, t.id.Partition, ErrPartitionCount), t.close())
			}
		}
		t.stores = append(t.stores, a)
	}
	return nil
}

// bindChangelogs points open stores to the partitions of a new producer.
func (w *worker) bindChangelogs() {
	for _, t := range w.tasks {
		for _, s := range t.stores {
			if s.changelog != nil {
				s.changelog = w.out.partition(s.spec.ChangelogTopic, t.id.Partition)
			}
		}
	}
}

// workerCollector sends to the worker's producer of the moment, which a task
// outlives.
type workerCollector struct{ w *worker }

// Send implements task.Collector.
func (c workerCollector) Send(topic string, partition int32, key, value []byte, headers []task.Header, timestampMs int64) error {
	return c.w.out.Send(topic, partition, key, value, headers, timestampMs)
}

// PartitionCount implements task.Collector.
func (c workerCollector) PartitionCount(topic string) int32 { return c.w.out.PartitionCount(topic) }

// loadOffsets reads the committed offsets of all tasks that wait for theirs,
// in one request. Pending ones are asked for again in the next round.
func (w *worker) loadOffsets(ctx context.Context) error {
	var waiting []*activeTask
	var partitions []batch.TopicPartition
	for _, t := range w.tasks {
		if t.stage == stageOffsets {
			waiting = append(waiting, t)
			partitions = append(partitions, t.partitions...)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	offsets, err := fetchStableOffsets(ctx, w.control, w.opts.ApplicationID, partitions)
	if err != nil {
		if transient(err) {
			return nil
		}
		return err
	}
	if err := w.resolveStarts(ctx, waiting, offsets); err != nil {
		if transient(err) {
			return nil
		}
		return err
	}
	for _, t := range waiting {
		for _, tp := range t.partitions {
			t.task.SetPartitionTimeMs(tp.Topic, decodePartitionTime(offsets[tp].Metadata))
		}
		t.stage = stageRestore
	}
	return nil
}

// resolveStarts sets where each task starts. Without a committed offset it is
// where the task started before, or else what the reset policy says. Repartition
// topics always start at their beginning: the application has written all that is
// in them, for a task that may not have run yet.
func (w *worker) resolveStarts(ctx context.Context, tasks []*activeTask, offsets map[batch.TopicPartition]committedOffset) error {
	var fromStart, fromEnd []batch.TopicPartition
	for _, t := range tasks {
		for _, tp := range t.partitions {
			_, known := t.start[tp.Topic]
			switch {
			case offsets[tp].Offset >= 0 || known:
			case w.fromEnd(t, tp):
				fromEnd = append(fromEnd, tp)
			default:
				fromStart = append(fromStart, tp)
			}
		}
	}
	listed := make(map[batch.TopicPartition]int64)
	for _, ask := range []struct {
		at         int64
		partitions []batch.TopicPartition
	}{{listEarliest, fromStart}, {listLatest, fromEnd}} {
		if len(ask.partitions) == 0 {
			continue
		}
		found, err := listOffsets(ctx, w.control, ask.at, ask.partitions)
		if err != nil {
			return err
		}
		maps.Copy(listed, found)
	}
	for _, t := range tasks {
		for _, tp := range t.partitions {
			if c := offsets[tp].Offset; c >= 0 {
				t.start[tp.Topic] = c
				delete(t.chosen, tp.Topic)
			} else if first, ok := listed[tp]; ok {
				t.start[tp.Topic] = first
				if w.fromEnd(t, tp) {
					t.chosen[tp.Topic] = true
				}
			}
		}
	}
	return nil
}

// fromEnd says whether a partition without a committed offset is read from its end
// on. One that is newer than the application holds nothing older than it.
func (w *worker) fromEnd(t *activeTask, tp batch.TopicPartition) bool {
	return w.opts.StartAtLatest && !t.isRepartition(tp.Topic) && tp.Partition < w.app.layout.partitions[tp.Topic]
}

// restoreRun is a restore under way; it owns the task's stores until done.
type restoreRun struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// restoreTask starts the task's restore, or says that the task is ready to run.
func (w *worker) restoreTask(ctx context.Context, t *activeTask) (ready bool, err error) {
	if t.restore == nil && t.stale && slices.ContainsFunc(t.stores, func(s *activeStore) bool { return s.changelog != nil }) {
		w.startRestore(ctx, t)
	}
	if t.restore != nil {
		select {
		case <-t.restore.done:
		default:
			return false, nil
		}
		err := t.restore.err
		t.restore = nil
		if err != nil && transient(err) {
			w.log.Warn("restore failed; trying again", "task", t.id, "err", err)
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("task %s: %w", t.id, err)
		}
	}
	t.stale = false
	return true, nil
}

// startTasks seeks the consumer to the tasks' starts and lets records flow. All
// seek at once: a seek ends every fetch that is under way.
func (w *worker) startTasks(tasks []*activeTask) {
	if len(tasks) == 0 {
		return
	}
	seek, resume := make(map[string]map[int32]kgo.EpochOffset), make(map[string][]int32)
	for _, t := range tasks {
		for _, tp := range t.partitions {
			offset := t.start[tp.Topic]
			t.task.SetPosition(tp.Topic, offset)
			if seek[tp.Topic] == nil {
				seek[tp.Topic] = make(map[int32]kgo.EpochOffset)
			}
			seek[tp.Topic][tp.Partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
			resume[tp.Topic] = append(resume[tp.Topic], tp.Partition)
		}
		t.stage = stageRunning
		w.log.Info("task runs", "task", t.id, "from", t.start)
	}
	w.consumer.SetOffsets(seek)
	w.consumer.ResumeFetchPartitions(resume)
	w.seekedAt = time.Now()
	w.countTasks()
}

// startRestore restores the task's stores in a goroutine of its own.
func (w *worker) startRestore(ctx context.Context, t *activeTask) {
	ctx, cancel := context.WithCancel(ctx)
	run := &restoreRun{cancel: cancel, done: make(chan struct{})}
	t.restore = run
	stores := slices.DeleteFunc(slices.Clone(t.stores), func(s *activeStore) bool { return s.changelog == nil })
	go func() {
		defer close(run.done)
		defer cancel()
		defer w.wakeUp()
		select {
		case w.slots <- struct{}{}:
			defer func() { <-w.slots }()
		case <-ctx.Done():
			run.err = ctx.Err()
			return
		}
		for _, s := range stores {
			if run.err = w.restoreStore(ctx, t.id, s); run.err != nil {
				return
			}
		}
	}()
}

func (w *worker) restoreStore(ctx context.Context, id task.ID, s *activeStore) error {
	progress := &restoreProgress{topic: s.spec.ChangelogTopic, partition: id.Partition, startMs: time.Now().UnixMilli()}
	w.restoreMu.Lock()
	w.restoring = append(w.restoring, progress)
	w.restoreMu.Unlock()
	defer func() {
		w.restoreMu.Lock()
		w.restoring = slices.DeleteFunc(w.restoring, func(p *restoreProgress) bool { return p == progress })
		w.restoreMu.Unlock()
	}()
	r := changelogReader{
		cl: w.control, tp: batch.TopicPartition{Topic: s.spec.ChangelogTopic, Partition: id.Partition},
		store: s.store, readCommitted: w.opts.ExactlyOnce, progress: progress, restored: &w.stats.restored,
	}
	return r.restore(ctx)
}
