package apptest

import (
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
)

// A process dies and is started again, and the group waits for the session of the
// dead one. Whoever is stopped meanwhile must not wait for it too.
func TestStopDoesNotWaitForADeadMember(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		b.feed(50)
		dead, stays := b.launch("dead", options{}), b.launch("stays", options{})
		b.running(dead, stays)
		b.settle()
		dead.wire.kill()
		again := b.launch("again", options{})
		time.Sleep(sessionTimeout / 2) // both are rejoining by now
		begin := time.Now()
		stays.stop()
		again.stop()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("stopping two processes took %v while the session of a third ran out", took)
		}
		dead.kill()
		last := b.launch("last", options{})
		b.running(last)
		b.settle()
		last.stop()
		b.mustBeExact()
	})
}
