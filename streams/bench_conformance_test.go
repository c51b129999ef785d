//go:build conformance

package streams_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/streams"
)

// TestWordCountThroughput is a word count over preloaded lines of five words
// from a vocabulary of 2,000, timed until the sink holds every update: the same
// workload as the Java program that it is compared with. It runs only when
// HANBEON_BENCH_LINES says how many lines. HANBEON_BENCH_PASS=1 passes records
// through instead, HANBEON_BENCH_PROFILE names a file for a CPU profile.
func TestWordCountThroughput(t *testing.T) {
	lines, _ := strconv.Atoi(os.Getenv("HANBEON_BENCH_LINES"))
	if lines == 0 {
		t.Skip("HANBEON_BENCH_LINES is not set")
	}
	b := newBed(t)
	c := b.config(4)
	c.commitInterval, c.transactionTimeout, c.sessionTimeout = 0, 0, 0
	if g := os.Getenv("HANBEON_BENCH_GUARANTEE"); g != "" {
		var err error
		if c.guarantee, err = streams.ParseGuarantee(g); err != nil {
			t.Fatal(err)
		}
	}
	c.memory = os.Getenv("HANBEON_BENCH_MEMORY") != ""
	pass := os.Getenv("HANBEON_BENCH_PASS") != ""
	b.preload(c.in, lines)
	want := int64(lines)
	app, err := passThrough(c)
	if !pass {
		want = int64(5 * lines)
		app, err = newWordCount(c, benchLogger())
	}
	if err != nil {
		t.Fatal(err)
	}
	if name := os.Getenv("HANBEON_BENCH_PROFILE"); name != "" {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			t.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	started := time.Now()
	go func() { done <- app.Run(ctx) }()
	first, got := b.count(c.out, want, 4*time.Minute)
	ended := time.Now()
	stats := app.Stats()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got != want {
		t.Errorf("%d of %d outputs", got, want)
	}
	total, fromFirst := ended.Sub(started).Seconds(), ended.Sub(first).Seconds()
	fmt.Printf("streams %s workers=%d: %d of %d outputs; from start %.2f s (%.0f in/s), from first output %.2f s (%.0f out/s); %s\n",
		c.guarantee, c.workers, got, want, total, float64(lines)/total, fromFirst, float64(got)/fromFirst, peakMemory())
	fmt.Printf("%+v\n", stats)
}

func benchLogger() *slog.Logger {
	if !testing.Verbose() {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func passThrough(c wordCountConfig) (*streams.App, error) {
	b := streams.NewBuilder()
	streams.MapValues(streams.Stream[string, string](b, c.in), strings.ToUpper).To(c.out)
	topology, err := b.Build()
	if err != nil {
		return nil, err
	}
	return streams.New(topology, streams.Config{
		ApplicationID: c.app, Brokers: []string{c.broker}, Guarantee: c.guarantee, StateDir: c.stateDir,
		Workers: c.workers, ReplicationFactor: 1, Logger: benchLogger(),
	})
}

// preload writes the lines; the draw of words has the Java program's shape.
func (b *bed) preload(topic string, lines int) {
	vocabulary := make([]string, 2000)
	for i := range vocabulary {
		vocabulary[i] = "word" + strconv.FormatInt(int64(i*7919%100003), 36)
	}
	random := rand.New(rand.NewPCG(7, 7))
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	var line []byte
	for i := range lines {
		line = line[:0]
		for w := range 5 {
			if w > 0 {
				line = append(line, ' ')
			}
			line = append(line, vocabulary[int(min(1999, math.Abs(random.NormFloat64())*500))]...)
		}
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % 4), Value: []byte(string(line))}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.t.Error("preload:", err)
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// count reads committed outputs until there are enough; first is when the
// first arrived.
func (b *bed) count(topic string, want int64, limit time.Duration) (first time.Time, got int64) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.broker), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for got < want && ctx.Err() == nil {
		n := int64(consumer.PollFetches(ctx).NumRecords())
		if got == 0 && n > 0 {
			first = time.Now()
		}
		got += n
	}
	return first, got
}

func peakMemory() string {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") {
			return "peak memory " + strings.Join(strings.Fields(line)[1:], " ")
		}
	}
	return ""
}
