package apptest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
)

// A request is held by the network. The client sends it again, ends its
// transaction and begins the next one; then the first copy arrives.
func TestLateRequestsOfAnEndedTransactionChangeNothing(t *testing.T) {
	for name, key := range map[string]int16{"batches": keyProduce, "offsets": keyTxnOffsetCommit, "EndTxn": keyEndTxn} {
		t.Run(name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				b.feed(50)
				first, second := b.launch("first", options{onDisk: true}), b.launch("second", options{})
				b.running(first, second)
				var seen atomic.Int64
				first.wire.watch(func(m message) verdict {
					if !m.reply && m.key == key && seen.Add(1)%4 == 0 {
						return late
					}
					return pass
				})
				b.feedFor(5 * time.Second)
				first.wire.watch(nil)
				b.settle()
				time.Sleep(2 * lateBy)
				first.stop()
				second.stop()
				b.mustBeExact()
				if n := first.wire.lates; n < 3 {
					t.Errorf("only %d requests came late", n)
				}
			})
		})
	}
}
