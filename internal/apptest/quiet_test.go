package apptest

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/broker"
)

// An instance without work sends its heartbeats and long polls, and no more.
func TestIdleInstanceIsQuiet(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		i := b.launch("idle", options{})
		b.feed(20)
		b.settle()
		dials, before := i.wire.traffic()
		const minutes = 10
		time.Sleep(minutes * time.Minute)
		dialsAfter, after := i.wire.traffic()
		for key, n := range after {
			perMinute := float64(n-before[key]) / minutes
			t.Logf("%s: %.1f a minute", kmsg.NameForKey(key), perMinute)
			limit := 2.0
			switch key {
			case keyHeartbeat:
				limit = 21
			case keyFetch:
				limit = 13
			}
			if perMinute > limit {
				t.Errorf("%s: %.1f requests a minute of an idle instance, want at most %v", kmsg.NameForKey(key), perMinute, limit)
			}
		}
		if n := dialsAfter - dials; n > minutes {
			t.Errorf("%d connections in %d idle minutes", n, minutes)
		}
		i.stop()
	})
}

// Without its broker an instance tries again at a pace that a broker with
// thousands of clients survives when it comes back.
func TestInstanceWithoutABrokerDoesNotStorm(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		i := b.launch("app", options{})
		b.feed(20)
		b.running(i)
		b.settle()
		b.feed(20)
		dials, _ := i.wire.traffic()
		i.wire.kill()
		const minutes = 3
		time.Sleep(minutes * time.Minute)
		after, _ := i.wire.traffic()
		perSecond := float64(after-dials) / (minutes * 60)
		t.Logf("%.1f dials a second", perSecond)
		if perSecond > 10 {
			t.Errorf("%.1f dials a second without a broker", perSecond)
		}
		i.kill()
	})
}
