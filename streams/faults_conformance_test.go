//go:build conformance

package streams_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/streams"
)

// killRounds kills and restarts the word count while lines are written, lets
// the last run finish and returns the violations.
func (b *bed) killRounds(c wordCountConfig, rounds int, between func(round int)) (bad int, detail string) {
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	want := make(map[string]int64)
	b.produce(c, 2_000, random, want)
	for round := range rounds {
		p := startWordCount(b.t, fmt.Sprintf("run%d", round), c)
		alive := time.Duration(2500+random.IntN(1000)) * time.Millisecond
		if round > 0 {
			alive += c.sessionTimeout // the dead members hold their tasks as long
		}
		b.feed(c, alive, random, want)
		_ = p.signal(syscall.SIGKILL)
		between(round)
	}
	p := startWordCount(b.t, "last", c)
	bad, detail = b.violations(c.out, want, c.sessionTimeout+30*time.Second)
	if err := p.signal(syscall.SIGTERM); err != nil {
		b.t.Errorf("clean shutdown: %v", err)
	}
	return bad, detail
}

// shortSession needs group.min.session.timeout.ms of at most 1 s at the broker.
const shortSession = 1500 * time.Millisecond

func TestKillNine(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*wordCountConfig)
		lose   bool
		broken bool
	}{
		{name: "memory stores", change: func(c *wordCountConfig) { c.memory = true }},
		{name: "lost disk", lose: true},
		{name: "control: stores before the commit", change: func(c *wordCountConfig) {
			// Pebble keeps up to 32 KiB of its log in memory, which a kill loses:
			// commit more than that at a time.
			c.faults, c.spread, c.lines = "store", 3000, 200
		}, broken: true},
		{name: "control: offsets outside the transaction", change: func(c *wordCountConfig) { c.faults = "offsets" }, broken: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			c := b.config(4)
			c.sessionTimeout = shortSession
			if test.change != nil {
				test.change(&c)
			}
			bad, detail := b.killRounds(c, 3, func(int) {
				if test.lose {
					if err := os.RemoveAll(filepath.Join(c.stateDir, c.app)); err != nil {
						t.Fatal(err)
					}
				}
			})
			t.Logf("%d violations%s", bad, detail)
			if test.broken && bad == 0 {
				t.Error("the control did not turn red")
			}
			if !test.broken && bad > 0 {
				t.Error("not exactly once")
			}
		})
	}
}

// Under at_least_once updates may repeat, but the final counts are never short.
func TestAtLeastOnceLosesNothingUnderKillNine(t *testing.T) {
	b := newBed(t)
	c := b.config(4)
	c.guarantee, c.sessionTimeout, c.commitInterval = streams.AtLeastOnce, shortSession, 300*time.Millisecond
	random := rand.New(rand.NewPCG(3, 4))
	want := make(map[string]int64)
	for round := range 3 {
		p := startWordCount(t, fmt.Sprintf("run%d", round), c)
		b.feed(c, 3*time.Second, random, want)
		_ = p.signal(syscall.SIGKILL)
	}
	p := startWordCount(t, "last", c)
	short := b.waitForAtLeast(c.out, want, 40*time.Second)
	if err := p.signal(syscall.SIGTERM); err != nil {
		t.Errorf("clean shutdown: %v", err)
	}
	if short != "" {
		t.Error(short)
	}
	b.checkCaughtUp(c)
}

// A frozen instance loses its tasks to another one. When it wakes it must not
// commit what it had begun (eos scenario 6).
func TestFrozenInstance(t *testing.T) {
	for _, test := range []struct{ name, faults string }{{name: "is fenced"}, {name: "control: no group metadata", faults: "metadata"}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			c := b.config(4)
			c.faults, c.transactionTimeout, c.sessionTimeout = test.faults, 60*time.Second, shortSession
			other := c
			other.stateDir = t.TempDir()
			random := rand.New(rand.NewPCG(5, 6))
			want := make(map[string]int64)
			feed := func(d time.Duration) { b.feed(c, d, random, want) }
			frozen, healthy := startWordCount(t, "frozen", c), startWordCount(t, "healthy", other)
			feed(4 * time.Second)
			for range 3 {
				_ = frozen.signal(syscall.SIGSTOP)
				feed(4 * time.Second)
				_ = frozen.signal(syscall.SIGCONT)
				feed(2 * time.Second)
			}
			bad, detail := b.violations(c.out, want, 30*time.Second)
			for _, p := range []*process{frozen, healthy} {
				if err := p.signal(syscall.SIGTERM); err != nil && test.faults == "" {
					t.Errorf("clean shutdown: %v", err)
				}
			}
			t.Logf("%d violations%s", bad, detail)
			if (bad > 0) != (test.faults != "") {
				t.Errorf("%d violations with faults %q", bad, test.faults)
			}
		})
	}
}

func TestInstancesComeAndGoUnderLoad(t *testing.T) {
	b := newBed(t)
	c := b.config(4)
	random := rand.New(rand.NewPCG(7, 8))
	want := make(map[string]int64)
	feed := func() { b.feed(c, 1500*time.Millisecond, random, want) }
	first := startWordCount(t, "first", c)
	feed()
	for range 3 {
		more := c
		more.stateDir = t.TempDir()
		p := startWordCount(t, "more", more)
		feed()
		if err := p.signal(syscall.SIGTERM); err != nil {
			t.Errorf("clean shutdown: %v", err)
		}
		feed()
	}
	bad, detail := b.violations(c.out, want, 30*time.Second)
	if err := first.signal(syscall.SIGTERM); err != nil {
		t.Errorf("clean shutdown: %v", err)
	}
	if bad > 0 {
		t.Errorf("%d violations%s", bad, detail)
	}
}
