package broker

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"

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

// A flexible request can carry a longer string than a record of
// __transaction_state can.
func TestATransactionalIDTooLongForARecordIsRefused(t *testing.T) {
	b := openBroker(t, testConfig(vfs.NewMem()))
	c := dial(t, b)
	for _, n := range []int{32_767, 32_768, 40_000, 65_536, 65_541} {
		id := strings.Repeat("x", n)
		_, code := c.tryInit(id)
		if n <= 32_767 {
			wantCode(t, "init with a long id", code, nil)
			continue
		}
		wantCode(t, "init with an id that is too long", code, kerr.InvalidRequest)
		_, code = c.tryInit(id)
		wantCode(t, "init once more", code, kerr.InvalidRequest)
	}
}
