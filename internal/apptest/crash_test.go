package apptest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// moment finds a point in the life of a transaction: a message for which is
// answers yes. The first skip of them pass.
type moment struct {
	name string
	is   func(m message) bool
}

func requestOf(key int16) func(message) bool {
	return func(m message) bool { return !m.reply && m.key == key }
}

func replyOf(key int16) func(message) bool {
	return func(m message) bool { return m.reply && m.key == key }
}

const (
	keyProduce         = 0
	keyFetch           = 1
	keyOffsetCommit    = 8
	keyHeartbeat       = 12
	keySyncGroup       = 14
	keyEndTxn          = 26
	keyTxnOffsetCommit = 28
)

// moments are the points of a transaction in order.
var moments = []moment{
	{"at the first output", requestOf(keyProduce)},
	{"outputs written, not acknowledged", replyOf(keyProduce)},
	{"outputs flushed, before the offsets", requestOf(keyTxnOffsetCommit)},
	{"offsets written, not acknowledged", replyOf(keyTxnOffsetCommit)},
	{"before EndTxn", requestOf(keyEndTxn)},
	{"committed, before the answer", replyOf(keyEndTxn)},
}

// once calls do at the n-th message that matches (from 1), in the goroutine
// that carries the message, and lets do decide about it.
func once(is func(message) bool, n int64, do func() verdict) func(message) verdict {
	var seen atomic.Int64
	return func(m message) verdict {
		if is(m) && seen.Add(1) == n {
			return do()
		}
		return pass
	}
}

func TestBrokerCrashLosesAndRepeatsNothing(t *testing.T) {
	for _, policy := range []struct {
		name string
		vfs.CrashPolicy
		moments []moment
	}{{"power cut", vfs.DropUnsynced, moments}, {"kill -9", vfs.KeepUnsynced, moments[4:]}, {"torn", vfs.Torn(7), moments[4:]}} {
		for _, at := range policy.moments {
			t.Run(policy.name+"/"+at.name, func(t *testing.T) {
				scenario(t, broker.Faults{}, func(b *bed) {
					b.feed(50)
					first, second := b.launch("first", options{onDisk: true}), b.launch("second", options{})
					b.running(first, second)
					for n := range 2 {
						crashed := make(chan struct{})
						first.wire.watch(once(at.is, int64(4+3*n), func() verdict {
							b.crash(policy.CrashPolicy)
							close(crashed)
							return cut
						}))
						for down := false; !down; {
							select {
							case <-crashed:
								down = true
							case <-time.After(20 * time.Millisecond):
								b.offer(2)
							}
						}
						time.Sleep(time.Second)
						b.start()
						b.feedFor(time.Second)
					}
					b.settle()
					first.stop()
					second.stop()
					b.mustBeExact()
				})
			})
		}
	}
}
