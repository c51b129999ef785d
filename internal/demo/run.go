// Package demo is the main job of the hanbeon command: it counts the words of a
// real text in several worker processes while they, and the broker, are being
// killed, and then proves from what is left in the topics, the stores and the
// committed offsets that every word was counted exactly once.
//
// Processes: this one (feeds the text, carries out the faults, proves the
// result), one broker (unless a running cluster is named), and the workers. All
// are the same executable, and all are ended when this one ends, however it ends.
package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hanbeon/hanbeon/verify"
)

// drainStall is how long the drain may make no progress before it is given up.
const drainStall = 60 * time.Second

// run is one run of the demo.
type run struct {
	options     Options
	text        text
	dir         string
	application string
	topics      Topics
	console     *console
	random      *rand.Rand

	family  *family
	broker  *brokerProcess // nil with a cluster that is not ours
	brokers string
	cluster *cluster
	workers *workers
	monitor *monitor
	faults  *faults
	failed  chan error // a process that ended by itself, or nobody to print for
}

// Run runs the demo and writes its progress to progress and its result to out.
// The error says why the run could not be brought to its end; whether the
// guarantee was kept is in the result.
func Run(ctx context.Context, options Options, out, progress io.Writer) (Result, error) {
	options, err := options.withDefaults()
	if err != nil {
		return Result{}, err
	}
	t, err := loadText(options.Input)
	if err != nil {
		return Result{}, err
	}
	r := &run{
		options: options,
		text:    t,
		random:  rand.New(rand.NewPCG(uint64(options.Seed), 0)),
		failed:  make(chan error, 1),
	}
	fail := func(err error) {
		select {
		case r.failed <- err:
		default: // the first one is enough
		}
	}
	r.console = newConsole(progress, fail)
	r.family = newFamily(fail)
	r.application = "hanbeon-demo-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	r.topics = topicsOf(r.application)
	remove, err := r.makeDir()
	if err != nil {
		return Result{}, err
	}
	defer remove()
	defer r.family.close()
	defer r.console.endStatus()

	result, err := r.count(ctx)
	r.console.endStatus()
	if err != nil {
		return Result{}, err
	}
	if options.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return result, encoder.Encode(result)
	}
	buffered := bufio.NewWriter(out)
	result.print(buffered)
	if err := buffered.Flush(); err != nil {
		return Result{}, fmt.Errorf("printing the result: %w", err)
	}
	return result, nil
}

// makeDir makes the run's directory and returns what removes it again.
func (r *run) makeDir() (remove func(), err error) {
	if r.dir = r.options.KeepDir; r.dir != "" {
		if err := os.MkdirAll(r.dir, 0o755); err != nil {
			return nil, fmt.Errorf("making --keep: %w", err)
		}
		remove = func() { r.console.event("the state and the logs of this run are kept in %s", r.dir) }
	} else {
		if r.dir, err = os.MkdirTemp("", "hanbeon-demo-"); err != nil {
			return nil, fmt.Errorf("making a directory for the run: %w", err)
		}
		remove = func() { os.RemoveAll(r.dir) }
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return nil, err
	}
	return remove, os.MkdirAll(r.logDir(), 0o755)
}

func (r *run) logDir() string { return filepath.Join(r.dir, "logs") }

// count does the whole job: start, feed under faults, drain, prove.
func (r *run) count(ctx context.Context) (Result, error) {
	if err := r.startBroker(ctx); err != nil {
		return Result{}, err
	}
	var err error
	if r.cluster, err = connect(r.brokers); err != nil {
		return Result{}, err
	}
	defer r.cluster.close()
	if err := r.cluster.waitReady(ctx, 10*time.Second); err != nil {
		return Result{}, err
	}
	if err := r.cluster.createTopics(ctx, r.topics, r.options.Partitions); err != nil {
		return Result{}, err
	}
	if r.broker == nil && r.options.KeepDir == "" {
		defer r.deleteRun(ctx)
	}
	if err := r.startWorkers(); err != nil {
		return Result{}, err
	}
	r.console.event("counting the words of %s, %s, under %s, seed %d",
		r.text.Source, counted(int64(len(r.text.Lines)), "line"), r.options.Guarantee, r.options.Seed)

	r.awaitWorkers(ctx)
	fed, err := r.feedAndDrain(ctx)
	if err != nil {
		return Result{}, err
	}
	evidence := r.faults.soFar()
	if err := r.workers.stop(); err != nil {
		return Result{}, fmt.Errorf("ending the workers in order: %w", err)
	}
	result, err := r.prove(ctx, fed.lines)
	if err != nil {
		return Result{}, err
	}
	result.Evidence.WorkerKills, result.Evidence.BrokerKills = evidence.WorkerKills, evidence.BrokerKills
	result.Evidence.Zombies, result.Evidence.ZombiesFenced = evidence.Zombies, evidence.ZombiesFenced
	result.Evidence.Retries += fed.retries
	result.FeedMs, result.DrainMs = fed.feedTook.Milliseconds(), fed.drainTook.Milliseconds()
	result.Outcome, result.Broken = result.Report.Outcome(), result.Report.Broken()
	if r.broker != nil {
		if err := r.broker.stop(); err != nil {
			return result, fmt.Errorf("ending the broker in order: %w", err)
		}
	}
	return result, nil
}

func (r *run) startBroker(ctx context.Context) error {
	if r.options.Brokers != "" {
		r.brokers = r.options.Brokers
		return nil
	}
	r.broker = &brokerProcess{
		family: r.family, executable: r.options.Executable,
		dir: filepath.Join(r.dir, "broker"), logPath: filepath.Join(r.logDir(), "broker.log"),
	}
	start := time.Now()
	if err := r.broker.start(ctx); err != nil {
		return err
	}
	r.brokers = r.broker.address
	r.console.event("the broker (process %d) listens on %s after %v", r.broker.child.pid(), r.brokers, time.Since(start).Round(time.Millisecond))
	return nil
}

func (r *run) startWorkers() error {
	configs := make([]WorkerConfig, r.options.Workers)
	for i := range configs {
		instance := "worker-" + strconv.Itoa(i+1)
		configs[i] = WorkerConfig{
			Brokers: r.brokers, Application: r.application, Guarantee: r.options.Guarantee,
			StateDir: filepath.Join(r.dir, instance), InstanceID: instance, Topics: r.topics,
			CommitIntervalMs:     commitInterval(r.options.Guarantee).Milliseconds(),
			SessionTimeoutMs:     sessionTimeout.Milliseconds(),
			TransactionTimeoutMs: transactionTimeout.Milliseconds(),
		}
	}
	r.workers = newWorkers(r.family, r.options.Executable, r.logDir(), configs)
	for _, w := range r.workers.all {
		if err := r.workers.start(w); err != nil {
			return err
		}
	}
	return nil
}

// awaitWorkers waits until every worker has its tasks, so that the first faults
// hit workers at work. With more workers than tasks some never get one.
func (r *run) awaitWorkers(ctx context.Context) {
	const most = 15 * time.Second
	tasks := 2 * r.options.Partitions // of the two halves of the topology
	deadline := time.Now().Add(most)
	for r.options.Workers <= tasks && !r.workers.allBusy() && len(r.failed) == 0 && time.Now().Before(deadline) {
		if !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// fed is what the feeding came to.
type fed struct {
	lines     []string
	retries   int64
	feedTook  time.Duration
	drainTook time.Duration
}

// feedAndDrain feeds the text while the faults happen and waits until the
// workers have committed all of it.
func (r *run) feedAndDrain(ctx context.Context) (fed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.monitor = &monitor{
		cluster: r.cluster, application: r.application, topics: r.topics,
		commitInterval: commitInterval(r.options.Guarantee),
	}
	r.faults = &faults{
		plan:   planFaults(r.random, r.options.Duration, r.broker != nil),
		random: r.random, workers: r.workers, broker: r.broker, cluster: r.cluster, say: r.console.event,
	}
	faultsDone := make(chan struct{})
	feed := &feeder{
		text: r.text, topic: r.topics.Lines, partitions: r.options.Partitions, duration: r.options.Duration,
		progress: r.monitor, faultsDone: faultsDone,
	}
	background := newBackground(ctx, cancel)
	defer background.end()
	background.start(func(ctx context.Context) error { r.monitor.run(ctx); return nil })
	background.start(func(ctx context.Context) error { r.showStatus(ctx, feed); return nil })
	background.start(func(ctx context.Context) error {
		select {
		case err := <-r.failed:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	background.start(func(ctx context.Context) error {
		defer close(faultsDone)
		return r.faults.run(ctx)
	})

	start := time.Now()
	sent, err := feed.run(ctx, r.brokers)
	if err != nil {
		return fed{}, err
	}
	result := fed{lines: r.text.Lines[:sent], retries: feed.retries.Load(), feedTook: time.Since(start)}
	share := ""
	if sent < len(r.text.Lines) {
		share = fmt.Sprintf(", %d %% of the text", sent*100/len(r.text.Lines))
	}
	r.console.event("all fed: %s%s; waiting for the workers to commit the rest", counted(int64(sent), "line"), share)
	start = time.Now()
	err = r.drain(ctx, sent)
	result.drainTook = time.Since(start)
	return result, err
}

// drain waits until every fed line, and every word that was made of it, is
// committed as read.
func (r *run) drain(ctx context.Context, sent int) error {
	reader := &reader{cluster: r.cluster, brokers: r.brokers}
	progressAt, before := time.Now(), int64(-1)
	for {
		lines, words, _ := r.monitor.snapshot()
		if lines.committed == int64(sent) && r.allRead(ctx, reader, words) {
			return nil
		}
		if now := lines.committed + words.committed; now != before {
			progressAt, before = time.Now(), now
		}
		if time.Since(progressAt) > drainStall {
			return fmt.Errorf("the workers have made no progress for %v: %s of %s lines are committed, and the words are %s offsets behind; their logs: %s",
				drainStall, number(lines.committed), number(int64(sent)), number(words.behind), r.logDir())
		}
		if !pause(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// allRead reports whether nothing but transaction markers is left to be read of
// the repartition topics. It reads only where so little is left that it could be
// that.
func (r *run) allRead(ctx context.Context, reader *reader, words lag) bool {
	const markersMax = 64 // per partition: aborted or empty transactions at the end
	if len(words.partition) == 0 {
		return false
	}
	for _, p := range words.partition {
		if p.end-max(0, p.committed) > markersMax {
			return false
		}
	}
	unread, err := reader.unread(ctx, words.partition)
	if err != nil {
		return false
	}
	for _, n := range unread {
		if n > 0 {
			return false
		}
	}
	return true
}

// prove reads everything back.
func (r *run) prove(ctx context.Context, lines []string) (Result, error) {
	r.console.event("the workers have ended; reading everything back")
	start := time.Now()
	result := Result{
		Source: r.text.Source, TextLines: len(r.text.Lines), Fed: len(lines), Seed: r.options.Seed,
		Brokers: r.brokers, Workers: r.options.Workers, Partitions: r.options.Partitions, Stats: r.workers.total(),
	}
	stores, err := readStores(r.workers.all)
	if err != nil {
		return result, err
	}
	reader := &reader{cluster: r.cluster, brokers: r.brokers}
	result.Report, err = prove(ctx, reader, r.application, r.topics, lines, stores)
	if err != nil {
		return result, fmt.Errorf("proving the result: %w", err)
	}
	result.Guarantee = r.options.Guarantee
	result.Evidence = verify.Evidence{
		Fenced: result.Stats.Fenced, Aborts: result.Stats.Aborts, Retries: result.Stats.Retries,
		Rebalances: result.Stats.Rebalances, AbortedSeen: result.Isolation.Aborted,
	}
	result.Lost, result.Twice = result.Report.Lost(), result.Report.Twice()
	result.ProofMs = time.Since(start).Milliseconds()
	return result, nil
}

// deleteRun leaves no topics and no group on a cluster that is not ours.
func (r *run) deleteRun(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	r.family.close() // the group can only be deleted when it is empty
	if err := r.cluster.deleteRun(ctx, r.application); err != nil && !errors.Is(err, context.Canceled) {
		r.console.event("the topics of this run are left on %s: %v", r.brokers, err)
	}
}

// showStatus keeps the status line up to date.
func (r *run) showStatus(ctx context.Context, feed *feeder) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	var before WorkerStats
	var beforeAt time.Time
	var wordsPerSecond float64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		stats, now := r.workers.total(), time.Now()
		if !beforeAt.IsZero() {
			recent := float64(stats.Words-before.Words) / now.Sub(beforeAt).Seconds()
			wordsPerSecond += (recent - wordsPerSecond) / 3
		}
		before, beforeAt = stats, now
		lines, _, linesPerSecond := r.monitor.snapshot()
		e := r.faults.soFar()
		r.console.setStatus(fmt.Sprintf("%s/%s lines (%s/s) %s words/s · kills %d fenced %d/%d · commits %s aborts %s rebalances %s",
			number(lines.committed), number(feed.sent.Load()), number(int64(linesPerSecond)), number(int64(wordsPerSecond)),
			e.WorkerKills+e.BrokerKills, e.ZombiesFenced, e.Zombies,
			number(stats.Commits), number(stats.Aborts), number(stats.Rebalances)))
	}
}
