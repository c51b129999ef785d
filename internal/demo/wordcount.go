package demo

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/streams"
	"github.com/hanbeon/hanbeon/verify"
)

// countsStore is the name of the store of the word counts; the repartition and
// the changelog topic are named after it.
const countsStore = "counts"

// wordCount is the application: lines are split into words, each word goes to
// the task that owns it, and is counted there.
type wordCount struct {
	app    *streams.App
	lines  atomic.Int64
	words  atomic.Int64
	fenced fencedWatch
}

func newWordCounter(cfg WorkerConfig, logTo io.Writer) (wordCounter, error) {
	guarantee, err := streams.ParseGuarantee(string(cfg.Guarantee))
	if err != nil {
		return nil, err
	}
	w := &wordCount{}
	topology, err := w.topology(cfg.Topics)
	if err != nil {
		return nil, err
	}
	w.app, err = streams.New(topology, streams.Config{
		ApplicationID:      cfg.Application,
		Brokers:            []string{cfg.Brokers},
		Guarantee:          guarantee,
		StateDir:           cfg.StateDir,
		InstanceID:         cfg.InstanceID,
		CommitInterval:     time.Duration(cfg.CommitIntervalMs) * time.Millisecond,
		SessionTimeout:     time.Duration(cfg.SessionTimeoutMs) * time.Millisecond,
		TransactionTimeout: time.Duration(cfg.TransactionTimeoutMs) * time.Millisecond,
		ReplicationFactor:  1,
		ClientOptions: []kgo.Opt{
			// A static member (KIP-345): a worker that comes back after a kill takes
			// its place again at once, and nobody waits for its session to end.
			kgo.InstanceID(cfg.memberID()),
		},
		Logger: slog.New(slog.NewTextHandler(logTo, nil)),
	})
	return w, err
}

func (w *wordCount) topology(topics Topics) (*streams.Topology, error) {
	b := streams.NewBuilder()
	lines := streams.Stream[string, string](b, topics.Lines)
	words := streams.FlatMapValues(lines, func(line string) []string {
		w.lines.Add(1)
		return slices.Collect(verify.Words(line))
	})
	byWord := streams.GroupBy(words, func(_, word string) string {
		return word
	})
	counts := streams.Count(byWord, countsStore).ToStream()
	counts.Peek(func(string, int64) { w.words.Add(1) }).To(topics.Counts)
	return b.Build()
}

// Run runs the application until ctx is done.
func (w *wordCount) Run(ctx context.Context) error { return w.app.Run(ctx) }

// Stats returns the numbers so far.
func (w *wordCount) Stats() WorkerStats {
	s := w.app.Stats()
	stats := WorkerStats{
		Lines: w.lines.Load(), Words: w.words.Load(),
		Commits: s.Commits, Rebalances: s.Rebalances, Retries: s.Unknown, Tasks: s.Tasks,
	}
	for _, n := range s.Aborts {
		stats.Aborts += n
	}
	stats.Fenced, stats.FencedBecause = w.fenced.look(s)
	return stats
}

// fencedWatch turns the application's counters into the last reason for which
// the broker refused us.
type fencedWatch struct {
	mu      sync.Mutex
	seen    map[string]int64
	because string
}

// look counts the refusals: a lost membership, a replaced producer, and the
// aborts that the broker forced on us.
func (f *fencedWatch) look(s streams.Stats) (total int64, because string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[string]int64{
		"its place in the group has been given away": s.Lost,
		"its producer has been replaced":             s.Fenced,
	}
	for _, reason := range slices.Sorted(maps.Keys(now)) {
		n := now[reason]
		total += n
		if n > f.seen[reason] {
			f.because = reason
		}
	}
	f.seen = now
	return total, f.because
}
