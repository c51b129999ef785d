package broker

import (
	"testing"

	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// The first request to a coordinator makes its topic, and others may find the
// topic before that request goes on.
func TestACoordinatorFoundByAnotherRequestIsReady(t *testing.T) {
	for range 10 {
		b := openBroker(t, testConfig(vfs.NewMem()))
		answered := make(chan bool, 1)
		go func() {
			for b.topics.byName(topicOffsets) == nil {
			}
			last := b.topics.byName(topicOffsets).Partitions[internalPartitions-1]
			last.Group(func(t group.Token) group.Command {
				return group.GroupOffsetFetch{Token: t, Group: "g"}
			}, func(r group.Reply, _ seglog.LSN) { answered <- r.Token != 0 })
		}()
		if _, err := b.topics.internalTopic(topicOffsets); err != nil {
			t.Fatal(err)
		}
		if !<-answered {
			t.Fatal("the coordinator does not answer: its shard has stopped")
		}
		b.Close()
	}
}
