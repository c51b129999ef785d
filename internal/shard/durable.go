package shard

import (
	"sync"

	"github.com/hanbeon/hanbeon/internal/seglog"
)

// pendingDurable remembers, in append order, which partitions wait for the
// journal to become durable up to where.
type pendingDurable struct {
	mu    sync.Mutex
	queue []pendingAppend
}

type pendingAppend struct {
	lsn seglog.LSN
	p   *Partition
}

func (d *pendingDurable) add(lsn seglog.LSN, p *Partition) {
	d.mu.Lock()
	// Shards append concurrently, so the queue is only nearly sorted; an entry
	// that is found late is still found, by the next commit at the latest.
	d.queue = append(d.queue, pendingAppend{lsn, p})
	d.mu.Unlock()
}

// take removes what is durable at lsn and returns each partition once.
func (d *pendingDurable) take(lsn seglog.LSN) []*Partition {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*Partition
	seen := map[*Partition]struct{}{}
	keep := d.queue[:0]
	for _, e := range d.queue {
		if e.lsn > lsn {
			keep = append(keep, e)
			continue
		}
		if _, dup := seen[e.p]; !dup {
			seen[e.p] = struct{}{}
			out = append(out, e.p)
		}
	}
	clear(d.queue[len(keep):])
	d.queue = keep
	return out
}

// OnDurable is the store's callback after each group commit.
func (e *Env) OnDurable(lsn seglog.LSN) {
	for _, p := range e.pending.take(lsn) {
		p.waiters.wake()
	}
}

// waiters are the fetches that wait for a partition to grow.
type waiters struct {
	mu  sync.Mutex
	set map[chan<- struct{}]struct{}
}

// Subscribe has c signalled, without blocking, whenever more of the partition
// may be visible. c needs a buffer of one.
func (p *Partition) Subscribe(c chan<- struct{}) {
	p.waiters.mu.Lock()
	defer p.waiters.mu.Unlock()
	if p.waiters.set == nil {
		p.waiters.set = map[chan<- struct{}]struct{}{}
	}
	p.waiters.set[c] = struct{}{}
}

// Unsubscribe ends Subscribe.
func (p *Partition) Unsubscribe(c chan<- struct{}) {
	p.waiters.mu.Lock()
	defer p.waiters.mu.Unlock()
	delete(p.waiters.set, c)
}

func (w *waiters) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.set {
		select {
		case c <- struct{}{}:
		default: // it has a signal waiting already
		}
	}
}
