//go:build conformance

package streams_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/streams"
)

// These tests run against a Kafka cluster named by HANBEON_KAFKA (host:port).
// Processes that are killed are this test binary again, told by the environment
// to be a word count.

const workerEnv = "HANBEON_TEST_WORD_COUNT"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := wordCountProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// wordCountConfig is what a test tells a word count process.
type wordCountConfig struct {
	broker, app, in, out, stateDir string
	workers                        int
	guarantee                      streams.Guarantee
	commitInterval                 time.Duration
	transactionTimeout             time.Duration
	sessionTimeout                 time.Duration
	memory                         bool
	faults                         string
	// spread is about how many different words there are; lines is how many
	// lines are written at a time.
	spread, lines int
}

func (c wordCountConfig) env() []string {
	return []string{workerEnv + "=1", "WC_BROKER=" + c.broker, "WC_APP=" + c.app, "WC_IN=" + c.in, "WC_OUT=" + c.out,
		"WC_STATE=" + c.stateDir, "WC_WORKERS=" + strconv.Itoa(c.workers), "WC_GUARANTEE=" + c.guarantee.String(),
		"WC_COMMIT=" + c.commitInterval.String(), "WC_TXN=" + c.transactionTimeout.String(), "WC_SESSION=" + c.sessionTimeout.String(),
		"WC_MEMORY=" + strconv.FormatBool(c.memory), "WC_FAULTS=" + c.faults}
}

func envConfig() wordCountConfig {
	duration := func(name string) time.Duration { d, _ := time.ParseDuration(os.Getenv(name)); return d }
	workers, _ := strconv.Atoi(os.Getenv("WC_WORKERS"))
	guarantee, _ := streams.ParseGuarantee(os.Getenv("WC_GUARANTEE"))
	return wordCountConfig{
		broker: os.Getenv("WC_BROKER"), app: os.Getenv("WC_APP"), in: os.Getenv("WC_IN"), out: os.Getenv("WC_OUT"),
		stateDir: os.Getenv("WC_STATE"), workers: workers, guarantee: guarantee, commitInterval: duration("WC_COMMIT"),
		transactionTimeout: duration("WC_TXN"), sessionTimeout: duration("WC_SESSION"),
		memory: os.Getenv("WC_MEMORY") == "true", faults: os.Getenv("WC_FAULTS"),
	}
}

func (c wordCountConfig) faultSet() (s faults.Set) {
	s.OffsetsOutsideTransaction = strings.Contains(c.faults, "offsets")
	s.StoreBeforeCommit = strings.Contains(c.faults, "store")
	s.NoGroupMetadata = strings.Contains(c.faults, "metadata")
	s.UnknownIsAborted = strings.Contains(c.faults, "unknown")
	return s
}

type logger = *slog.Logger

func newWordCount(c wordCountConfig, log logger) (*streams.App, error) {
	topology, err := wordCountTopology(c)
	if err != nil {
		return nil, err
	}
	return streams.New(topology, c.streams(log))
}

func wordCountTopology(c wordCountConfig) (*streams.Topology, error) {
	b := streams.NewBuilder()
	lines := streams.Stream[string, string](b, c.in)
	words := streams.FlatMapValues(lines, strings.Fields)
	grouped := streams.GroupBy(words, func(_, word string) string { return word })
	streams.Count(grouped, "counts", streams.Materialized[string, int64]{InMemory: c.memory}).ToStream().To(c.out)
	return b.Build()
}

func (c wordCountConfig) streams(log logger) streams.Config {
	return streams.Config{
		ApplicationID: c.app, Brokers: []string{c.broker}, Guarantee: c.guarantee, StateDir: c.stateDir,
		Workers: c.workers, CommitInterval: c.commitInterval, TransactionTimeout: c.transactionTimeout,
		SessionTimeout: c.sessionTimeout, ReplicationFactor: 1, Logger: log,
	}
}

func wordCountProcess() error {
	c := envConfig()
	level := slog.LevelInfo
	if os.Getenv("WC_DEBUG") != "" {
		level = slog.LevelDebug
	}
	app, err := newWordCount(c, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err = app.Run(faults.With(ctx, c.faultSet()))
	fmt.Fprintf(os.Stderr, "stats %+v\n", app.Stats())
	return err
}

// process is a word count that runs elsewhere.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan error
}

func startWordCount(t *testing.T, name string, c wordCountConfig) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), c.env()...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, done: make(chan error, 1)}
	go func() {
		for scan := bufio.NewScanner(pipe); scan.Scan(); {
			if testing.Verbose() {
				fmt.Fprintf(os.Stderr, "%s| %s\n", name, scan.Text())
			}
		}
		p.done <- cmd.Wait()
	}()
	return p
}

// signal sends a signal; after SIGKILL or SIGTERM it waits for the end.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return err
	}
	if s != syscall.SIGKILL && s != syscall.SIGTERM {
		return nil
	}
	return <-p.done
}

type bed struct {
	t      *testing.T
	broker string
	client *kgo.Client
	admin  *kadm.Client
}

func newBed(t *testing.T) *bed {
	broker := os.Getenv("HANBEON_KAFKA")
	if broker == "" {
		t.Skip("HANBEON_KAFKA names no cluster")
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &bed{t: t, broker: broker, client: client, admin: kadm.NewClient(client)}
}

// config names fresh topics for one word count and creates them.
func (b *bed) config(partitions int32) wordCountConfig {
	app := fmt.Sprintf("wc-%d", time.Now().UnixNano())
	for _, topic := range []string{app + "-in", app + "-out"} {
		if r, err := b.admin.CreateTopic(context.Background(), partitions, 1, nil, topic); err != nil || r.Err != nil {
			b.t.Fatal(err, r.Err)
		}
	}
	return wordCountConfig{broker: b.broker, app: app, in: app + "-in", out: app + "-out", stateDir: b.t.TempDir(),
		workers: 2, spread: 20, lines: 20, guarantee: streams.ExactlyOnceV2, transactionTimeout: 10 * time.Second, sessionTimeout: 6 * time.Second}
}

// produce writes lines of five words and counts them into want.
func (b *bed) produce(c wordCountConfig, lines int, random *rand.Rand, want map[string]int64) {
	for range lines {
		words := make([]string, 5)
		for i := range words {
			words[i] = "w" + strconv.Itoa(int(random.ExpFloat64()*float64(c.spread)))
			want[words[i]]++
		}
		b.client.Produce(context.Background(), &kgo.Record{Topic: c.in, Value: []byte(strings.Join(words, " "))}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.t.Error("produce:", err)
			}
		})
	}
	if err := b.client.Flush(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// violations reads the output until every word has reached its count or the
// time is over, and counts updates that are missing, repeated or out of order:
// under exactly-once each word's updates are 1, 2, 3, … up to its count.
func (b *bed) violations(topic string, want map[string]int64, limit time.Duration) (bad int, detail string) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.broker), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	have := make(map[string]int64)
	open := len(want)
	var idle time.Time
	for open > 0 || time.Now().Before(idle) {
		poll, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		fetches := consumer.PollFetches(poll)
		stop()
		if ctx.Err() != nil {
			break
		}
		fetches.EachRecord(func(r *kgo.Record) {
			word, count := string(r.Key), int64(binary.BigEndian.Uint64(r.Value))
			if count != have[word]+1 {
				bad++
				if bad < 6 {
					detail += fmt.Sprintf("; %s went from %d to %d", word, have[word], count)
				}
			}
			have[word] = count
			if count == want[word] {
				if open--; open == 0 {
					idle = time.Now().Add(time.Second) // anything that comes after is too much
				}
			}
		})
	}
	for word, n := range want {
		if have[word] != n {
			bad++
			if bad < 6 {
				detail += fmt.Sprintf("; %s is %d, want %d", word, have[word], n)
			}
		}
	}
	return bad, detail
}

// feed writes a few lines at a time for as long as it is told.
func (b *bed) feed(c wordCountConfig, d time.Duration, random *rand.Rand, want map[string]int64) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for end := time.After(d); ; {
		select {
		case <-end:
			return
		case <-pace.C:
			b.produce(c, c.lines, random, want)
		}
	}
}

// checkCaughtUp compares the group's offsets with the ends of the input and of
// the repartition topic: after a clean shutdown all are committed, and the
// positions have passed the transaction markers.
func (b *bed) checkCaughtUp(c wordCountConfig) {
	b.t.Helper()
	topics := []string{c.in, c.app + "-counts-repartition"}
	ends, err := b.admin.ListEndOffsets(context.Background(), topics...)
	if err != nil {
		b.t.Fatal(err)
	}
	committed, err := b.admin.FetchOffsets(context.Background(), c.app)
	if err != nil {
		b.t.Fatal(err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		at, ok := committed.Lookup(end.Topic, end.Partition)
		if end.Offset > 0 && (!ok || at.At != end.Offset) {
			b.t.Errorf("%s/%d: committed %d, the end is %d", end.Topic, end.Partition, at.At, end.Offset)
		}
	})
}

// waitForAtLeast reads until every word has reached its count at least once,
// and names one that does not.
func (b *bed) waitForAtLeast(topic string, want map[string]int64, limit time.Duration) string {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.broker), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	most := make(map[string]int64)
	for ctx.Err() == nil {
		consumer.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			most[string(r.Key)] = max(most[string(r.Key)], int64(binary.BigEndian.Uint64(r.Value)))
		})
		short := ""
		for word, n := range want {
			if most[word] < n {
				short = fmt.Sprintf("%s is %d, want at least %d", word, most[word], n)
			}
		}
		if short == "" {
			return ""
		}
		if ctx.Err() != nil {
			return short
		}
	}
	return "no output"
}

func TestWordCountIsExactUnderKillNine(t *testing.T) {
	b := newBed(t)
	c := b.config(4)
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]int64)
	b.produce(c, 20_000, random, want)
	for round := range 5 {
		p := startWordCount(t, fmt.Sprintf("run%d", round), c)
		kill := time.AfterFunc(time.Duration(1500+random.IntN(1500))*time.Millisecond, func() { _ = p.cmd.Process.Kill() })
		b.produce(c, 3_000, rand.New(rand.NewPCG(uint64(round), 3)), want)
		<-p.done
		kill.Stop()
	}
	p := startWordCount(t, "last", c)
	bad, detail := b.violations(c.out, want, 60*time.Second)
	if err := p.signal(syscall.SIGTERM); err != nil {
		t.Errorf("clean shutdown: %v", err)
	}
	if bad > 0 {
		t.Errorf("%d violations%s", bad, detail)
	}
	b.checkCaughtUp(c)
}

func TestMissingTopicIsNamedWithARemedy(t *testing.T) {
	b := newBed(t)
	c := b.config(1)
	c.in = c.app + "-nowhere"
	app, err := newWordCount(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = app.Run(t.Context())
	if !errors.Is(err, streams.ErrMissingTopic) || !strings.Contains(err.Error(), c.in) || !strings.Contains(err.Error(), "--create") {
		t.Fatalf("got %v", err)
	}
	if got := app.State(); got != streams.StateError {
		t.Errorf("state %s", got)
	}
}

func TestWrongChangelogPartitionCountIsNamed(t *testing.T) {
	b := newBed(t)
	c := b.config(2)
	if _, err := b.admin.CreateTopic(t.Context(), 3, 1, nil, c.app+"-counts-changelog"); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Fatal(err)
	}
	app, err := newWordCount(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = app.Run(t.Context()); !errors.Is(err, streams.ErrPartitionCount) || !strings.Contains(err.Error(), "counts-changelog") {
		t.Fatalf("got %v", err)
	}
}
