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
