package apptest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/streams"
)

// ends waits for Run to fail by itself and looks for the words in its error.
func (i *instance) ends(want ...string) error {
	i.b.t.Helper()
	i.await()
	if i.err == nil {
		i.b.t.Fatalf("%s: Run returned nil", i.name)
	}
	for _, w := range want {
		if !strings.Contains(i.err.Error(), w) {
			i.b.t.Errorf("%s: the error does not say %q: %v", i.name, w, i.err)
		}
	}
	if got := i.app.State(); got != streams.StateError {
		i.b.t.Errorf("%s: state %v after an error", i.name, got)
	}
	return i.err
}

func (b *bed) deleteTopic(topic string) {
	b.t.Helper()
	if r, err := b.admin.DeleteTopics(context.Background(), topic); err != nil || r[topic].Err != nil {
		b.t.Fatalf("delete topic %s: %v, %v", topic, err, r[topic].Err)
	}
}

func TestMissingTopicIsNamed(t *testing.T) {
	for _, topic := range []string{topicLines, topicCounts} {
		t.Run(topic, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				b.deleteTopic(topic)
				err := b.launch("app", options{}).ends(topic, "--create")
				if !errors.Is(err, streams.ErrMissingTopic) {
					t.Errorf("not ErrMissingTopic: %v", err)
				}
			})
		})
	}
}

func TestMissingDeadLetterTopicIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.launch("app", options{change: func(c *streams.Config) {
			c.PoisonRecords, c.DeadLetterTopic = streams.PoisonDeadLetter, "graveyard"
		}}).ends("graveyard", "--create")
	})
}

func TestWrongPartitionCountOfTheChangelogIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		if _, err := b.admin.CreateTopic(context.Background(), partitions+1, 1, nil, changelog); err != nil {
			t.Fatal(err)
		}
		if err := b.launch("app", options{}).ends(changelog, "delete"); !errors.Is(err, streams.ErrPartitionCount) {
			t.Errorf("not ErrPartitionCount: %v", err)
		}
	})
}

// numbers reads the lines as int64, which they are not.
func numbers(b *streams.Builder) {
	streams.Stream[string, int64](b, topicLines).To(topicCounts)
}

func TestRecordThatCannotBeDecodedIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.feedLine("not a number")
		b.launch("app", options{build: numbers}).ends(topicLines, "offset 0", "PoisonRecords")
		// Nothing of it is committed: the next start meets it again.
		b.launch("again", options{build: numbers}).ends(topicLines, "offset 0")
	})
}

func TestProcessorThatPanicsIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.feed(40)
		bad := b.newInstance("bad", options{})
		boom := func(line string) {
			if strings.Contains(line, "poison") {
				panic("boom")
			}
		}
		bad.onLine.Store(&boom)
		bad.run(options{}.faults)
		b.running(bad)
		b.settle()
		b.feedLine("some poison")
		b.feed(40)
		bad.ends(topicLines, "boom", "PoisonRecords")
		good := b.launch("good", options{})
		b.settle()
		good.stop()
		b.mustBeExact()
	})
}

// A poison record that is passed over is committed like any other: once, and
// the dead letter with it.
func TestPoisonRecordsArePassedOverOnce(t *testing.T) {
	for name, policy := range map[string]streams.PoisonPolicy{"skip": streams.PoisonSkip, "dead letter": streams.PoisonDeadLetter} {
		t.Run(name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				if r, err := b.admin.CreateTopic(context.Background(), 1, 1, nil, "graveyard"); err != nil || r.Err != nil {
					t.Fatal(err, r.Err)
				}
				for range 10 {
					b.feedLine("12345678") // eight bytes are an int64
					b.feedLine("poison")
				}
				o := options{build: numbers, stateDir: t.TempDir(), change: func(c *streams.Config) {
					c.PoisonRecords = policy
					if policy == streams.PoisonDeadLetter {
						c.DeadLetterTopic = "graveyard"
					}
				}}
				killed := b.launch("killed", o)
				<-killed.killAt(commitRequest, 1)
				killed.kill()
				last := b.launch("last", o)
				b.until("all lines are committed", func() bool {
					n := int64(0)
					for _, p := range b.progress() {
						n += p.Unread
					}
					return n == 0
				})
				last.stop()
				if n := len(b.read(topicCounts, true)); n != 10 {
					t.Errorf("%d good records came through, want 10", n)
				}
				letters := b.read("graveyard", true)
				want := map[streams.PoisonPolicy]int{streams.PoisonDeadLetter: 10}[policy]
				if len(letters) != want {
					t.Errorf("%d dead letters, want %d", len(letters), want)
				}
				if s := last.app.Stats(); s.Skipped+s.DeadLetters != 10 {
					t.Errorf("not all poison was counted: %+v", s)
				}
			})
		})
	}
}

func TestStateDirInUseIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		o := options{stateDir: t.TempDir()}
		first := b.launch("first", o)
		b.running(first)
		if err := b.launch("second", o).ends(o.stateDir, "its own StateDir"); !errors.Is(err, streams.ErrStateDirInUse) {
			t.Errorf("not ErrStateDirInUse: %v", err)
		}
		b.feed(10)
		b.settle()
		first.stop()
		b.mustBeExact()
	})
}

func TestStateDirThatIsNoDirectoryIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		file := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.launch("app", options{stateDir: file}).ends(file)
	})
}

func TestForeignFilesInTheStateDirAreNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		o := options{onDisk: true, stateDir: t.TempDir()}
		dir := storeDir(o.stateDir, "1_0")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "photo.jpg"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.launch("app", o).ends(dir, "photo.jpg", "empty directory")
	})
}

func TestDamagedStoreIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		o := options{onDisk: true, stateDir: t.TempDir()}
		first := b.launch("first", o)
		b.feed(100)
		b.settle()
		first.stop()
		dir := storeDir(o.stateDir, "1_0")
		manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
		if err != nil || len(manifests) == 0 {
			t.Fatalf("no manifest in %s: %v", dir, err)
		}
		for _, m := range manifests {
			if err := os.WriteFile(m, []byte("garbage garbage garbage"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b.launch("damaged", o).ends(dir, "remove the directory")
		// The remedy works.
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		last := b.launch("last", o)
		b.feed(10)
		b.settle()
		last.stop()
		b.mustBeExact()
	})
}

func TestTimeoutsThatTheBrokerRefusesAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*streams.Config)
		want   []string
	}{
		"transaction": {func(c *streams.Config) { c.TransactionTimeout = time.Hour }, []string{"TransactionTimeout", "transaction.max.timeout.ms"}},
		"session":     {func(c *streams.Config) { c.SessionTimeout = time.Second }, []string{"SessionTimeout", "group.min.session.timeout.ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				b.launch("app", options{change: test.change}).ends(test.want...)
			})
		})
	}
}

// Two live processes with one id fence each other without end; both must not
// go on like that in silence.
func TestTwoProcessesWithOneInstanceIDAreNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		twin := options{change: func(c *streams.Config) { c.InstanceID = "twin" }}
		first, second := b.launch("first", twin), b.launch("second", twin)
		b.until("one of the twins gives up", func() bool {
			b.feed(5)
			return first.hasEnded() || second.hasEnded()
		})
		loser, winner := first, second
		if second.hasEnded() {
			loser, winner = second, first
		}
		loser.ends("wc-twin-1", "InstanceID")
		b.settle()
		winner.stop()
		b.mustBeExact()
	})
}

func TestRecordThatTheSinkRefusesIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.deleteTopic(topicCounts)
		limit := "200"
		if r, err := b.admin.CreateTopic(context.Background(), partitions, 1, map[string]*string{"max.message.bytes": &limit}, topicCounts); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		b.feedLine(strings.Repeat("x", 1000))
		copyLines := func(b *streams.Builder) { streams.Stream[string, string](b, topicLines).To(topicCounts) }
		b.launch("app", options{build: copyLines}).ends(topicCounts, "max.message.bytes")
	})
}

func TestUnreachableBrokerAtTheStartIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		i := b.newInstance("app", options{})
		i.wire.kill()
		i.run(options{}.faults)
		i.ends("connection refused")
	})
}

// An App that has lost its broker waits for it, and ends when it is told to.
func TestStopWithoutABroker(t *testing.T) {
	for name, cutOff := range map[string]func(i *instance){
		"refused": func(i *instance) { i.wire.kill() },
		"silent":  func(i *instance) { i.wire.mute() },
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				i := b.launch("app", options{onDisk: true})
				b.feed(20)
				b.running(i)
				b.settle()
				b.feed(20)
				time.Sleep(30 * time.Millisecond)
				cutOff(i)
				time.Sleep(3 * time.Minute)
				if i.hasEnded() {
					t.Fatalf("Run has given up: %v", i.err)
				}
				i.cancel()
				i.await()
			})
		})
	}
}

// The callback of a rebalance commits to a broker that has gone; the shutdown
// waits for it, but not for the broker.
func TestStopWhileARevocationCommits(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.feed(20)
		first, second := b.launch("first", options{}), b.launch("second", options{})
		b.running(first, second)
		var rebalanced atomic.Bool
		gone := make(chan struct{})
		first.wire.watch(func(m message) verdict {
			if m.reply && m.key == keySyncGroup {
				rebalanced.Store(true)
			}
			if rebalanced.Load() && commitRequest(m) {
				rebalanced.Store(false)
				first.wire.kill()
				close(gone)
				return cut
			}
			return pass
		})
		third := b.launch("third", options{})
		b.feedUntil(gone)
		time.Sleep(time.Minute)
		first.cancel()
		first.await()
		b.settle()
		second.stop()
		third.stop()
		b.mustBeExact()
	})
}

func TestStopBeforeTheStart(t *testing.T) {
	for name, wait := range map[string]time.Duration{"at once": 0, "while it joins": time.Millisecond, "in the first poll": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				i := b.launch("app", options{onDisk: true})
				time.Sleep(wait)
				i.stop()
				if got := i.app.State(); got != streams.StateNotRunning {
					t.Errorf("state %v", got)
				}
			})
		})
	}
}
