package task

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime/debug"
)

// Task is one running task. It is made by New and belongs to one goroutine.
type Task struct {
	id     ID
	sub    *Subtopology
	queues []*queue // by source
	stores []*loggedStore
	ctx    Context
}

// Assembly is what a Subtopology's Build wires a task with.
type Assembly struct {
	task    *Task
	stores  map[string]*loggedStore
	outputs []*Output
}

// Source sets the handler of the source with this index in Subtopology.Sources.
func (a *Assembly) Source(i int, h Handler) { a.task.queues[i].handler = h }

// Store gives a store of the task, with its changelog attached; nil for a name
// that is not in Subtopology.Stores.
func (a *Assembly) Store(name string) KeyValueStore {
	if s, ok := a.stores[name]; ok {
		return s
	}
	return nil
}

// Output gives the output for the sink with this index in Subtopology.Sinks.
func (a *Assembly) Output(i int) *Output { return a.outputs[i] }

// New wires a task. The sub-topology should come from Topology.ForApplication.
func New(sub *Subtopology, partition int32, deps Deps) (*Task, error) {
	t := &Task{id: ID{Subtopology: sub.ID, Partition: partition}, sub: sub}
	t.ctx.Partition = partition
	t.ctx.StreamTimeMs = unknown
	for _, src := range sub.Sources {
		t.queues = append(t.queues, newQueue(src.Topic))
	}
	a := &Assembly{task: t, stores: map[string]*loggedStore{}}
	for _, spec := range sub.Stores {
		kv := deps.Stores[spec.Name]
		if kv == nil {
			return nil, fmt.Errorf("task %s: store %q was not opened", t.id, spec.Name)
		}
		s := &loggedStore{
			KeyValueStore: kv, name: spec.Name, topic: spec.ChangelogTopic,
			partition: partition, collector: deps.Collector, ctx: &t.ctx,
		}
		if tracker, ok := kv.(ChangeTracker); ok && s.topic != "" {
			tracker.TrackChanges()
			s.tracker = tracker
		}
		a.stores[spec.Name] = s
		t.stores = append(t.stores, s)
	}
	for _, sink := range sub.Sinks {
		a.outputs = append(a.outputs, &Output{name: sink.Name, topic: sink.Topic, collector: deps.Collector})
	}
	if err := sub.Build(a); err != nil {
		return nil, fmt.Errorf("task %s: %w", t.id, err)
	}
	for _, q := range t.queues {
		if q.handler == nil {
			return nil, fmt.Errorf("task %s: source topic %s has no handler", t.id, q.topic)
		}
	}
	return t, nil
}

// ID is the task's id.
func (t *Task) ID() ID { return t.id }

// Subtopology is what the task was made from.
func (t *Task) Subtopology() *Subtopology { return t.sub }

// Enqueue buffers records of a source topic, in order of offset. The task owns the
// slice and the bytes in it from now on.
func (t *Task) Enqueue(topic string, records []Record) error {
	q := t.queue(topic)
	if q == nil {
		return fmt.Errorf("task %s: topic %s is not one of its sources", t.id, topic)
	}
	q.push(records)
	return nil
}

// Process runs up to max buffered records, the smallest timestamp first (the
// earlier source where equal), in order of offset within a partition. It returns
// how many were done; fewer than max without an error means that no more are
// buffered. On failure it returns a *RecordError, and the record stays at the head;
// any other error is a changelog record that could not be sent.
func (t *Task) Process(max int) (n int, err error) {
	var current *queue
	defer func() {
		if p := recover(); p != nil && current == nil {
			err = fmt.Errorf("task %s: panic: %v\n%s", t.id, p, debug.Stack())
		} else if p != nil {
			err = t.failed(current, &StageError{Stage: StageProcess, Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())})
		}
	}()
	for n < max {
		current = t.next()
		if current == nil {
			break
		}
		if err := t.processHead(current); err != nil {
			return n, t.failed(current, err)
		}
		current.pop()
		n++
	}
	current = nil
	return n, t.flushLarge()
}

var errNegativeTimestamp = errors.New("the record has no timestamp; write it with a client of message format 1 or later (Kafka 0.10)")

func (t *Task) processHead(q *queue) error {
	rec := q.head()
	if rec.TimestampMs < 0 {
		return &StageError{Stage: StageDecode, Err: errNegativeTimestamp}
	}
	q.timeMs = max(q.timeMs, rec.TimestampMs)
	ctx := &t.ctx
	ctx.StreamTimeMs = max(ctx.StreamTimeMs, rec.TimestampMs)
	ctx.TimestampMs = rec.TimestampMs
	ctx.Headers = rec.Headers
	ctx.Topic = q.topic
	ctx.Offset = rec.Offset
	ctx.NullKey = rec.Key == nil
	ctx.NullValue = rec.Value == nil
	return q.handler(rec, ctx)
}

// next is the queue whose head is to be processed, nil when all are empty.
func (t *Task) next() *queue {
	var best *queue
	smallestMs := int64(math.MaxInt64)
	for _, q := range t.queues {
		if q.count > 0 && (best == nil || q.headTimestampMs < smallestMs) {
			best, smallestMs = q, q.headTimestampMs
		}
	}
	return best
}

func (t *Task) failed(q *queue, err error) error {
	re := &RecordError{Task: t.id, Topic: q.topic, Offset: q.head().Offset, Stage: StageProcess, Err: err}
	var stage *StageError
	if errors.As(err, &stage) {
		re.Stage, re.Node, re.Err = stage.Stage, stage.Node, stage.Err
	}
	return re
}

// Head gives the next record that Process would take, for a dead-letter topic.
func (t *Task) Head() (topic string, rec *Record, ok bool) {
	q := t.next()
	if q == nil {
		return "", nil, false
	}
	return q.topic, q.head(), true
}

// Skip drops the record that Process would take next, after it failed. Effects that
// it had before the failure stay, as in Kafka Streams.
func (t *Task) Skip() {
	if q := t.next(); q != nil {
		q.pop()
	}
}

// Flush sends what is held back until a commit: the changes of the stores. The
// runtime calls it before it flushes the producer and commits, with no record
// processed between Flush and the stores' Seal or Commit.
func (t *Task) Flush() error {
	for _, s := range t.stores {
		if err := s.flush(); err != nil {
			return fmt.Errorf("task %s: flush: %w", t.id, err)
		}
	}
	return nil
}

// flushLarge sends the changes of a store early when they are many, so that they do
// not all travel at the commit, and count towards the uncommitted bytes.
func (t *Task) flushLarge() error {
	const changedBytesMax = 1 << 20
	for _, s := range t.stores {
		if s.tracker != nil && s.tracker.ChangedBytes() > changedBytesMax {
			if err := s.flush(); err != nil {
				return fmt.Errorf("task %s: flush: %w", t.id, err)
			}
		}
	}
	return nil
}

// Buffered counts the records waiting from a topic.
func (t *Task) Buffered(topic string) int {
	if q := t.queue(topic); q != nil {
		return q.count
	}
	return 0
}

// BufferedBytes is about the memory that waiting records hold.
func (t *Task) BufferedBytes() int {
	n := 0
	for _, q := range t.queues {
		n += q.bytes
	}
	return n
}

// Positions yields, in the order of the sources, the offset to commit for each
// topic with a known one: the head of the queue, else the larger of the last
// processed offset + 1 and the consumer's position.
func (t *Task) Positions() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for _, q := range t.queues {
			if position := q.position(); position != unknown && !yield(q.topic, position) {
				return
			}
		}
	}
}

// SetPosition tells the consumer's next position, which has passed the control
// records and aborted batches that never reach the task. It never goes back.
func (t *Task) SetPosition(topic string, nextOffset int64) {
	if q := t.queue(topic); q != nil {
		q.consumed = max(q.consumed, nextOffset)
	}
}

// Reset drops all buffered records, positions and times, for a replay from the
// committed offsets after an abort. Stores are rolled back by their owner.
func (t *Task) Reset() {
	for _, q := range t.queues {
		q.clear()
	}
	t.ctx.StreamTimeMs = unknown
}

// StreamTimeMs is the largest timestamp seen, -1 before the first. It never goes
// back, except by Reset.
func (t *Task) StreamTimeMs() int64 { return t.ctx.StreamTimeMs }

// PartitionTimeMs is the largest timestamp processed from a topic, -1 for none. It
// is committed in the offset's metadata, so that stream time survives a restart.
func (t *Task) PartitionTimeMs(topic string) int64 {
	if q := t.queue(topic); q != nil {
		return q.timeMs
	}
	return unknown
}

// SetPartitionTimeMs restores a committed partition time, and with it stream time.
func (t *Task) SetPartitionTimeMs(topic string, timeMs int64) {
	if q := t.queue(topic); q != nil {
		q.timeMs = max(q.timeMs, timeMs)
		t.ctx.StreamTimeMs = max(t.ctx.StreamTimeMs, timeMs)
	}
}

func (t *Task) queue(topic string) *queue {
	for _, q := range t.queues {
		if q.topic == topic {
			return q
		}
	}
	return nil
}
