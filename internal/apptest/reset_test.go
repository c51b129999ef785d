package apptest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/streams"
)

func latest(c *streams.Config) { c.AutoOffsetReset = streams.Latest }

// The reset policy is about the topics of the user. A repartition topic holds
// what the application itself has written for a task that may not have begun
// yet: starting at its end would lose records whose input is committed.
func TestLatestIsNotForRepartitionTopics(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		begin := make(kadm.Offsets)
		for p := range int32(partitions) {
			begin.AddOffset(topicLines, p, 0, -1)
		}
		if err := b.admin.CommitAllOffsets(context.Background(), appID, begin); err != nil {
			t.Fatal(err)
		}
		first, second := b.newInstance("first", options{change: latest}), b.newInstance("second", options{change: latest})
		fed := make(chan struct{})
		for _, i := range []*instance{first, second} {
			held := i == second
			i.wire.watch(func(m message) verdict {
				if list, ok := m.request.(*kmsg.ListOffsetsRequest); ok && !m.reply && held && list.Topics[0].Topic == repartition {
					<-fed
				}
				return pass
			})
		}
		first.run(faults.Set{})
		b.running(first)
		second.run(faults.Set{})
		b.until("the first has given up half", func() bool { return first.app.Stats().Running == partitions })
		b.feed(100)
		time.Sleep(5 * time.Second)
		close(fed)
		b.running(first, second)
		b.settle()
		first.stop()
		second.stop()
		b.mustBeExact()
	})
}

// Without a committed offset, the next owner of an idle partition would start at
// the end that it finds, behind records that came while nobody owned it.
func TestLatestIsDecidedOnce(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		first := b.launch("first", options{change: latest})
		b.running(first)
		time.Sleep(time.Second)
		first.kill()
		b.feed(50)
		second := b.launch("second", options{change: latest})
		b.running(second)
		b.settle()
		second.stop()
		b.mustBeExact()
	})
}
