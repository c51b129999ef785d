package apptest

import (
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
	"github.com/hanbeon/hanbeon/internal/faults"
)

// killAt kills the instance at the n-th message that matches from now on.
func (i *instance) killAt(is func(message) bool, n int64) (dead <-chan struct{}) {
	done := make(chan struct{})
	i.wire.watch(once(is, n, func() verdict {
		i.wire.kill()
		close(done)
		return cut
	}))
	return done
}

// feedUntil writes lines until the channel is closed.
func (b *bed) feedUntil(done <-chan struct{}) {
	b.t.Helper()
	for {
		select {
		case <-done:
			return
		case <-time.After(20 * time.Millisecond):
			b.feed(2)
		}
	}
}

// killedAndRestarted kills a lone instance at a message and starts it again
// from the same state directory, three times.
func (b *bed) killedAndRestarted(is func(message) bool, o options) (last *instance) {
	b.t.Helper()
	o.stateDir = b.t.TempDir()
	b.feed(50)
	for range 3 {
		i := b.launch("killed", o)
		b.running(i)
		b.feedFor(300 * time.Millisecond)
		b.feedUntil(i.killAt(is, 3))
		i.kill()
	}
	return b.launch("last", o)
}

func TestRestartAfterKill(t *testing.T) {
	for _, at := range moments {
		for name, onDisk := range map[string]bool{"memory": false, "disk": true} {
			t.Run(at.name+"/"+name, func(t *testing.T) {
				scenario(t, broker.Faults{}, func(b *bed) {
					last := b.killedAndRestarted(at.is, options{onDisk: onDisk})
					b.running(last)
					b.feedFor(300 * time.Millisecond)
					b.settle()
					last.stop()
					b.mustBeExact()
				})
			})
		}
	}
}

// Another instance takes over from one that died, which no longer ends its
// transaction: the coordinator does, by time.
func TestTakeoverAfterKill(t *testing.T) {
	for _, at := range moments {
		t.Run(at.name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				b.feed(50)
				first, second := b.launch("first", options{onDisk: true}), b.launch("second", options{onDisk: true})
				b.running(first, second)
				b.feedUntil(first.killAt(at.is, 3))
				first.kill()
				b.feedFor(time.Second)
				b.running(second)
				b.feedFor(time.Second)
				b.settle()
				second.stop()
				b.mustBeExact()
			})
		})
	}
}

func TestThirdInstanceJoinsAndLeaves(t *testing.T) {
	for name, onDisk := range map[string]bool{"memory": false, "disk": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				o := options{onDisk: onDisk}
				b.feed(50)
				first, second := b.launch("first", o), b.launch("second", o)
				b.running(first, second)
				b.feedFor(time.Second)
				third := b.launch("third", o)
				for range 100 {
					b.feedFor(50 * time.Millisecond)
					if third.app.Stats().Running > 0 {
						break
					}
				}
				b.running(first, second, third)
				b.feedFor(time.Second)
				for _, i := range []*instance{first, second, third} {
					if n := i.app.Stats().Running; n < 2 || n > 3 {
						t.Errorf("%s runs %d of %d tasks", i.name, n, 2*partitions)
					}
				}
				first.stop()
				b.feedFor(time.Second)
				b.running(second, third)
				b.settle()
				second.stop()
				third.stop()
				b.mustBeExact()
				for _, i := range []*instance{first, second, third} {
					if s := i.app.Stats(); s.Rebalances < 1 || s.Commits == 0 || s.Lost > 0 || sum(s.Aborts) > 0 {
						t.Errorf("%s: the rebalances were not orderly: %+v", i.name, s)
					}
				}
			})
		})
	}
}

// A restart reads of the changelog what the store on disk does not have.
func TestRestartReadsOnlyTheTailOfTheChangelog(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		o := options{onDisk: true, stateDir: t.TempDir()}
		first := b.launch("first", o)
		b.feed(400)
		b.settle()
		first.stop()

		clean := b.launch("clean", o)
		b.running(clean)
		if s := clean.app.Stats(); s.Restored != 0 {
			t.Errorf("after a clean stop %d changelog records were read", s.Restored)
		}
		// What is committed and not in the store is the tail. The first commit
		// has the lines, the second the counts.
		b.settle()
		dead := clean.killAt(commitReply, 2)
		b.feed(2)
		<-dead
		clean.kill()

		last := b.launch("last", o)
		b.settle()
		s := last.app.Stats()
		last.stop()
		if total := len(b.read(changelog, true)); s.Restored == 0 || s.Restored > 10 || total < 40 {
			t.Errorf("%d of %d changelog records were read", s.Restored, total)
		}
		b.mustBeExact()
	})
}

func TestControlOffsetsOutsideTheTransaction(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		last := b.killedAndRestarted(requestOf(keyOffsetCommit), options{faults: faults.Set{OffsetsOutsideTransaction: true}})
		b.settled(time.Minute)
		last.stop()
		b.mustBeBroken()
	})
}

func TestControlStoreAppliedBeforeTheCommit(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		last := b.killedAndRestarted(commitRequest, options{onDisk: true, faults: faults.Set{StoreBeforeCommit: true}})
		b.settled(time.Minute)
		last.stop()
		b.mustBeBroken()
	})
}

func TestControlUnknownTakenForAborted(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		cutOff, other := b.blackout(commitReply, faults.Set{UnknownIsAborted: true})
		b.settled(time.Minute)
		cutOff.stop()
		other.stop()
		b.mustBeBroken()
	})
}

func TestControlNoGroupMetadata(t *testing.T) {
	scenario(t, broker.Faults{}, func(b *bed) {
		zombie, other := b.zombie(moments[2], 15*time.Second, faults.Set{NoGroupMetadata: true})
		b.settled(time.Minute)
		zombie.stop()
		other.stop()
		b.mustBeBroken()
	})
}

func TestControlNoGenerationCheck(t *testing.T) {
	scenario(t, broker.Faults{NoGenerationCheck: true}, func(b *bed) {
		zombie, other := b.zombie(moments[2], 15*time.Second, faults.Set{})
		b.settled(time.Minute)
		zombie.stop()
		other.stop()
		b.mustBeBroken()
	})
}
