package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hanbeon/hanbeon/verify"
)

const (
	// replacedWithin is how long the group may take to give a frozen worker's
	// place away, beyond the time that the plan allows. A group that is just
	// rebalancing does not expire a member that waits for the outcome.
	replacedWithin = 30 * time.Second
	// fencedWithin is how long a zombie may take to be refused after it went on.
	fencedWithin = 20 * time.Second
)

// faults carries out a plan.
type faults struct {
	plan    []fault
	random  *rand.Rand
	workers *workers
	broker  *brokerProcess // nil where the broker is not ours
	cluster *cluster
	say     func(format string, args ...any)

	mu       sync.Mutex
	evidence verify.Evidence
}

// run carries out the plan and returns when the last zombie has been dealt with.
func (f *faults) run(ctx context.Context) error {
	start := time.Now()
	var zombies sync.WaitGroup
	defer zombies.Wait()
	for _, next := range f.plan {
		if !pause(ctx, time.Until(start.Add(next.At))) {
			return ctx.Err()
		}
		var err error
		switch next.Kind {
		case killWorker:
			err = f.killWorker(ctx)
		case killBroker:
			err = f.killBroker(ctx)
		case freezeWorker:
			var zombie *worker
			if zombie, err = f.freeze(ctx); err == nil {
				zombies.Go(func() { f.revive(ctx, zombie) })
			}
		}
		if err != nil {
			return err
		}
	}
	zombies.Wait()
	return ctx.Err()
}

func (f *faults) killWorker(ctx context.Context) error {
	w, err := f.pick(ctx)
	if err != nil {
		return err
	}
	pid := f.workers.kill(w)
	f.count(func(e *verify.Evidence) { e.WorkerKills++ })
	f.say("kill -9 %s (process %d), and start it again on its state directory", w.name, pid)
	return f.workers.start(w)
}

func (f *faults) killBroker(ctx context.Context) error {
	pid := f.broker.child.pid()
	f.broker.kill()
	f.count(func(e *verify.Evidence) { e.BrokerKills++ })
	f.say("kill -9 the broker (process %d), and start it again on its directory", pid)
	start := time.Now()
	if err := f.broker.start(ctx); err != nil {
		return err
	}
	f.say("the broker is back after %v", time.Since(start).Round(time.Millisecond))
	return nil
}

// pick chooses a worker to hit. It waits where all of them are frozen, which a
// zombie that is dealt with ends.
func (f *faults) pick(ctx context.Context) (*worker, error) {
	for {
		if w := f.workers.pick(f.random); w != nil {
			return w, nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// freeze stops a worker where it stands, in the middle of its work.
func (f *faults) freeze(ctx context.Context) (*worker, error) {
	w, err := f.pick(ctx)
	if err != nil {
		return nil, err
	}
	c := f.workers.setFrozen(w, true)
	if err := pauseProcess(c.cmd.Process); err != nil {
		return nil, fmt.Errorf("stopping %s: %w", w.name, err)
	}
	f.count(func(e *verify.Evidence) { e.Zombies++ })
	f.say("SIGSTOP %s (process %d) for %v, past its session timeout of %v", w.name, c.pid(), sessionTimeout+freezeBeyond, sessionTimeout)
	return w, nil
}

// revive lets a frozen worker go on when its place has been given away, and
// waits until it has been told so.
func (f *faults) revive(ctx context.Context, w *worker) {
	if !pause(ctx, sessionTimeout+freezeBeyond) || !f.awaitReplaced(ctx, w) {
		return
	}
	before := f.workers.stats(w)
	c := f.workers.setFrozen(w, true)
	if err := resumeProcess(c.cmd.Process); err != nil {
		f.say("continuing %s: %v", w.name, err)
		return
	}
	f.say("SIGCONT %s: a zombie now, it believes that nothing has happened", w.name)
	deadline := time.Now().Add(fencedWithin)
	for {
		if now := f.workers.stats(w); now.Fenced > before.Fenced {
			f.count(func(e *verify.Evidence) { e.ZombiesFenced++ })
			f.say("%s, the zombie, is fenced: %s", w.name, now.FencedBecause)
			break
		}
		if time.Now().After(deadline) {
			f.say("%s, the zombie, was not fenced within %v", w.name, fencedWithin)
			break
		}
		if !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
	f.workers.setFrozen(w, false)
}

// awaitReplaced waits until the group has given the worker's place away, and
// reports whether ctx lasted.
func (f *faults) awaitReplaced(ctx context.Context, w *worker) bool {
	deadline := time.Now().Add(replacedWithin)
	for time.Now().Before(deadline) {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		member, err := f.cluster.hasMember(asking, w.config.Application, w.config.memberID())
		cancel()
		if err == nil && !member {
			return true
		}
		if !pause(ctx, 100*time.Millisecond) {
			return false
		}
	}
	f.say("the group has not given the place of %s away within %v more", w.name, replacedWithin)
	return true
}

func (f *faults) count(change func(*verify.Evidence)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.evidence)
}

// soFar returns what has been done.
func (f *faults) soFar() verify.Evidence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.evidence
}

// pause waits for d and reports whether ctx lasted.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
