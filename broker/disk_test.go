package broker

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// failingDisk is a disk that fails from a moment on.
func failingDisk(mem *vfs.Mem, kinds ...vfs.OpKind) (*vfs.Faulty, *atomic.Bool) {
	var broken atomic.Bool
	return &vfs.Faulty{FS: mem, Hook: func(op vfs.Op) error {
		for _, k := range kinds {
			if broken.Load() && op.Kind == k {
				return syscall.ENOSPC
			}
		}
		return nil
	}}, &broken
}

func TestAFullOrFailingDiskStopsWritesAndLosesNothing(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpWrite, vfs.OpSync} {
		t.Run(string(kind), func(t *testing.T) {
			mem := vfs.NewMem()
			disk, broken := failingDisk(mem, kind)
			b := openBroker(t, testConfig(disk))
			c := dial(t, b)
			c.createTopic("in", 1)
			p := c.init("")
			for i := range int32(3) {
				c.mustProduce(p, "in", 0, i, fmt.Sprint(i))
			}
			broken.Store(true)
			r := c.produce(p, "in", 0, 3, "3")
			wantCode(t, "produce on a failing disk", r.ErrorCode, kerr.KafkaStorageError)
			select {
			case <-b.Failed():
			case <-time.After(10 * time.Second):
				t.Fatal("the failure is not reported")
			}
			if err := b.Err(); err == nil || !strings.Contains(err.Error(), "journal") && !strings.Contains(err.Error(), ".log") {
				t.Errorf("the failure does not name its file: %v", err)
			}
			if got, want := c.read("in", 0, false), []string{"0", "1", "2"}; !reflect.DeepEqual(got, want) {
				t.Errorf("reads after the failure see %v, want %v", got, want)
			}
			// The disk comes back by itself; nothing may be retried before a restart.
			broken.Store(false)
			r = c.produce(p, "in", 0, 3, "3")
			wantCode(t, "produce before the restart", r.ErrorCode, kerr.KafkaStorageError)
			if err := b.Close(); err == nil {
				t.Error("Close reports no failure")
			}

			b = openBroker(t, testConfig(mem.CrashClone(vfs.DropUnsynced)))
			c = dial(t, b)
			if got := c.mustProduce(p, "in", 0, 3, "3"); got != 3 {
				t.Errorf("the refused batch is at offset %d after the restart, want 3", got)
			}
			if got, want := c.read("in", 0, false), []string{"0", "1", "2", "3"}; !reflect.DeepEqual(got, want) {
				t.Errorf("after the restart the log holds %v, want %v", got, want)
			}
		})
	}
}

func TestACorruptBatchIsRefusedAndNothingIsAppended(t *testing.T) {
	b := openBroker(t, testConfig(vfs.NewMem()))
	c := dial(t, b)
	c.createTopic("in", 1)
	plain := producer{pid: -1, epoch: -1}
	raw := plain.records(-1, "x")
	raw[len(raw)-1] ^= 1
	resp := call[*kmsg.ProduceResponse](c, plain.produceRequest("in", 0, raw))
	wantCode(t, "corrupt batch", resp.Topics[0].Partitions[0].ErrorCode, kerr.CorruptMessage)
	resp = call[*kmsg.ProduceResponse](c, plain.produceRequest("nowhere", 0, plain.records(-1, "x")))
	wantCode(t, "missing topic", resp.Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
	if got := c.read("in", 0, false); len(got) != 0 {
		t.Errorf("the log holds %v", got)
	}
}

func TestADeletedTopicLeavesNoFilesAndNoOffsets(t *testing.T) {
	fs := vfs.NewMem()
	b := openBroker(t, testConfig(fs))
	c := dial(t, b)
	c.createTopic("in", 2)
	c.mustProduce(producer{pid: -1, epoch: -1}, "in", 1, -1, "old")
	p := c.init("app")
	c.mustProduce(p, "in", 0, 0, "open")
	wantCode(t, "offsets", c.sendOffsets(p, "g", "in", 1, 1), nil)
	c.end(p, true)

	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 5
	req.TopicNames = []string{"in"}
	wantCode(t, "delete", call[*kmsg.DeleteTopicsResponse](c, req).Topics[0].ErrorCode, nil)
	names, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, "in-") {
			t.Errorf("%s is still there", n)
		}
	}
	for range 2 { // now, and after a restart
		c.createTopic("in", 2)
		if got := c.read("in", 1, false); len(got) != 0 {
			t.Errorf("the topic made anew holds %v", got)
		}
		if off, code := c.committed("g", "in", 1); off != -1 || code != 0 {
			t.Errorf("the topic made anew has the committed offset %d (code %d)", off, code)
		}
		wantCode(t, "delete", call[*kmsg.DeleteTopicsResponse](c, req).Topics[0].ErrorCode, nil)
		next := fs.CrashClone(vfs.DropUnsynced)
		b.Crash()
		fs = next
		var err error
		if b, err = Open(context.Background(), testConfig(fs)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		c = dial(t, b)
	}
}

// Otherwise the topic, made anew, would be read from where the old one ended.
func TestOffsetsOfADeletedTopicDoNotComeBack(t *testing.T) {
	mem := vfs.NewMem()
	var next *vfs.Mem
	synctest.Test(t, func(t *testing.T) {
		disk, hold := heldDisk(mem)
		b := openBroker(t, testConfig(disk))
		defer b.Close()
		c := dial(t, b)
		c.createTopic("in", 1)
		p := c.init("app")
		wantCode(t, "offsets", c.sendOffsets(p, "g", "in", 0, 7), nil)
		c.end(p, true)

		release := hold()
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version = 5
		req.TopicNames = []string{"in"}
		answered := make(chan struct{})
		go func() {
			c.try(req)
			close(answered)
		}()
		synctest.Wait()
		select {
		case <-answered:
			t.Error("the deletion is answered before that of the offsets is durable")
		default:
		}
		// The power cut comes when the topic is gone and its offsets are not.
		next = mem.CrashClone(vfs.DropUnsynced)
		release()
		<-answered
	})
	b := openBroker(t, testConfig(next))
	c := dial(t, b)
	c.createTopic("in", 1)
	if off, code := c.committed("g", "in", 0); off != -1 || code != 0 {
		t.Errorf("the topic made anew has the committed offset %d (code %d)", off, code)
	}
}
