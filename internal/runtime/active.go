package runtime

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
)

// taskStage is how far an assigned task has come. A task that must be replayed
// goes back to stageOffsets.
type taskStage int

const (
	stageOpen    taskStage = iota // stores are to be opened
	stageOffsets                  // committed offsets are to be read
	stageRestore                  // stores are behind the changelog
	stageRunning                  // records flow
)

// activeTask is a task that the worker owns.
type activeTask struct {
	id         task.ID
	sub        *task.Subtopology
	partitions []batch.TopicPartition // one per source topic that has the partition, in the order of the sources
	task       *task.Task
	stores     []*activeStore
	stage      taskStage
	retryAt    time.Time
	openSince  time.Time

	// stale says that the stores may lie behind the committed changelog.
	stale   bool
	restore *restoreRun
	// start holds, per source topic, where processing started or the last
	// commit left it.
	start map[string]int64
	// chosen holds the topics whose start is the end that was found when the task
	// began. It is committed even before the first record: another end would be
	// found later.
	chosen map[string]bool
}

// activeStore is one open store of a task.
type activeStore struct {
	spec      task.StoreSpec
	store     store.Store
	changelog *producer.Partition // nil without a changelog
}

// committedPosition is the changelog offset that goes with the overlay: the
// one behind the last acknowledged record. It is asked for after a flush.
func (s *activeStore) committedPosition() int64 {
	if s.changelog != nil {
		if acked, ok := s.changelog.AckedOffset(); ok {
			return acked + 1
		}
	}
	stored, _ := s.store.Offset()
	return stored
}

// commit moves the overlay into the store.
func (s *activeStore) commit() error {
	if !s.store.Dirty() {
		return nil
	}
	if err := s.store.Commit(s.committedPosition()); err != nil {
		return fmt.Errorf("store %s: commit: %w", s.spec.Name, err)
	}
	return nil
}

// changed lists the positions of the task that differ from the last commit.
func (t *activeTask) changed(yield func(tp batch.TopicPartition, offset int64, metadata string)) {
	for topic, position := range t.task.Positions() {
		if position != t.start[topic] || t.chosen[topic] {
			yield(batch.TopicPartition{Topic: topic, Partition: t.id.Partition}, position, encodePartitionTime(t.task.PartitionTimeMs(topic)))
		}
	}
}

// dirty says whether a commit would have something to say about the task.
func (t *activeTask) dirty() bool {
	if t.stage != stageRunning {
		return false
	}
	for _, s := range t.stores {
		if s.store.Dirty() {
			return true
		}
	}
	for topic, position := range t.task.Positions() {
		if position != t.start[topic] || t.chosen[topic] {
			return true
		}
	}
	return false
}

// uncommittedBytes is the memory of the task's overlays.
func (t *activeTask) uncommittedBytes() (n int) {
	for _, s := range t.stores {
		n += s.store.UncommittedBytes()
	}
	return n
}

// commitStores applies the overlays; only a committed transaction allows it.
func (t *activeTask) commitStores() error {
	for _, s := range t.stores {
		if err := s.commit(); err != nil {
			return fmt.Errorf("task %s: %w", t.id, err)
		}
	}
	return nil
}

// committed notes that the positions are committed.
func (t *activeTask) committed() {
	for topic, position := range t.task.Positions() {
		t.start[topic] = position
	}
	clear(t.chosen)
}

// isRepartition says whether the topic is one that the application writes itself.
func (t *activeTask) isRepartition(topic string) bool {
	return slices.ContainsFunc(t.sub.Sources, func(s task.Source) bool { return s.Repartition && s.Topic == topic })
}

// rollback drops what is not committed and sends the task back to read its
// offsets. Stale says that the stores must be compared with the changelog too.
func (t *activeTask) rollback(stale bool) {
	for _, s := range t.stores {
		s.store.Rollback()
	}
	if t.task != nil {
		t.task.Reset()
	}
	t.stale = t.stale || stale
	if t.stage > stageOffsets {
		t.cancelRestore()
		t.stage = stageOffsets
	}
}

// topicPartitions lists the source partitions as kgo wants them.
func (t *activeTask) topicPartitions() map[string][]int32 {
	out := make(map[string][]int32, len(t.partitions))
	for _, tp := range t.partitions {
		out[tp.Topic] = []int32{tp.Partition}
	}
	return out
}

// close drops what is not committed and closes the stores; their contents stay.
func (t *activeTask) close() error {
	t.cancelRestore()
	var errs []error
	for _, s := range t.stores {
		if err := s.store.Close(); err != nil {
			errs = append(errs, fmt.Errorf("task %s: close store %s: %w", t.id, s.spec.Name, err))
		}
	}
	t.stores = nil
	return errors.Join(errs...)
}

func (t *activeTask) cancelRestore() {
	if t.restore != nil {
		t.restore.cancel()
		<-t.restore.done
		t.restore = nil
		t.stale = true
	}
}

// noteCaughtUp notes in the stores that they have missed nothing until now, which
// the last commit of a quiet task may be too long ago to tell. Only a member knows
// that nobody else has written their changelogs.
func (w *worker) noteCaughtUp(ctx context.Context) error {
	stores := false
	for _, t := range w.tasks {
		stores = stores || t.stage == stageRunning && len(t.stores) > 0
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if !stores || !w.stillMember(ctx) {
		return nil
	}
	for _, t := range w.tasks {
		if t.stage != stageRunning {
			continue
		}
		for _, s := range t.stores {
			if err := s.store.CaughtUp(); err != nil {
				return fmt.Errorf("task %s: store %s: %w", t.id, s.spec.Name, err)
			}
		}
	}
	return nil
}

// Partition time travels in the metadata of a committed offset, as in Kafka
// Streams (TopicPartitionMetadata, version 1): base64 of a version byte and
// eight bytes of time in ms.
const partitionTimeVersion = 1

func encodePartitionTime(timeMs int64) string {
	var raw [9]byte
	raw[0] = partitionTimeVersion
	binary.BigEndian.PutUint64(raw[1:], uint64(timeMs))
	return base64.StdEncoding.EncodeToString(raw[:])
}

// decodePartitionTime returns -1 for metadata that holds no time: it is only a
// help for stream time, and other tools write metadata as they like.
func decodePartitionTime(metadata string) int64 {
	raw, err := base64.StdEncoding.DecodeString(metadata)
	if err != nil || len(raw) < 9 || raw[0] < 1 || raw[0] > 2 {
		return -1
	}
	return max(-1, int64(binary.BigEndian.Uint64(raw[1:9])))
}
