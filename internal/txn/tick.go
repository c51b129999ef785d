package txn

import (
	"slices"
)

const (
	// maxExpiredPerTick bounds the batch of tombstones; the next Tick follows at
	// once.
	maxExpiredPerTick = 1000
	// fenceRetryMs is the pause before a timed-out transaction is tried again for
	// which no producer id was free.
	fenceRetryMs = 1000
)

// decideTick runs what is due and works out the next deadline. Ids are handled
// in sorted order, so that the effects do not depend on the order of the map.
func (m *Machine) decideTick(eff *Effects, nowMs int64) {
	m.deadlineMs = 0
	var due, expired []string
	for id, e := range m.entries {
		switch {
		case e.md.state == Ongoing && e.md.timeoutMs != noTimeoutMs && e.md.timeoutAtMs() <= nowMs:
			due = append(due, id)
		case e.md.state.prepared():
			due = append(due, id)
		case e.md.state.resting() && e.md.updateMs <= nowMs-m.cfg.IDExpirationMs:
			expired = append(expired, id)
		default:
			m.wakeFor(e.md)
		}
	}
	slices.Sort(due)
	for _, id := range due {
		if e := m.entries[id]; e.md.state == Ongoing {
			m.timeOut(eff, nowMs, e)
		} else {
			m.tickPrepared(eff, nowMs, e)
		}
	}
	m.expire(eff, nowMs, expired)
}

// timeOut aborts an open transaction whose timeout has passed
// (TransactionCoordinator.abortTimedOutTransactions).
func (m *Machine) timeOut(eff *Effects, nowMs int64, e *entry) {
	if !m.fence(eff, nowMs, e) {
		m.wake(nowMs + fenceRetryMs)
	}
}

// tickPrepared repeats markers and answers commands that waited too long.
func (m *Machine) tickPrepared(eff *Effects, nowMs int64, e *entry) {
	if len(e.retry) > 0 {
		if e.retryAtMs <= nowMs {
			eff.Markers = append(eff.Markers, m.markers(e.id, e.md, e.retry))
			e.retry = nil
		} else {
			m.wake(e.retryAtMs)
		}
	}
	m.release(eff, e, func(sinceMs int64) bool {
		if sinceMs+m.cfg.MaxWaitMs <= nowMs {
			return true
		}
		m.wake(sinceMs + m.cfg.MaxWaitMs)
		return false
	})
}

// expire writes tombstones for idle ids
// (TransactionStateManager.removeExpiredTransactionalIds).
func (m *Machine) expire(eff *Effects, nowMs int64, ids []string) {
	slices.Sort(ids)
	if len(ids) > maxExpiredPerTick {
		ids = ids[:maxExpiredPerTick]
		m.wake(nowMs)
	}
	for _, id := range ids {
		eff.Records = append(eff.Records, Record{Key: encodeKey(id)})
	}
}
