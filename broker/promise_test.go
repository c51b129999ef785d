package broker

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// The tests of this file are what other brokers fail; see the guarantee table
// in README.md. Each stops the broker in between: cleanly, killed, and with
// the power cut.

// stops are the ways in which a broker ends; each returns the file system of
// the next start.
var stops = []struct {
	name string
	stop func(testing.TB, *Broker, *vfs.Mem) *vfs.Mem
}{
	{"clean stop", func(t testing.TB, b *Broker, fs *vfs.Mem) *vfs.Mem {
		if err := b.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		return fs.CrashClone(vfs.DropUnsynced)
	}},
	{"kill -9", func(t testing.TB, b *Broker, fs *vfs.Mem) *vfs.Mem {
		next := fs.CrashClone(vfs.KeepUnsynced)
		b.Crash()
		return next
	}},
	{"power cut", func(t testing.TB, b *Broker, fs *vfs.Mem) *vfs.Mem {
		next := fs.CrashClone(vfs.DropUnsynced)
		b.Crash()
		return next
	}},
}

func afterEachStop(t *testing.T, before func(t *testing.T, c *client) any, after func(t *testing.T, c *client, state any)) {
	for _, s := range stops {
		t.Run(s.name, func(t *testing.T) {
			fs := vfs.NewMem()
			b := openBroker(t, testConfig(fs))
			c := dial(t, b)
			c.createTopic("in", 2)
			state := before(t, c)
			fs = s.stop(t, b, fs)
			b = openBroker(t, testConfig(fs))
			after(t, dial(t, b), state)
		})
	}
}

// Kafka recognises only the last of them after a restart and appends the
// other four, or all five, again.
func TestFiveBatchesInFlightAreRecognisedAfterRestart(t *testing.T) {
	afterEachStop(t, func(t *testing.T, c *client) any {
		p := c.init("")
		for i := range int32(5) {
			// The answers do arrive here, but a client that lost them retries all.
			c.mustProduce(p, "in", 0, i, fmt.Sprint(i))
		}
		return p
	}, func(t *testing.T, c *client, state any) {
		p := state.(producer)
		for i := range int32(5) {
			if got := c.mustProduce(p, "in", 0, i, fmt.Sprint(i)); got != int64(i) {
				t.Errorf("retry of batch %d: base offset %d, want the original %d", i, got, i)
			}
		}
		c.mustProduce(p, "in", 0, 5, "5")
		if got, want := c.read("in", 0, false), []string{"0", "1", "2", "3", "4", "5"}; !reflect.DeepEqual(got, want) {
			t.Errorf("log holds %v, want %v", got, want)
		}
	})
}

func TestLateBatchOfAnEndedTransactionIsRefused(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit=%v", commit), func(t *testing.T) {
			b := openBroker(t, testConfig(vfs.NewMem()))
			c := dial(t, b)
			c.createTopic("in", 2)
			p := c.init("app")
			c.mustProduce(p, "in", 0, 0, "a")
			next := c.end(p, commit)
			// The transaction's second batch, and its first for another
			// partition, come after the answer to EndTxn.
			late := c.produce(p, "in", 0, 1, "late")
			wantCode(t, "late batch", late.ErrorCode, kerr.InvalidProducerEpoch)
			if r := c.produce(p, "in", 1, 0, "late"); r.ErrorCode == 0 {
				t.Fatalf("late batch for an untouched partition was accepted at offset %d", r.BaseOffset)
			}
			c.mustProduce(next, "in", 0, 0, "b")
			c.end(next, true)
			want := []string{"b"}
			if commit {
				want = []string{"a", "b"}
			}
			if got := c.read("in", 0, true); !reflect.DeepEqual(got, want) {
				t.Errorf("read_committed sees %v, want %v", got, want)
			}
			if got := c.read("in", 1, false); len(got) != 0 {
				t.Errorf("the untouched partition holds %v", got)
			}
		})
	}
}

func TestTransactionOpenAtACrashDoesNotHideLaterCommits(t *testing.T) {
	afterEachStop(t, func(t *testing.T, c *client) any {
		p := c.init("app")
		c.mustProduce(p, "in", 0, 0, "open")
		return nil
	}, func(t *testing.T, c *client, _ any) {
		p := c.init("app") // aborts what the crash left open
		c.mustProduce(p, "in", 0, 0, "later")
		c.end(p, true)
		if got, want := c.read("in", 0, true), []string{"later"}; !reflect.DeepEqual(got, want) {
			t.Errorf("read_committed sees %v, want %v", got, want)
		}
	})
}

func TestTransactionAbortedByRestartStaysAborted(t *testing.T) {
	for _, first := range stops {
		for _, second := range stops {
			t.Run(first.name+", "+second.name, func(t *testing.T) {
				fs := vfs.NewMem()
				b := openBroker(t, testConfig(fs))
				c := dial(t, b)
				c.createTopic("in", 1)
				p := c.init("app")
				c.mustProduce(p, "in", 0, 0, "aborted")
				wantCode(t, "offsets", c.sendOffsets(p, "g", "in", 0, 7), nil)

				fs = first.stop(t, b, fs)
				b = openBroker(t, testConfig(fs))
				dial(t, b).init("app")

				fs = second.stop(t, b, fs)
				b = openBroker(t, testConfig(fs))
				c = dial(t, b)
				if got := c.read("in", 0, true); len(got) != 0 {
					t.Errorf("read_committed sees %v of an aborted transaction", got)
				}
				if off, code := c.committed("g", "in", 0); off != -1 || code != 0 {
					t.Errorf("committed offset %d, code %d; want none", off, code)
				}
				old := c.produce(p, "in", 0, 1, "zombie")
				wantCode(t, "zombie's batch", old.ErrorCode, kerr.InvalidProducerEpoch)
			})
		}
	}
}

func TestCommittedTransactionSurvives(t *testing.T) {
	afterEachStop(t, func(t *testing.T, c *client) any {
		p := c.init("app")
		c.mustProduce(p, "in", 0, 0, "x")
		c.mustProduce(p, "in", 1, 0, "y")
		wantCode(t, "offsets", c.sendOffsets(p, "g", "in", 0, 42), nil)
		if off, code := c.committed("g", "in", 0); off != -1 || code != kerr.UnstableOffsetCommit.Code {
			t.Errorf("before the commit: offset %d, code %d", off, code)
		}
		if got := c.read("in", 0, true); len(got) != 0 {
			t.Errorf("read_committed sees %v before the commit", got)
		}
		c.end(p, true)
		return p
	}, func(t *testing.T, c *client, state any) {
		if got, want := append(c.read("in", 0, true), c.read("in", 1, true)...), []string{"x", "y"}; !reflect.DeepEqual(got, want) {
			t.Errorf("read_committed sees %v, want %v", got, want)
		}
		if off, code := c.committed("g", "in", 0); off != 42 || code != 0 {
			t.Errorf("committed offset %d, code %d; want 42", off, code)
		}
		// The client lost the answer and asks again: the same, no error.
		resp := call[*kmsg.EndTxnResponse](c, state.(producer).endRequest(true))
		wantCode(t, "EndTxn again", resp.ErrorCode, nil)
	})
}
