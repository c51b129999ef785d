package apptest

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/streams"
)

// instance is one process of the word count: an App with a network of its own.
type instance struct {
	b        *bed
	name     string
	stateDir string
	app      *streams.App
	wire     *wire

	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done

	// onLine and onWord are called in the processors, if set: before a line is
	// split, and after a word was counted.
	onLine atomic.Pointer[func(line string)]
	onWord atomic.Pointer[func(word string)]
}

// options differ from scenario to scenario; zero values are the App's defaults
// but for the timeouts.
type options struct {
	stateDir string // by default one of the instance's own
	onDisk   bool   // keep the counts in Pebble
	faults   faults.Set
	change   func(*streams.Config)
	// build replaces the word count.
	build func(*streams.Builder)
}

const (
	sessionTimeout     = 10 * time.Second
	transactionTimeout = 30 * time.Second
)

// newInstance makes an instance that does not run yet.
func (b *bed) newInstance(name string, o options) *instance {
	b.t.Helper()
	i := &instance{b: b, name: name, wire: newWire(b.dial), done: make(chan struct{})}
	if o.stateDir == "" {
		o.stateDir = b.t.TempDir()
	}
	i.stateDir = o.stateDir
	config := streams.Config{
		ApplicationID: appID, Brokers: []string{"hanbeon:9092"}, Guarantee: streams.ExactlyOnceV2,
		StateDir: o.stateDir, SessionTimeout: sessionTimeout, TransactionTimeout: transactionTimeout,
		DialContext: i.wire.dial, Logger: logger(name),
	}
	if o.change != nil {
		o.change(&config)
	}
	app, err := streams.New(i.topology(o), config)
	if err != nil {
		b.t.Fatalf("make the app %s: %v", name, err)
	}
	i.app = app
	return i
}

func (i *instance) topology(o options) *streams.Topology {
	b := streams.NewBuilder()
	if o.build != nil {
		o.build(b)
	} else {
		i.wordCount(b, o)
	}
	topology, err := b.Build()
	if err != nil {
		i.b.t.Fatalf("build the topology: %v", err)
	}
	return topology
}

func (i *instance) wordCount(b *streams.Builder, o options) {
	lines := streams.Stream[string, string](b, topicLines).Peek(func(_, line string) {
		if f := i.onLine.Load(); f != nil {
			(*f)(line)
		}
	})
	words := streams.FlatMapValues(lines, strings.Fields)
	grouped := streams.GroupBy(words, func(_, word string) string { return word })
	counts := streams.Count(grouped, storeCounts, streams.Materialized[string, int64]{InMemory: !o.onDisk}).ToStream()
	counts.Peek(func(word string, _ int64) {
		if f := i.onWord.Load(); f != nil {
			(*f)(word)
		}
	}).To(topicCounts)
}

// launch makes an instance and runs it.
func (b *bed) launch(name string, o options) *instance {
	b.t.Helper()
	i := b.newInstance(name, o)
	i.run(o.faults)
	return i
}

func (i *instance) run(f faults.Set) {
	i.b.instances = append(i.b.instances, i)
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	go func() {
		defer close(i.done)
		i.err = i.app.Run(faults.With(ctx, f))
	}()
}

// stop ends the instance as SIGTERM does.
func (i *instance) stop() {
	i.b.t.Helper()
	i.cancel()
	i.await()
	if i.err != nil {
		i.b.t.Errorf("%s: clean shutdown: %v", i.name, i.err)
	}
}

// kill ends the instance as kill -9 does, as far as the broker can tell: its
// connections break without a word, and what it does afterwards reaches nobody.
func (i *instance) kill() {
	i.wire.kill()
	i.onLine.Store(nil)
	i.onWord.Store(nil)
	i.cancel()
	i.await()
}

// await waits for the end of Run, which must come within two minutes: a commit
// under way may take a transaction timeout, the last one and the leave ten
// seconds each.
func (i *instance) await() {
	i.b.t.Helper()
	select {
	case <-i.done:
	case <-time.After(2 * time.Minute):
		i.b.t.Fatalf("%s: Run does not return: state %v", i.name, i.app.State())
	}
}

// hasEnded says whether Run has returned.
func (i *instance) hasEnded() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// running waits until the instances run all tasks between them, each some.
func (b *bed) running(instances ...*instance) {
	b.t.Helper()
	b.until("all tasks run", func() bool {
		tasks := 0
		for _, i := range instances {
			if i.hasEnded() {
				b.t.Fatalf("%s has ended: %v", i.name, i.err)
			}
			n := i.app.Stats().Running
			if n == 0 {
				return false
			}
			tasks += n
		}
		return tasks == 2*partitions
	})
}

// storeDir is where the instance keeps the counts of a partition.
func storeDir(stateDir, taskID string) string {
	return filepath.Join(stateDir, appID, taskID, storeCounts)
}
