package apptest

import (
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/streams"
)

// A small MaxUncommittedBytes means early commits and nothing else.
func TestSmallUncommittedBytesCommitEarly(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		i := b.launch("app", options{change: func(c *streams.Config) {
			c.MaxUncommittedBytes = 2 << 10
			c.CommitInterval, c.TransactionTimeout = 5*time.Second, time.Minute
		}})
		b.running(i)
		// How many commits one feed takes depends on how much of it a poll
		// brings; each feed takes one at least.
		began := time.Now()
		for range 3 {
			before := i.app.Stats().Commits
			b.feed(100)
			b.until("it commits early", func() bool { return i.app.Stats().Commits > before })
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the third commit came after %v", took)
		}
		b.settle()
		i.stop()
		b.mustBeExact()
	})
}
