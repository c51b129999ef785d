package seglog

import (
	"sync"
	"sync/atomic"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// item is an entry on its way to the journal.
type item struct {
	kind    entryKind
	log     *Log
	offset  batch.Offset
	payload []byte
	after   logState // of the log, once this entry is applied
	lsn     LSN
}

func (it *item) bytes() int { return entryHeaderBytes + len(it.payload) }

// queue holds the entries not yet committed. Its order is the order of the
// journal and of LSNs.
type queue struct {
	mu    sync.Mutex
	room  sync.Cond // signalled when bytes falls or err is set
	items []item
	bytes int // of entries not yet committed, those taken included
	max   int
	lsn   atomic.Uint64 // last one given out; written under mu
	err   error
	wake  chan struct{} // capacity 1: there is something to take
}

func newQueue(maxBytes int) *queue {
	q := &queue{max: maxBytes, wake: make(chan struct{}, 1)}
	q.room.L = &q.mu
	return q
}

// put appends an entry, waiting while the queue is full. One entry always
// fits in an empty queue.
func (q *queue) put(it item) (LSN, error) {
	q.mu.Lock()
	for q.err == nil && q.bytes > 0 && q.bytes+it.bytes() > q.max {
		q.room.Wait()
	}
	if q.err != nil {
		q.mu.Unlock()
		return 0, q.err
	}
	it.lsn = LSN(q.lsn.Load() + 1)
	q.lsn.Store(uint64(it.lsn))
	q.bytes += it.bytes()
	q.items = append(q.items, it)
	q.mu.Unlock()
	q.poke()
	return it.lsn, nil
}

// poke wakes the committer.
func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns everything queued; spare becomes the next buffer.
func (q *queue) take(spare []item) []item {
	clear(spare[:cap(spare)]) // let go of the payloads
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = spare[:0]
	return items
}

// committed gives back the room of committed entries.
func (q *queue) committed(bytes int) {
	q.mu.Lock()
	q.bytes -= bytes
	q.mu.Unlock()
	q.room.Broadcast()
}

// stop makes every put, waiting or to come, return err. The first one stays.
func (q *queue) stop(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.mu.Unlock()
	q.room.Broadcast()
}
