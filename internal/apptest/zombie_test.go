package apptest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/internal/faults"
)

func sum(aborts map[string]int64) (n int64) {
	for _, c := range aborts {
		n += c
	}
	return n
}

// refusals counts the answers that told the instance that it is too late.
func (w *wire) refusals() (n int) {
	for _, req := range []kmsg.Request{&kmsg.TxnOffsetCommitRequest{}, &kmsg.EndTxnRequest{}, &kmsg.ProduceRequest{}, &kmsg.HeartbeatRequest{}} {
		for _, err := range []*kerr.Error{
			kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidTxnState,
		} {
			n += w.refused(req, err)
		}
	}
	return n
}

// pauseOnce makes the n-th call sleep.
func pauseOnce(n int64, d time.Duration, before func()) func(string) {
	var calls atomic.Int64
	return func(string) {
		if calls.Add(1) == n {
			before()
			time.Sleep(d)
		}
	}
}

// A processor that takes longer than the transaction timeout: the coordinator
// aborts, and the instance must do the work again.
func TestProcessorSlowerThanTheTransactionTimeout(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(i *instance, slow func(string))
	}{
		{"splitting lines", func(i *instance, slow func(string)) { i.onLine.Store(&slow) }},
		{"counting words", func(i *instance, slow func(string)) { i.onWord.Store(&slow) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				b.feed(20)
				slow, other := b.launch("slow", options{}), b.launch("other", options{})
				b.running(slow, other)
				b.settle()
				slept := make(chan struct{})
				// The first words of the transaction have been sent when the sleep begins.
				test.set(slow, pauseOnce(40, transactionTimeout+15*time.Second, func() { close(slept) }))
				b.feed(200)
				<-slept
				b.feedFor(time.Second)
				b.settle()
				slow.stop()
				other.stop()
				b.mustBeExact()
				if s := slow.app.Stats(); sum(s.Aborts) == 0 {
					t.Errorf("nothing was aborted: %+v", s)
				}
				if b.broker.Counters().Aborted == 0 {
					t.Error("the coordinator has aborted nothing")
				}
			})
		})
	}
}

// zombie freezes one of two instances at a message of its transaction, longer
// than a session, while the other takes its tasks over; then it wakes.
func (b *bed) zombie(at moment, frozen time.Duration, f faults.Set) (zombie, other *instance) {
	b.t.Helper()
	b.feed(50)
	zombie, other = b.launch("zombie", options{faults: f}), b.launch("other", options{})
	b.running(zombie, other)
	b.settle()
	asleep := make(chan struct{})
	zombie.wire.watch(once(at.is, 1, func() verdict {
		zombie.wire.freeze()
		close(asleep)
		return pass
	}))
	b.feed(100)
	<-asleep
	end := time.Now().Add(frozen)
	b.feedFor(2 * time.Second)
	time.Sleep(time.Until(end))
	zombie.wire.thaw()
	b.feedFor(2 * time.Second)
	return zombie, other
}

func TestZombieCannotCommit(t *testing.T) {
	for _, frozen := range []time.Duration{15 * time.Second, 60 * time.Second} {
		for _, at := range moments {
			t.Run(at.name+"/"+frozen.String(), func(t *testing.T) {
				scenario(t, broker.Faults{}, func(b *bed) {
					zombie, other := b.zombie(at, frozen, faults.Set{})
					b.settle()
					b.running(zombie, other)
					zombie.stop()
					other.stop()
					b.mustBeExact()
					if zombie.wire.refusals() == 0 {
						t.Error("the zombie was refused nothing")
					}
					if s := zombie.app.Stats(); s.Lost == 0 {
						t.Errorf("the zombie lost no membership: %+v", s)
					}
				})
			})
		}
	}
}

// A zombie whose processor is held, not its network, wakes with its outputs
// unsent.
func TestZombieBeforeItsFirstOutput(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.feed(50)
		zombie, other := b.launch("zombie", options{}), b.launch("other", options{})
		b.running(zombie, other)
		b.settle()
		asleep := make(chan struct{})
		hold := pauseOnce(1, 20*time.Second, func() { zombie.wire.freeze(); close(asleep) })
		zombie.onLine.Store(&hold)
		b.feed(100)
		<-asleep
		b.until("the other has all tasks", func() bool { return other.app.Stats().Running == 2*partitions })
		time.Sleep(10 * time.Second)
		zombie.wire.thaw()
		b.feedFor(2 * time.Second)
		b.settle()
		zombie.stop()
		other.stop()
		b.mustBeExact()
		if s := zombie.app.Stats(); s.Lost == 0 || sum(s.Aborts) == 0 {
			t.Errorf("the zombie lost no membership or aborted nothing: %+v", s)
		}
	})
}
