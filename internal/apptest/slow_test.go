package apptest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/streams"
)

// A processor that takes longer than a rebalance may wait: the group goes on
// without the instance, which must give up what it has begun.
func TestProcessorSlowerThanTheRebalanceTimeout(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		long := func(c *streams.Config) { c.TransactionTimeout = 10 * time.Minute }
		b.feed(20)
		slow, other := b.launch("slow", options{change: long}), b.launch("other", options{change: long})
		b.running(slow, other)
		b.settle()
		slept := make(chan struct{})
		hold := pauseOnce(30, 150*time.Second, func() { close(slept) })
		slow.onWord.Store(&hold)
		b.feed(100)
		<-slept
		third := b.launch("third", options{change: long})
		b.feedFor(time.Second)
		time.Sleep(3 * time.Minute)
		b.feedFor(time.Second)
		b.running(slow, other, third)
		b.settle()
		for _, i := range []*instance{slow, other, third} {
			i.stop()
		}
		b.mustBeExact()
		if s := slow.app.Stats(); s.Lost == 0 || sum(s.Aborts) == 0 {
			t.Errorf("the slow instance lost no membership or aborted nothing: %+v", s)
		}
	})
}

func TestTwoWorkersInOneProcess(t *testing.T) {
	for _, at := range moments[2:] {
		t.Run(at.name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				o := options{onDisk: true, stateDir: t.TempDir(), change: func(c *streams.Config) { c.Workers = 2 }}
				b.feed(50)
				killed := b.launch("killed", o)
				b.running(killed)
				b.feedUntil(killed.killAt(at.is, 5))
				killed.kill()
				last := b.launch("last", o)
				b.feedFor(time.Second)
				b.running(last)
				b.settle()
				last.stop()
				b.mustBeExact()
			})
		})
	}
}

// Records that were deleted before they were read are lost to the application,
// and nothing else is.
func TestDeletedInputIsPassedOver(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		o := options{onDisk: true, stateDir: t.TempDir()}
		first := b.launch("first", o)
		b.feed(100)
		b.settle()
		first.stop()
		counted := b.lines
		b.feed(40)
		upTo := make(kadm.Offsets)
		ends, err := b.admin.ListEndOffsets(context.Background(), topicLines)
		if err != nil {
			t.Fatal(err)
		}
		ends.Each(func(end kadm.ListedOffset) { upTo.AddOffset(end.Topic, end.Partition, end.Offset, -1) })
		if _, err := b.admin.DeleteRecords(context.Background(), upTo); err != nil {
			t.Fatal(err)
		}
		before := len(b.lines)
		last := b.launch("last", o)
		b.running(last)
		b.feed(20)
		b.settle()
		last.stop()
		b.deleted = counted
		b.lines = b.lines[before:]
		b.mustBeExact()
	})
}

// Under at_least_once nothing is lost, but what was not committed at a kill is
// done twice: the same kill that exactly_once_v2 survives unseen.
func TestAtLeastOnceLosesNothingAndRepeats(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		last := b.killedAndRestarted(requestOf(keyOffsetCommit), options{onDisk: true, change: func(c *streams.Config) {
			c.Guarantee, c.CommitInterval = streams.AtLeastOnce, 100*time.Millisecond
		}})
		b.feedFor(300 * time.Millisecond)
		b.settle()
		last.stop()
		b.mustBeBroken()
		if lost := b.lost(); lost > 0 {
			t.Errorf("%d words were lost", lost)
		}
	})
}

func TestSinkDeletedWhileRunningIsNamed(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		i := b.launch("app", options{})
		b.feed(20)
		b.settle()
		b.deleteTopic(topicCounts)
		b.feed(20)
		b.until("the app ends", i.hasEnded)
		i.ends(topicCounts, "deleted")
	})
}
