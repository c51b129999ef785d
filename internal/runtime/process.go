package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hanbeon/hanbeon/internal/task"
)

// How much one round processes before the worker polls again. The slice of a
// task shrinks with slow processors, so that a rebalance never waits long.
const (
	processSliceMax = 512
	processTimeMax  = 20 * time.Millisecond
)

// process runs buffered records, one slice of each task in turn, until the
// round's time is over, nothing is left, or a commit is due.
func (w *worker) process() error {
	until := time.Now().Add(processTimeMax)
	for {
		worked := false
		for _, t := range w.tasks {
			if t.stage != stageRunning {
				continue
			}
			n, err := w.processTask(t)
			if err != nil {
				// The record may have had some of its effects already: what
				// is open must never be committed.
				return w.out.fail(err)
			}
			worked = worked || n > 0
		}
		if !worked || w.commitDue() || time.Now().After(until) {
			return nil
		}
	}
}

// processTask runs one slice of a task. Poison records that the policy passes
// over count as work.
func (w *worker) processTask(t *activeTask) (int, error) {
	started := time.Now()
	n, err := t.task.Process(w.slice)
	w.stats.records.Add(int64(n))
	switch took := time.Since(started); {
	case took > processTimeMax/2:
		w.slice = max(1, w.slice/2)
	case took < processTimeMax/8:
		w.slice = min(processSliceMax, 2*w.slice)
	}
	if err != nil {
		return n + 1, w.poison(t, err)
	}
	return n, nil
}

// poison applies the policy for a record that is itself at fault.
func (w *worker) poison(t *activeTask, err error) error {
	var rec *task.RecordError
	if !errors.As(err, &rec) || !rec.Poison() || w.out.failed != nil {
		return err
	}
	switch w.opts.Poison {
	case PoisonSkip:
		w.stats.skipped.Add(1)
	case PoisonDeadLetter:
		if err := w.deadLetter(t, rec); err != nil {
			return err
		}
		w.stats.deadLetters.Add(1)
	default:
		return &poisonError{err}
	}
	w.log.Warn("poison record passed over", "err", err)
	t.task.Skip()
	return nil
}

// poisonError stops the worker whatever its cause looks like: a processor may
// return any error, also one that the table would retry.
type poisonError struct{ err error }

func (e *poisonError) Error() string {
	return e.err.Error() + "; to go on without such records set PoisonRecords to skip them or to send them to a dead-letter topic"
}

func (e *poisonError) Unwrap() error { return e.err }

// deadLetter sends the record to the dead-letter topic, in the same transaction
// as everything else, with Kafka Streams' headers.
func (w *worker) deadLetter(t *activeTask, cause *task.RecordError) error {
	topic, rec, ok := t.task.Head()
	if !ok {
		return fmt.Errorf("task %s: no record at the head after %w", t.id, cause)
	}
	headers := append(slices.Clone(rec.Headers),
		task.Header{Key: "__streams.errors.exception", Value: []byte(cause.Stage.String())},
		task.Header{Key: "__streams.errors.message", Value: []byte(cause.Err.Error())},
		task.Header{Key: "__streams.errors.topic", Value: []byte(topic)},
		task.Header{Key: "__streams.errors.partition", Value: strconv.AppendInt(nil, int64(t.id.Partition), 10)},
		task.Header{Key: "__streams.errors.offset", Value: strconv.AppendInt(nil, rec.Offset, 10)},
	)
	return w.out.Send(w.opts.DeadLetterTopic, -1, rec.Key, rec.Value, headers, max(0, rec.TimestampMs))
}

// joinPatience is how long a commit waits for a join under way. The generation
// moves on at the coordinator a moment before we hear of it, and a commit in
// that moment is refused; most joins end within milliseconds.
const joinPatience = time.Second

// commitDue says whether it is time to commit.
func (w *worker) commitDue() bool {
	if w.joining && time.Since(w.joinSince) < joinPatience {
		return false
	}
	if time.Since(w.lastCommit) >= w.opts.CommitInterval {
		return true
	}
	return w.out.sentBytes >= w.opts.MaxUncommittedBytes || w.overlayBytes() >= w.opts.MaxUncommittedBytes
}

// overlayBytes is the memory of all overlays. They may grow while nothing is
// sent: the changes of a store without a changelog go nowhere.
func (w *worker) overlayBytes() (n int) {
	for _, t := range w.tasks {
		if t.stage == stageRunning {
			n += t.uncommittedBytes()
		}
	}
	return n
}

// handle acts on an error outside a commit, by the table.
func (w *worker) handle(ctx context.Context, err error) error {
	var poison *poisonError
	if errors.As(err, &poison) || ctx.Err() != nil {
		return err
	}
	row := decide(err)
	if row.action == actStop {
		return fmt.Errorf("%w%s", err, remedy(err))
	}
	return w.replay(ctx, row, err)
}

// replay gives up the transaction and processes again from the committed
// offsets, after what the row's action asks for.
func (w *worker) replay(ctx context.Context, row errorRow, err error) error {
	w.log.Warn("replaying from the committed offsets", "action", row.action, "cause", row.cause, "err", err)
	errAbort := w.abort(ctx, row.cause)
	for _, t := range w.tasks {
		w.rewind(t, !w.opts.ExactlyOnce)
	}
	switch row.action {
	case actRejoin:
		w.lostMember, w.lostUntil = w.member, time.Now().Add(w.opts.SessionTimeout)
	case actRebuild:
		w.needProducer = true
	}
	if !w.opts.ExactlyOnce {
		w.needProducer = true // a new one does not have the old one's failed batches
	}
	w.noteFenced(errors.Join(err, errAbort))
	if w.fatal != nil {
		return w.fatal
	}
	w.countTasks()
	w.backoff = min(max(2*w.backoff, 10*time.Millisecond), time.Second)
	_ = pause(ctx, w.backoff) // a cancelled context ends the loop anyway
	return nil
}

// abort ends the open transaction. What it cannot end, a new producer under
// the same id does; the error is for the record.
func (w *worker) abort(ctx context.Context, cause string) (err error) {
	if !w.out.open {
		w.out.ended()
		return nil
	}
	w.stats.abort(cause)
	if w.opts.ExactlyOnce {
		if err = w.prod.Abort(ctx); err != nil {
			w.log.Warn("abort failed; the producer is initialised anew", "err", err)
			w.needProducer = true
		}
	}
	w.out.ended()
	return err
}

// remedy is what an operator can do about an error, for the end of its text.
func remedy(err error) string {
	if row := decide(err); row.remedy != "" {
		return "; " + row.remedy
	}
	return ""
}
