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

func commitRequest(m message) bool { return !m.reply && m.endsTransaction(true) }
func commitReply(m message) bool   { return m.reply && m.endsTransaction(true) }

// every cuts each n-th message that matches.
func every(n int64, is func(message) bool) func(message) verdict {
	var seen atomic.Int64
	return func(m message) verdict {
		if is(m) && seen.Add(1)%n == 0 {
			return cut
		}
		return pass
	}
}

// A message of EndTxn that is lost now and then is made up for by a retry of
// the same request; nobody needs to know.
func TestLostEndTxnIsRetried(t *testing.T) {
	for name, lost := range map[string]func(message) bool{"request": commitRequest, "reply": commitReply} {
		t.Run(name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				b.feed(50)
				first, second := b.launch("first", options{}), b.launch("second", options{})
				var cuts atomic.Int64
				hook := every(3, lost)
				first.wire.watch(func(m message) verdict {
					v := hook(m)
					if v == cut {
						cuts.Add(1)
					}
					return v
				})
				b.running(first, second)
				b.feedFor(3 * time.Second)
				b.settle()
				first.stop()
				second.stop()
				b.mustBeExact()
				if cuts.Load() < 3 {
					t.Errorf("only %d messages were lost", cuts.Load())
				}
				if s := first.app.Stats(); s.Unknown > 0 || sum(s.Aborts) > 0 {
					t.Errorf("the retry did not find the outcome: %+v", s)
				}
			})
		})
	}
}

// blackout loses every EndTxn of the instance from the first message that
// matches on, until the producer has given up waiting for an answer.
func (b *bed) blackout(first func(message) bool, f faults.Set) (cutOff, other *instance) {
	b.t.Helper()
	b.feed(50)
	cutOff, other = b.launch("cut off", options{faults: f}), b.launch("other", options{})
	b.running(cutOff, other)
	b.settle()
	var until atomic.Int64
	dark := make(chan struct{})
	cutOff.wire.watch(func(m message) verdict {
		if first(m) && until.CompareAndSwap(0, time.Now().Add(transactionTimeout+5*time.Second).UnixMilli()) {
			close(dark)
			return cut
		}
		if commitRequest(m) && time.Now().UnixMilli() < until.Load() {
			return cut
		}
		return pass
	})
	b.feed(50)
	<-dark
	b.feedFor(time.Second)
	time.Sleep(40 * time.Second)
	b.feedFor(time.Second)
	return cutOff, other
}

func TestUnknownOutcomeIsResolvedAsCommitted(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		cutOff, other := b.blackout(commitReply, faults.Set{})
		b.settle()
		cutOff.stop()
		other.stop()
		b.mustBeExact()
		if s := cutOff.app.Stats(); s.Unknown != 1 || s.Kept != 1 {
			t.Errorf("want one unknown outcome, resolved as committed: %+v", s)
		}
	})
}

func TestUnknownOutcomeIsResolvedAsAborted(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		cutOff, other := b.blackout(commitRequest, faults.Set{})
		b.settle()
		cutOff.stop()
		other.stop()
		b.mustBeExact()
		if s := cutOff.app.Stats(); s.Unknown != 1 || s.Kept != 0 || sum(s.Aborts) == 0 {
			t.Errorf("want one unknown outcome, resolved as aborted: %+v", s)
		}
	})
}

// The broker has committed and answers UNKNOWN_SERVER_ERROR.
func TestUnknownServerErrorToASuccessfulCommit(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.feed(50)
		first, second := b.launch("first", options{}), b.launch("second", options{})
		b.running(first, second)
		var seen, changed atomic.Int64
		first.wire.change(func(m message) bool {
			end, ok := m.response.(*kmsg.EndTxnResponse)
			if !ok || !m.endsTransaction(true) || seen.Add(1)%3 != 0 {
				return false
			}
			end.ErrorCode, end.ProducerID, end.ProducerEpoch = kerr.UnknownServerError.Code, -1, -1
			changed.Add(1)
			return true
		})
		b.feedFor(3 * time.Second)
		first.wire.change(nil)
		b.settle()
		first.stop()
		second.stop()
		b.mustBeExact()
		s := first.app.Stats()
		t.Logf("%d answers changed: %+v", changed.Load(), s)
		if changed.Load() == 0 {
			t.Error("no answer was changed")
		}
	})
}
