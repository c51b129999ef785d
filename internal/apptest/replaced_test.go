package apptest

import (
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/streams"
)

// A process is frozen and started again elsewhere under the same instance id,
// as an orchestrator does with a node that it takes for dead. The old one wakes
// and must not change what the new one has done since.
func TestReplacedProcessWakesUp(t *testing.T) {
	for _, at := range moments {
		t.Run(at.name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				same := func(onDisk bool) options {
					return options{onDisk: onDisk, change: func(c *streams.Config) { c.InstanceID = "node-1" }}
				}
				b.feed(50)
				old := b.launch("old", same(false))
				b.running(old)
				b.settle()
				asleep := make(chan struct{})
				old.wire.watch(once(at.is, 2, func() verdict {
					old.wire.freeze()
					close(asleep)
					return pass
				}))
				b.feed(100)
				<-asleep
				fresh := b.launch("fresh", same(true))
				b.feedFor(time.Second)
				b.running(fresh)
				b.feedFor(time.Second)
				old.wire.thaw()
				b.until("one of them gives up", func() bool {
					b.feed(1)
					time.Sleep(90 * time.Millisecond)
					return old.hasEnded() || fresh.hasEnded()
				})
				loser, winner := old, fresh
				if fresh.hasEnded() {
					loser, winner = fresh, old
				}
				loser.ends("wc-node-1-1", "InstanceID")
				b.settle()
				winner.stop()
				b.mustBeExact()
				if loser.app.Stats().Fenced == 0 {
					t.Errorf("nobody was fenced: %+v", loser.app.Stats())
				}
			})
		})
	}
}
