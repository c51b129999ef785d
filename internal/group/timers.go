package group

import "container/heap"

type timerKind int8

const (
	timerSession timerKind = iota + 1 // a member, or a member id handed out, is silent
	timerJoin                         // the rebalance has waited long enough for members
	timerSync                         // the generation has waited long enough for SyncGroup
	timerExpiry                       // look for expired offsets
)

// timer is one deadline. Moving it later is lazy: heapMs, its place in the
// heap, stays until that time comes, so that a heartbeat costs no heap work.
type timer struct {
	kind     timerKind
	group    *group
	memberID string
	atMs     int64
	heapMs   int64
	seq      uint64 // ties fire in the order in which the timers were set
	index    int    // in the heap; -1 is not set
}

func newTimer(kind timerKind, g *group, memberID string) *timer {
	return &timer{kind: kind, group: g, memberID: memberID, index: -1}
}

// timerHeap is a min-heap by heapMs, then seq.
type timerHeap struct {
	items []*timer
	seq   uint64
}

func (h *timerHeap) Len() int { return len(h.items) }
func (h *timerHeap) Less(i, j int) bool {
	a, b := h.items[i], h.items[j]
	if a.heapMs != b.heapMs {
		return a.heapMs < b.heapMs
	}
	return a.seq < b.seq
}

func (h *timerHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}

// Push is for container/heap.
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(h.items)
	h.items = append(h.items, t)
}

// Pop is for container/heap.
func (h *timerHeap) Pop() any {
	n := len(h.items) - 1
	t := h.items[n]
	h.items[n] = nil
	h.items = h.items[:n]
	t.index = -1
	return t
}

// set starts t or moves it to atMs.
func (h *timerHeap) set(t *timer, atMs int64) {
	t.atMs = atMs
	if t.index >= 0 && t.heapMs <= atMs {
		return
	}
	h.place(t)
}

func (h *timerHeap) place(t *timer) {
	t.heapMs = t.atMs
	h.seq++
	t.seq = h.seq
	if t.index >= 0 {
		heap.Fix(h, t.index)
		return
	}
	heap.Push(h, t)
}

func (h *timerHeap) cancel(t *timer) {
	if t.index >= 0 {
		heap.Remove(h, t.index)
	}
}

// next takes out a timer that is due at nowMs, nil if none is.
func (h *timerHeap) next(nowMs int64) *timer {
	for len(h.items) > 0 {
		t := h.items[0]
		if t.heapMs > nowMs {
			return nil
		}
		if t.atMs > t.heapMs {
			h.place(t)
			continue
		}
		heap.Pop(h)
		return t
	}
	return nil
}

// deadlineMs is when to Tick; because of lazy timers it may be too early,
// never too late. 0 is never.
func (h *timerHeap) deadlineMs() int64 {
	if len(h.items) == 0 {
		return 0
	}
	return max(h.items[0].heapMs, 1)
}
