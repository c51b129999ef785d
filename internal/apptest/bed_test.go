// Package apptest runs whole streams applications against the embedded broker
// in virtual time: the same code as in production, over in-memory connections
// that can be frozen and cut at a chosen message. Hours of timeouts take
// milliseconds.
//
// Every scenario ends with the same check: the sink as a read_committed reader
// sees it, the changelog, the stores on disk and the committed offsets, each
// against an independent count. And it must show that what it is about did
// happen. The negative controls switch one protection off; with them the check
// must find words lost or counted twice.
package apptest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/internal/vfs"
	"github.com/hanbeon/hanbeon/verify"
)

// The word count and its topics.
const (
	appID       = "wc"
	topicLines  = "lines"
	topicCounts = "counts"
	storeCounts = "store"
	changelog   = appID + "-" + storeCounts + "-changelog"
	repartition = appID + "-" + storeCounts + "-repartition"
	partitions  = 4
)

// bed is one broker, which may crash and come back, with the input and what is
// known of it.
type bed struct {
	t      *testing.T
	random *rand.Rand
	feeder *kgo.Client
	admin  *kadm.Client
	client *kgo.Client
	lines  []string
	// deleted are lines that were counted, and are no longer in the input.
	deleted []string

	mu     sync.Mutex // guards the fields below
	fs     *vfs.Mem
	broker *broker.Broker // nil while it is down
	conns  []net.Conn
	faults broker.Faults
	fenced int64 // by brokers that have gone

	crashed *atomic.Bool // the broker was told to crash: it may log errors

	instances []*instance
}

// scenario runs a test in virtual time on a fresh broker. It closes what the
// test leaves open.
func scenario(t *testing.T, faults broker.Faults, run func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, random: rand.New(rand.NewPCG(1, 2)), fs: vfs.NewMem(), faults: faults}
		t.Cleanup(b.close)
		b.start()
		b.feeder = b.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
		b.client = b.newClient()
		b.admin = kadm.NewClient(b.client)
		for _, topic := range []string{topicLines, topicCounts} {
			if r, err := b.admin.CreateTopic(context.Background(), partitions, 1, nil, topic); err != nil || r.Err != nil {
				t.Fatalf("create topic %s: %v, %v", topic, err, r.Err)
			}
		}
		run(b)
	})
}

func (b *bed) close() {
	for _, i := range b.instances {
		i.kill()
	}
	for _, cl := range []*kgo.Client{b.feeder, b.client} {
		if cl != nil {
			cl.Close()
		}
	}
	if b.broker != nil {
		b.broker.Close()
	}
}

// logTo is where logs go, with HANBEON_TEST_LOG.
func logTo() slog.Handler {
	if os.Getenv("HANBEON_TEST_LOG") == "" {
		return slog.DiscardHandler
	}
	return slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})
}

func logger(name string) *slog.Logger { return slog.New(logTo()).With("name", name) }

// errorsFail is a log that fails the test at level Error: the broker has to say
// so when it stops a shard, and no test here damages its disk.
type errorsFail struct {
	slog.Handler
	t   *testing.T
	off *atomic.Bool // the broker is being crashed
}

func (h errorsFail) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || h.Handler.Enabled(ctx, l)
}

func (h errorsFail) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError && !h.off.Load() {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf("; %s: %v", a.Key, a.Value); return true })
		h.t.Errorf("broker: %s", text)
	}
	if h.Handler.Enabled(ctx, r.Level) {
		return h.Handler.Handle(ctx, r)
	}
	return nil
}

// start opens the broker on what the last one left.
func (b *bed) start() {
	b.t.Helper()
	b.crashed = new(atomic.Bool)
	opened, err := broker.Open(context.Background(), broker.Config{Dir: "data", FS: b.fs, Faults: b.faults, Logger: slog.New(errorsFail{logTo(), b.t, b.crashed})})
	if err != nil {
		b.t.Fatalf("open the broker: %v", err)
	}
	b.mu.Lock()
	b.broker = opened
	b.mu.Unlock()
}

// crash ends the broker. The connections go first, so nothing is acknowledged
// that the clone of the disk does not hold.
func (b *bed) crash(policy vfs.CrashPolicy) {
	b.mu.Lock()
	old := b.broker
	b.broker = nil
	conns := b.conns
	b.conns = nil
	b.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	b.fs = b.fs.CrashClone(policy)
	b.crashed.Store(true)
	old.Crash()
	b.fenced += old.Counters().Fenced
}

func (b *bed) dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	up := b.broker
	b.mu.Unlock()
	if up == nil {
		return nil, errRefused
	}
	c, err := up.Dial(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broker != up {
		c.Close()
		return nil, errRefused
	}
	b.conns = append(b.conns, c)
	return c, nil
}

func (b *bed) newClient(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers("hanbeon:9092"), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) { return b.dial(ctx) }))...)
	if err != nil {
		b.t.Fatalf("make a client: %v", err)
	}
	return cl
}

// feed writes lines of five words and remembers them. The words are few, so
// that each is in the work of every moment.
func (b *bed) feed(lines int) {
	b.t.Helper()
	b.offer(lines)
	if err := b.feeder.Flush(context.Background()); err != nil {
		b.t.Fatalf("feed: %v", err)
	}
}

// offer is feed without waiting for the broker.
func (b *bed) offer(lines int) {
	for range lines {
		words := make([]string, 5)
		for i := range words {
			words[i] = "w" + strconv.Itoa(b.random.IntN(40))
		}
		b.feedLine(strings.Join(words, " "))
	}
}

// feedLine gives a line to the feeding producer.
func (b *bed) feedLine(line string) {
	n := len(b.lines)
	b.lines = append(b.lines, line)
	b.feeder.Produce(context.Background(), &kgo.Record{Topic: topicLines, Partition: int32(n % partitions), Value: []byte(line)}, func(_ *kgo.Record, err error) {
		if err != nil {
			b.t.Errorf("feed line %d: %v", n, err)
		}
	})
}

// feedFor writes a few lines every 20 ms.
func (b *bed) feedFor(d time.Duration) {
	b.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		b.feed(2)
	}
}

// until waits for a condition, in virtual time, at most five minutes.
func (b *bed) until(what string, done func() bool) {
	b.t.Helper()
	if !b.wait(5*time.Minute, done) {
		b.t.Fatalf("after five minutes still not so: %s\n%s", what, b.situation())
	}
}

func (b *bed) wait(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// situation describes where everybody is, for a test that fails.
func (b *bed) situation() string {
	var s strings.Builder
	for _, i := range b.instances {
		fmt.Fprintf(&s, "%s: state %v, stats %+v\n", i.name, i.app.State(), i.app.Stats())
	}
	for _, p := range b.progress() {
		fmt.Fprintln(&s, p)
	}
	return s.String()
}

// settle waits until the application has committed everything that is in its
// source topics, and stays there.
func (b *bed) settle() {
	b.t.Helper()
	if !b.settled(5 * time.Minute) {
		b.t.Fatalf("the application does not come to the end of its input\n%s", b.situation())
	}
}

func (b *bed) settled(limit time.Duration) bool {
	calm := 0
	return b.wait(limit, func() bool {
		if verify.CheckOffsets(b.progress()).AtEnd() {
			calm++
		} else {
			calm = 0
		}
		return calm > 20
	})
}

// progress reads the committed offsets and ends of the source topics.
func (b *bed) progress() (all []verify.PartitionProgress) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// The offsets come first: the ends may only be too far ahead.
	committed, err := b.admin.FetchOffsets(ctx, appID)
	if err != nil {
		b.t.Errorf("fetch offsets: %v", err)
		return nil
	}
	ends, err := b.admin.ListEndOffsets(ctx, topicLines, repartition)
	if err != nil {
		b.t.Errorf("list end offsets: %v", err)
		return nil
	}
	ends.Each(func(end kadm.ListedOffset) {
		p := verify.PartitionProgress{Topic: end.Topic, Partition: end.Partition, Committed: -1, End: end.Offset}
		if at, ok := committed.Lookup(end.Topic, end.Partition); ok && at.Err == nil {
			p.Committed = at.At
		}
		p.Unread = max(0, p.End-max(0, p.Committed))
		all = append(all, p)
	})
	return all
}
