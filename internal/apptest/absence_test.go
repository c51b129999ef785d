package apptest

import (
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
)

// Compaction may drop a tombstone a day after it was written. A store that was
// away for longer would keep the row, so it reads its changelog from the start.
func TestStoreThatWasAwayForLongIsRestoredFromTheBeginning(t *testing.T) {
	for _, test := range []struct {
		name    string
		away    time.Duration
		restart bool
		whole   bool
	}{
		{name: "an hour", away: time.Hour},
		{name: "a day", away: 24 * time.Hour, whole: true},
		{name: "half a day of quiet, then a restart", away: 13 * time.Hour, restart: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				o := options{onDisk: true, stateDir: t.TempDir()}
				first := b.launch("first", o)
				b.feed(100)
				b.settle()
				if test.restart {
					time.Sleep(test.away)
				}
				first.stop()
				if !test.restart {
					other := b.launch("other", options{})
					b.feed(10)
					b.settle()
					other.stop()
					time.Sleep(test.away)
				}
				written := int64(len(b.read(changelog, true)))
				again := b.launch("again", o)
				b.running(again)
				restored := again.app.Stats().Restored
				b.feed(10)
				b.settle()
				again.stop()
				b.mustBeExact()
				if whole := restored == written; whole != test.whole {
					t.Errorf("%d of %d changelog records were read", restored, written)
				}
			})
		})
	}
}
