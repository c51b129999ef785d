package apptest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/internal/vfs"
	"github.com/hanbeon/hanbeon/streams"
)

var (
	chaosSeeds = flag.Int("chaos.seeds", 2, "number of seeds of TestChaos")
	chaosFrom  = flag.Int("chaos.from", 0, "first seed of TestChaos")
)

// TestChaos lets everything happen to three instances at moments chosen by a
// seed: messages are lost, instances are frozen, killed and started again, the
// broker crashes. synctest makes time virtual, not the order of goroutines, so
// a seed says what is done and not quite when.
func TestChaos(t *testing.T) {
	for seed := *chaosFrom; seed < *chaosFrom+*chaosSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) { (&chaos{bed: b, random: rand.New(rand.NewPCG(uint64(seed), 3))}).run() })
		})
	}
}

type chaos struct {
	*bed
	random *rand.Rand
	names  [3]options
	live   [3]*instance
	cuts   atomic.Int64
	done   map[string]int
}

func (c *chaos) run() {
	c.done = make(map[string]int)
	for n := range c.live {
		c.names[n] = options{onDisk: n != 1, stateDir: c.t.TempDir(), change: func(config *streams.Config) { config.Workers = 1 + n/2 }}
		c.launch(n)
	}
	c.offer(50)
	deeds := []struct {
		name   string
		weight int
		do     func(n int)
	}{
		{"lose messages", 5, c.loseMessages},
		{"freeze", 3, c.freeze},
		{"kill", 3, c.kill},
		{"stop", 2, c.stop},
		{"crash the broker", 2, c.crashBroker},
		{"nothing", 3, func(int) {}},
	}
	total := 0
	for _, d := range deeds {
		total += d.weight
	}
	for range 25 {
		at := c.random.IntN(total)
		for _, d := range deeds {
			if at -= d.weight; at < 0 {
				d.do(c.random.IntN(len(c.live)))
				c.done[d.name]++
				break
			}
		}
		c.pass(time.Duration(c.random.IntN(4000)) * time.Millisecond)
	}
	for _, i := range c.live {
		i.wire.watch(nil)
		i.wire.thaw()
	}
	c.running(c.live[:]...)
	c.settle()
	aborts := int64(0)
	for _, i := range c.instances {
		aborts += sum(i.app.Stats().Aborts)
	}
	for _, i := range c.live {
		i.stop()
	}
	c.mustBeExact()
	if aborts == 0 || c.done["lose messages"] > 2 && c.cuts.Load() == 0 {
		c.t.Errorf("after %v nothing was aborted (%d) or lost (%d)", c.done, aborts, c.cuts.Load())
	}
	c.t.Logf("%d lines, %v, %d messages lost, %d aborts", len(c.lines), c.done, c.cuts.Load(), aborts)
}

func (c *chaos) launch(n int) { c.live[n] = c.bed.launch(fmt.Sprintf("i%d", n), c.names[n]) }

// pass lets time go by with work to do. An instance that has ended by itself
// has failed.
func (c *chaos) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		c.offer(1)
	}
	for _, i := range c.live {
		if i != nil && i.hasEnded() {
			c.t.Fatalf("%s has ended: %v", i.name, i.err)
		}
	}
}

// loseMessages cuts the connection at some of the next messages of one kind;
// requests may arrive late instead of never.
func (c *chaos) loseMessages(n int) {
	at := moments[c.random.IntN(len(moments))].is
	left := int64(1 + c.random.IntN(12))
	until := time.Now().Add(time.Duration(c.random.IntN(40)) * time.Second)
	how := []verdict{cut, late}[c.random.IntN(2)]
	c.live[n].wire.watch(func(m message) verdict {
		if at(m) && time.Now().Before(until) && atomic.AddInt64(&left, -1) >= 0 {
			c.cuts.Add(1)
			if m.reply {
				return cut
			}
			return how
		}
		return pass
	})
}

func (c *chaos) freeze(n int) {
	i, d := c.live[n], time.Duration(c.random.IntN(50))*time.Second
	i.wire.watch(once(moments[c.random.IntN(len(moments))].is, 1, func() verdict {
		i.wire.freeze()
		time.AfterFunc(d, i.wire.thaw)
		return pass
	}))
}

func (c *chaos) kill(n int) {
	i := c.live[n]
	dead := i.killAt(moments[c.random.IntN(len(moments))].is, int64(1+c.random.IntN(3)))
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		select {
		case <-dead:
			end = time.Now()
		default:
			c.offer(1)
		}
	}
	i.kill()
	c.live[n] = nil
	c.pass(time.Duration(c.random.IntN(20)) * time.Second)
	c.launch(n)
}

func (c *chaos) stop(n int) {
	i := c.live[n]
	i.wire.watch(nil)
	i.wire.thaw()
	i.stop()
	c.live[n] = nil
	c.pass(time.Duration(c.random.IntN(3)) * time.Second)
	c.launch(n)
}

func (c *chaos) crashBroker(n int) {
	policy := []vfs.CrashPolicy{vfs.KeepUnsynced, vfs.DropUnsynced, vfs.Torn(c.random.Uint64())}[c.random.IntN(3)]
	down := make(chan struct{})
	c.live[n].wire.watch(once(moments[c.random.IntN(len(moments))].is, 1, func() verdict { close(down); return cut }))
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select {
		case <-down:
			end = time.Now()
		default:
			c.offer(1)
		}
	}
	c.crash(policy)
	c.pass(time.Duration(c.random.IntN(3000)) * time.Millisecond)
	c.start()
}
