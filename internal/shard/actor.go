package shard

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// An actor runs the functions posted to it one at a time, in the order in
// which they were posted. It owns a goroutine only while there is work, so
// thousands of idle partitions cost no goroutine.
//
// The mailbox is unbounded on purpose: a bounded one could deadlock two
// shards that post to each other. What a client can put into it is bounded by
// the connection's own limit on requests under way.
type actor struct {
	mu      sync.Mutex
	queue   []task
	spare   []task // the slice drained last, used again
	running bool
	closed  bool
	wg      *sync.WaitGroup
	failed  func(error) // a function panicked: an assertion of a core failed
}

// task is a posted function. refuse, if not nil, is called when run panics.
type task struct{ run, refuse func() }

// post queues f. It reports false, and drops f, after stop.
func (a *actor) post(f func()) bool { return a.add(task{run: f}) }

// call queues a command that owes somebody an answer. refuse gives it where run
// cannot: after stop, on the caller's goroutine, or when run panics. It may be
// called although run has answered.
func (a *actor) call(run, refuse func()) {
	if !a.add(task{run, refuse}) {
		refuse()
	}
}

// once lets the first answer through only.
func once[T any](done func(T)) func(T) {
	given := false
	return func(v T) {
		if !given {
			given = true
			done(v)
		}
	}
}

func (a *actor) add(t task) bool {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return false
	}
	a.queue = append(a.queue, t)
	if a.running {
		a.mu.Unlock()
		return true
	}
	a.running = true
	a.wg.Add(1)
	a.mu.Unlock()
	go a.run()
	return true
}

// stop refuses further posts. What was queued before still runs.
func (a *actor) stop() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
}

func (a *actor) run() {
	defer a.wg.Done()
	for {
		a.mu.Lock()
		if len(a.queue) == 0 {
			a.running = false
			a.mu.Unlock()
			return
		}
		work := a.queue
		a.queue, a.spare = a.spare[:0], nil
		a.mu.Unlock()
		for i := range work {
			a.guard(work[i])
			work[i] = task{}
		}
		a.mu.Lock()
		a.spare = work[:0]
		a.mu.Unlock()
	}
}

// guard keeps a failed assertion inside its shard: the host program lives on.
func (a *actor) guard(t task) {
	defer func() {
		if r := recover(); r != nil {
			a.failed(fmt.Errorf("assertion failed: %v\n%s", r, debug.Stack()))
			if t.refuse != nil {
				a.guard(task{run: t.refuse})
			}
		}
	}()
	t.run()
}
