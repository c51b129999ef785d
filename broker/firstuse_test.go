package broker

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

// The goroutine that reserves producer ids writes the whole metadata file. One
// that outlives Close would write it over that of the next broker.
func TestCloseWaitsForTheReservationOfProducerIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		var held atomic.Bool
		gate := make(chan struct{})
		disk := &vfs.Faulty{FS: mem, Hook: func(op vfs.Op) error {
			if held.Load() && strings.Contains(op.Name, metadataFile) {
				<-gate
			}
			return nil
		}}
		b := openBroker(t, testConfig(disk))
		held.Store(true)
		for range producerIDBlock - 1 {
			b.ids.next()
		}
		closed := make(chan struct{})
		go func() { b.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned while a block is being reserved")
		default:
		}
		close(gate)
		<-closed
	})
}
