package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kgo"
)

// worker is one member of the group with a producer of its own, the thread of
// Kafka Streams.
//
// Its goroutine polls; from the return of a poll until AllowRebalance it owns
// the tasks. The callbacks of a rebalance run in kgo's goroutine, only while the
// worker is inside a poll (BlockRebalanceOnPoll), and own the tasks then. So
// nothing here needs a lock, and no assignment changes under a record that is
// being processed.
type worker struct {
	app    *App
	opts   *Options
	log    *slog.Logger
	number int
	stats  counters
	joined atomic.Bool
	ready  chan struct{} // closed when the clients are made
	// life is the context of what the callbacks of a rebalance do. It ends some
	// time after run was told to end: a poll, and so the shutdown, waits for
	// them.
	life context.Context

	consumer, data, control *kgo.Client
	prod                    *producer.Producer
	out                     *collector

	tasks []*activeTask // sorted by id
	bytes int           // buffered in tasks, from the last count

	seekedAt, nudgedAt time.Time

	// How the next poll waits; see planPoll.
	full  bool
	wait  time.Duration
	wake  atomic.Pointer[context.CancelFunc]
	woken atomic.Bool

	member     string // the membership that the tasks were assigned under
	generation int32
	// lostMember is a membership that the coordinator refused: tasks wait
	// until kgo has noticed too, at the latest at lostUntil.
	lostMember string
	lostUntil  time.Time
	lastCommit time.Time
	// needProducer says that the producer must be initialised anew first.
	needProducer bool
	fencing      fencing
	backoff      time.Duration
	fatal        error
	slice        int // records of one task that are processed in one go
	// joining says that the group session has ended and the next has not begun.
	joining   bool
	joinSince time.Time
	closing   bool

	restoreMu sync.Mutex // guards restoring, which Stats reads
	restoring []*restoreProgress
	slots     chan struct{} // bounds concurrent restores
	purge     *purger
}

// restoresAtOnce bounds the changelogs that one worker restores side by side.
const restoresAtOnce = 4

func newWorker(a *App, number int) *worker {
	return &worker{
		app: a, opts: &a.opts, number: number,
		log:   a.log.With("worker", number),
		slots: make(chan struct{}, restoresAtOnce),
		ready: make(chan struct{}),
		slice: 16,
	}
}

// transactionalID is `<application>-<instance>-<worker>`: a restart takes the
// same ids and so fences what the last run left open.
func (w *worker) transactionalID() string {
	return w.opts.ApplicationID + "-" + w.app.dir.instance + "-" + strconv.Itoa(w.number)
}

// run works until ctx ends or an error stops the worker.
func (w *worker) run(ctx context.Context) (err error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	w.life = life
	unwatch := context.AfterFunc(ctx, func() {
		time.AfterFunc(shutdownTimeout, end)
	})
	defer func() {
		unwatch()
		end()
		w.closeTasks()
		w.closeClients()
	}()
	if err := w.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("worker %d: %w", w.number, err)
	}
	for ctx.Err() == nil {
		fetches, owned := w.poll(ctx)
		if !owned {
			continue
		}
		err := w.fatal
		if err == nil {
			err = w.step(ctx, fetches)
		}
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("worker %d: %w", w.number, err)
			w.leave(ctx, false)
			return err
		}
		if ctx.Err() != nil {
			break // the shutdown below owns the tasks
		}
		w.planPoll()
		w.consumer.AllowRebalance()
	}
	return w.shutdown(ctx)
}

// shutdown commits what is done and leaves the group.
func (w *worker) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	w.consumer.PollFetches(cancelled) // own the tasks
	err := w.fatal
	if err == nil {
		err = w.commit(ctx)
	}
	if err == nil {
		err = w.noteCaughtUp(ctx)
	}
	w.leave(ctx, err == nil)
	if err != nil {
		return fmt.Errorf("worker %d: shut down: %w", w.number, err)
	}
	return nil
}

// shutdownTimeout bounds the last commit and the leave request.
const shutdownTimeout = 10 * time.Second

// leave gives up the tasks and the membership; the caller owns the tasks.
func (w *worker) leave(ctx context.Context, clean bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if !clean && w.opts.ExactlyOnce && w.out.open {
		w.stats.abort(causeShutdown)
		if err := w.prod.Abort(ctx); err != nil {
			w.log.Warn("abort at shutdown failed; the coordinator will time the transaction out", "err", err)
		}
	}
	w.closing = true
	w.closeTasks()
	w.consumer.AllowRebalance()
	if err := w.leaveGroup(ctx); err != nil {
		w.log.Warn("leaving the group failed; the session will time out", "err", err)
	}
}

func (w *worker) closeTasks() {
	for _, t := range w.tasks {
		if err := t.close(); err != nil {
			w.log.Error("closing a task failed", "task", t.id, "err", err)
		}
	}
	w.tasks = nil
	w.countTasks()
}

// open makes the clients and the producer, then joins the group. The producer
// is initialised before the consumer reads its first offset: initialisation
// ends the transaction that a predecessor may have left open.
func (w *worker) open(ctx context.Context) (err error) {
	name := "worker-" + strconv.Itoa(w.number)
	if w.data, err = kgo.NewClient(w.opts.clientOpts(name + "-data")...); err != nil {
		return fmt.Errorf("make the data client: %w", err)
	}
	if w.control, err = kgo.NewClient(w.opts.clientOpts(name + "-control")...); err != nil {
		return fmt.Errorf("make the control client: %w", err)
	}
	if err := w.openProducer(ctx); err != nil {
		return err
	}
	w.purge = newPurger(w)
	if w.consumer, err = kgo.NewClient(w.consumerOpts(name)...); err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	w.lastCommit = time.Now()
	w.wait = idleWaitMax
	close(w.ready)
	return nil
}

func (w *worker) openProducer(ctx context.Context) error {
	if w.prod != nil {
		w.prod.Close()
		w.prod = nil
	}
	cfg := producer.Config{
		Data: w.data, Control: w.control,
		TransactionTimeout: w.opts.TransactionTimeout,
		EndTxnTimeout:      w.opts.TransactionTimeout,
		Linger:             producerLinger,
		BatchMaxBytes:      producerBatchBytes,
		MaxBufferedBytes:   max(w.opts.MaxUncommittedBytes, producerBufferMin),
		Logger:             w.log,
	}
	if w.opts.ExactlyOnce {
		cfg.TransactionalID = w.transactionalID()
	}
	prod, err := producer.New(cfg)
	if err != nil {
		return fmt.Errorf("make the producer: %w", err)
	}
	if err := retry(ctx, func() error { return prod.Init(ctx) }); err != nil {
		prod.Close()
		return fmt.Errorf("initialise the producer %q: %w%s", cfg.TransactionalID, err, remedy(err))
	}
	out, err := newCollector(prod, w.opts.ExactlyOnce, w.outputs())
	if err != nil {
		prod.Close()
		return err
	}
	w.prod, w.out = prod, out
	w.bindChangelogs()
	return nil
}

// What the producer collects into one batch.
const (
	producerLinger     = 20 * time.Millisecond
	producerBatchBytes = 256 << 10
	// producerBufferMin holds a few batches and two records of the largest size
	// that a topic takes by default (1 MiB).
	producerBufferMin = 4 << 20
)

// outputs are the topics that the worker may write to, with their counts.
func (w *worker) outputs() map[string]int32 {
	topics := make(map[string]int32)
	add := func(topic string) {
		if topic != "" {
			topics[topic] = w.app.layout.partitions[topic]
		}
	}
	for _, sub := range w.opts.Topology.Subtopologies {
		for _, s := range sub.Sinks {
			add(s.Topic)
		}
		for _, s := range sub.Stores {
			add(s.ChangelogTopic)
		}
	}
	if w.opts.Poison == PoisonDeadLetter {
		add(w.opts.DeadLetterTopic)
	}
	return topics
}

func (w *worker) consumerOpts(name string) []kgo.Opt {
	opts := append(w.opts.clientOpts(name),
		kgo.ConsumerGroup(w.opts.ApplicationID),
		kgo.ConsumeTopics(w.opts.Topology.SourceTopics()...),
		kgo.Balancers(w.newBalancer()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(w.opts.SessionTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, w.opts.SessionTimeout/3)),
		kgo.RebalanceTimeout(w.opts.RebalanceTimeout),
		// Tasks choose where they start; this is for records that were deleted
		// before they were read.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(), // the position must pass transaction markers
		kgo.FetchMaxBytes(consumerFetchBytes),
		kgo.FetchMaxPartitionBytes(consumerPartitionBytes),
		kgo.OnPartitionsAssigned(w.onAssigned),
		kgo.OnPartitionsRevoked(w.onRevoked),
		kgo.OnPartitionsLost(w.onLost),
	)
	if w.opts.ExactlyOnce {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

// Bounds on what one fetch brings.
const (
	consumerFetchBytes     = 16 << 20
	consumerPartitionBytes = 2 << 20
)

func (w *worker) newBalancer() *balancer {
	b := &balancer{instance: w.app.dir.instance, previous: w.app.dir.tasks}
	for _, sub := range w.opts.Topology.Subtopologies {
		g := sourceGroup{SubTopology: sub.ID}
		for _, s := range sub.Sources {
			g.Topics = append(g.Topics, s.Topic)
		}
		slices.Sort(g.Topics)
		b.groups = append(b.groups, g)
	}
	return b
}

func (w *worker) closeClients() {
	if w.purge != nil {
		w.purge.close()
	}
	if w.prod != nil {
		w.prod.Close()
	}
	for _, cl := range []*kgo.Client{w.consumer, w.data, w.control} {
		if cl != nil {
			cl.Close()
			// Close polls once itself. If that finds something, a leave that is
			// still on its way waits for ever (kgo 1.22).
			cl.AllowRebalance()
		}
	}
}

// cancelled makes a poll return at once, owning the tasks.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// poll takes what the consumer has fetched. While tasks have work it does not
// wait; above the buffers' bound it leaves the records with kgo, which then
// stops fetching. Owned is false when kgo did not hand over the tasks: a
// rebalance emptied the buffers just then.
func (w *worker) poll(ctx context.Context) (fetches kgo.Fetches, owned bool) {
	if w.full {
		w.consumer.PollFetches(cancelled)
		return nil, true
	}
	if w.wait <= 0 {
		//lint:ignore SA1012 to kgo, a nil context means: do not wait
		fetches = w.consumer.PollFetches(nil)
		if len(fetches) == 0 {
			w.consumer.PollFetches(cancelled)
		}
		return fetches, true
	}
	wait, cancel := context.WithTimeout(ctx, w.wait)
	defer cancel()
	w.wake.Store(&cancel)
	if w.woken.Swap(false) {
		cancel()
	}
	fetches = w.consumer.PollFetches(wait)
	if wait.Err() != nil {
		w.nudge()
	}
	return fetches, len(fetches) > 0
}

// nudge makes the consumer look for something to fetch. A fetch loop of kgo 1.22
// that begins while a seek or an assignment replaces the consumer's session may
// end after the next session has told it to go on; then nothing is fetched until
// somebody tells it again.
func (w *worker) nudge() {
	if now := time.Now(); now.Sub(w.nudgedAt) >= nudgeInterval {
		w.nudgedAt = now
		w.consumer.ResumeFetchPartitions(nil)
	}
}

// wakeUp ends a poll that waits for records. Callbacks call it, since new
// tasks are paused and bring none.
func (w *worker) wakeUp() {
	w.woken.Store(true)
	if cancel := w.wake.Load(); cancel != nil {
		(*cancel)()
	}
}

// planPoll decides how the next poll waits. It looks at the tasks, so it runs
// while the worker owns them.
func (w *worker) planPoll() {
	busy := w.buffered() > 0
	w.full = w.bytes >= w.opts.MaxBufferedBytes
	w.wait = 0
	if busy {
		return
	}
	w.wait = idleWaitMax
	if time.Since(w.seekedAt) < seekWatch {
		w.wait = nudgeInterval
	}
	for _, t := range w.tasks {
		if t.stage != stageRunning {
			w.wait = settleWait
			return
		}
	}
	if w.needProducer {
		w.wait = settleWait
	} else if w.out.open || slices.ContainsFunc(w.tasks, (*activeTask).dirty) {
		w.wait = min(w.wait, max(time.Millisecond, time.Until(w.lastCommit.Add(w.opts.CommitInterval))))
	}
}

const (
	idleWaitMax = 5 * time.Second
	// settleWait is the pace at which tasks that are not running are looked at.
	settleWait = 10 * time.Millisecond
	// A poll that brings nothing nudges the consumer, at most each
	// nudgeInterval; for seekWatch after a seek polls are that short.
	nudgeInterval = 100 * time.Millisecond
	seekWatch     = time.Second
)

// buffered counts the tasks that have records waiting.
func (w *worker) buffered() int {
	n := 0
	w.bytes = 0
	for _, t := range w.tasks {
		if t.stage == stageRunning {
			if b := t.task.BufferedBytes(); b > 0 {
				w.bytes += b
				n++
			}
		}
	}
	return n
}

// step does one round: membership, new records, tasks on their way, records,
// commit.
func (w *worker) step(ctx context.Context, fetches kgo.Fetches) error {
	w.checkMembership(ctx)
	if err := w.take(fetches); err != nil {
		return err
	}
	if err := w.advance(ctx); err != nil {
		return w.handle(ctx, err)
	}
	if err := w.process(); err != nil {
		return w.handle(ctx, err)
	}
	if w.commitDue() {
		return w.commit(ctx)
	}
	return nil
}

// take hands fetched records to their tasks.
func (w *worker) take(fetches kgo.Fetches) error {
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			for k := range t.Partitions {
				if err := w.takePartition(t.Topic, &t.Partitions[k]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *worker) takePartition(topic string, p *kgo.FetchPartition) error {
	if p.Err != nil {
		return w.fetchError(topic, p.Partition, p.Err)
	}
	t := w.taskOf(topic, p.Partition)
	if t == nil || t.stage != stageRunning || len(p.Records) == 0 {
		return nil // the task's offsets are set before it runs, so nothing is lost
	}
	records := make([]task.Record, 0, len(p.Records))
	for _, r := range p.Records {
		if r.Attrs.IsControl() {
			continue
		}
		records = append(records, task.Record{
			Offset: r.Offset, TimestampMs: r.Timestamp.UnixMilli(),
			Key: r.Key, Value: r.Value, Headers: convertHeaders(r.Headers),
		})
	}
	if err := t.task.Enqueue(topic, records); err != nil {
		return err
	}
	t.task.SetPosition(topic, p.Records[len(p.Records)-1].Offset+1)
	return nil
}

func convertHeaders(in []kgo.RecordHeader) []task.Header {
	if len(in) == 0 {
		return nil
	}
	out := make([]task.Header, len(in))
	for i, h := range in {
		out[i] = task.Header{Key: h.Key, Value: h.Value}
	}
	return out
}

// fetchError looks at an error that the consumer reports in place of records.
func (w *worker) fetchError(topic string, partition int32, err error) error {
	var group *kgo.ErrGroupSession
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		return nil
	case errors.As(err, &group):
		if decide(err).action == actStop && !transient(err) {
			return fmt.Errorf("group %s: %w%s", w.opts.ApplicationID, err, remedy(err))
		}
		w.log.Warn("the group session ended; rejoining", "err", err)
		return nil
	}
	var lost *kgo.ErrDataLoss
	if errors.As(err, &lost) {
		w.log.Warn("records were lost before they were read", "topic", topic, "partition", partition, "err", err)
		return nil
	}
	if decide(err).action != actStop {
		w.log.Warn("fetch failed; trying again", "topic", topic, "partition", partition, "err", err)
		return nil
	}
	return fmt.Errorf("fetch from %s/%d: %w%s", topic, partition, err, remedy(err))
}

// taskOf finds the task that reads a partition.
func (w *worker) taskOf(topic string, partition int32) *activeTask {
	for _, t := range w.tasks {
		if t.id.Partition != partition {
			continue
		}
		for _, tp := range t.partitions {
			if tp.Topic == topic {
				return t
			}
		}
	}
	return nil
}

// partitionsOf lists the source partitions of a task: those that were there at the
// start, and those that a topic has got since, which are among the added.
func (w *worker) partitionsOf(sub *task.Subtopology, partition int32, added map[string][]int32) []batch.TopicPartition {
	var out []batch.TopicPartition
	for _, s := range sub.Sources {
		if partition < w.app.layout.partitions[s.Topic] || slices.Contains(added[s.Topic], partition) {
			out = append(out, batch.TopicPartition{Topic: s.Topic, Partition: partition})
		}
	}
	return out
}

func (w *worker) restores() []*restoreProgress {
	w.restoreMu.Lock()
	defer w.restoreMu.Unlock()
	return slices.Clone(w.restoring)
}
