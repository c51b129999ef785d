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
		before := i.app.Stats().Commits
		began := time.Now()
		b.feed(200)
		b.until("it commits early", func() bool { return i.app.Stats().Commits > before+2 })
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the third commit came after %v", took)
		}
		b.settle()
		i.stop()
		b.mustBeExact()
	})
}
