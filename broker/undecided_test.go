package broker

import (
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// heldDisk is a disk whose syncs of the journal wait while held.
func heldDisk(mem *vfs.Mem) (disk *vfs.Faulty, hold func() (release func())) {
	var gate atomic.Pointer[chan struct{}]
	disk = &vfs.Faulty{FS: mem, Hook: func(op vfs.Op) error {
		if g := gate.Load(); g != nil && op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".jnl") {
			<-*g
		}
		return nil
	}}
	return disk, func() func() {
		g := make(chan struct{})
		gate.Store(&g)
		return func() { gate.Store(nil); close(g) }
	}
}

// A marker that a power cut may still take decides nothing: the data before it
// is durable, so it would be read, and then the transaction would be aborted.
func TestReadCommittedWaitsUntilTheMarkerIsDurable(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			disk, hold := heldDisk(vfs.NewMem())
			b := openBroker(t, testConfig(disk))
			defer b.Close()
			c, reader := dial(t, b), dial(t, b)
			c.createTopic("in", 1)
			p := c.init("app")
			c.mustProduce(p, "in", 0, 0, "x")

			release := hold()
			if err := c.send(setVersion(p.endRequest(commit), 5)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if end := b.partition("in", 0).LogEnd(); end != 2 {
				t.Fatalf("the log ends at %d, want 2: the marker is not written yet", end)
			}
			f := reader.fetch("in", 0, 0, true)
			if got := visible(t, f, true); f.LastStableOffset != 0 || len(f.RecordBatches) != 0 {
				t.Errorf("commit=%t: before the marker is durable the last stable offset is %d, want 0; %v is read", commit, f.LastStableOffset, got)
			}
			release()
			if _, err := c.receive(setVersion(p.endRequest(commit), 5)); err != nil {
				t.Fatal(err)
			}
			want := []string{}
			if commit {
				want = []string{"x"}
			}
			f = reader.fetch("in", 0, 0, true)
			if got := visible(t, f, true); f.LastStableOffset != 2 || !reflect.DeepEqual(got, want) {
				t.Errorf("commit=%t: after the end %v is read up to %d, want %v up to 2", commit, got, f.LastStableOffset, want)
			}
		})
	}
}

func setVersion[R kmsg.Request](r R, v int16) R { r.SetVersion(v); return r }

func (c *client) deleteRecords(topic string, before int64) {
	c.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = before
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	wantCode(c.t, "delete records", call[*kmsg.DeleteRecordsResponse](c, req).Topics[0].Partitions[0].ErrorCode, nil)
}

// The log then starts within the batch that opened the transaction.
func TestATransactionCutByDeleteRecordsIsStillOpenAfterRestart(t *testing.T) {
	afterEachStop(t, func(t *testing.T, c *client) any {
		p := c.init("app")
		c.mustProduce(p, "in", 0, 0, "a", "b", "c")
		c.deleteRecords("in", 1)
		return p
	}, func(t *testing.T, c *client, state any) {
		f := c.fetch("in", 0, 1, true)
		if f.LastStableOffset != 1 || len(f.RecordBatches) != 0 {
			t.Errorf("the last stable offset is %d, want 1: the transaction is open", f.LastStableOffset)
		}
		p := state.(producer)
		if r := c.produce(p, "in", 0, 0, "a", "b", "c"); r.ErrorCode != 0 || r.BaseOffset != 0 {
			t.Errorf("the repeated batch is answered with offset %d, error %d, want offset 0", r.BaseOffset, r.ErrorCode)
		}
		c.end(p, false)
		if got := visible(t, c.fetch("in", 0, 1, true), true); len(got) != 0 {
			t.Errorf("%v of the aborted transaction is read", got)
		}
	})
}
