package core

import (
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// partition is one partition's queue of unacknowledged batches, in sequence
// order.
type partition struct {
	leader       int32
	queue        []*Batch
	inFlight     int
	inFlightNode int32
	nextSequence int32
	nextOrdinal  uint64
	generation   uint64 // the identity nextSequence belongs to

	// serial: one batch in flight until an acknowledgement. It is set for a
	// fresh identity, since a partition that does not know it accepts any
	// first sequence, and after a failure, to resend in order.
	serial        bool
	attempts      int
	retryAtMs     int64
	registeredTxn uint64 // version 1: added to this transaction
	lastCode      int16  // why the last attempt failed, for the message
}

// brokerState is what limits the requests to one broker.
type brokerState struct {
	node             int32
	gate             int64 // the request not yet written, 0 if none
	inFlight         int
	throttledUntilMs int64
}

type produceRequest struct {
	node    int32
	batches []*Batch
}

// broker returns the state of a broker, making it if new. The list is sorted,
// so that effects come in a fixed order.
func (m *Machine) broker(node int32) *brokerState {
	i, ok := slices.BinarySearchFunc(m.brokers, node, func(b *brokerState, n int32) int { return int(b.node) - int(n) })
	if !ok {
		m.brokers = slices.Insert(m.brokers, i, &brokerState{node: node})
	}
	return m.brokers[i]
}

func (m *Machine) onAppend(batches []*Batch) {
	usable := !m.poisoned && m.op != opResolve
	if m.cfg.Transactional {
		usable = usable && m.state == stateOpen
	} else {
		usable = usable && m.state == stateReady
	}
	for _, b := range batches {
		if !usable {
			m.emit(Release{Batch: b, LastOffset: -1})
			continue
		}
		p := &m.partitions[b.Partition]
		*b = Batch{Partition: b.Partition, Count: b.Count, SizeBytes: b.SizeBytes, Payload: b.Payload, createdMs: m.nowMs}
		b.ordinal = p.nextOrdinal
		p.nextOrdinal++
		if len(p.queue) == 0 {
			m.active = append(m.active, b.Partition)
		}
		p.queue = append(p.queue, b)
		m.unacked++
	}
}

// sending says whether Produce requests may go out at all.
func (m *Machine) sending() bool {
	if !m.cfg.Transactional {
		return m.state == stateReady && !m.poisoned && m.op != opResolve
	}
	if m.op == opResolve {
		return m.phase == phaseDrain && m.protocol == 1 // only what must be known is left
	}
	return m.state == stateOpen && !m.poisoned && !m.held()
}

// dispatch sends one request per free broker, holding the next batch of every
// partition it leads. A broker is free while its last request has been
// written: Broker.Request promises no order between two callers, so this gate
// is what keeps sequences in order.
func (m *Machine) dispatch() {
	if m.unacked == m.inFlight || !m.sending() {
		return
	}
	for _, b := range m.brokers {
		for (b.gate == 0 || m.cfg.Break.OrderingGate) && b.inFlight < requestsInFlightMax && m.nowMs >= b.throttledUntilMs {
			batches := m.collect(b.node)
			if len(batches) == 0 {
				break
			}
			m.lastID++
			b.gate = m.lastID
			b.inFlight++
			m.requests[m.lastID] = &produceRequest{node: b.node, batches: batches}
			e := SendProduce{Request: m.lastID, Node: b.node, Batches: batches}
			if m.cfg.Transactional {
				m.touched = true
				if m.protocol >= 2 {
					e.VersionMin = 12
				} else {
					e.VersionMax = 11
				}
			}
			m.emit(e)
		}
	}
}

// collect takes the next batch of every partition led by a broker, and starts
// it: the sequence is assigned here, at the first send.
func (m *Machine) collect(node int32) []*Batch {
	var out []*Batch
	size := 0
	for _, i := range m.active {
		p := &m.partitions[i]
		if p.leader != node {
			continue
		}
		b := m.next(p)
		if b == nil || (size > 0 && size+b.SizeBytes > m.cfg.RequestMaxBytes) {
			continue
		}
		if !b.sent {
			b.sent, b.id, b.sequence = true, m.id, p.nextSequence
			p.nextSequence = sequenceAdd(p.nextSequence, b.Count)
		}
		b.inFlight = true
		p.inFlight++
		p.inFlightNode = node
		m.inFlight++
		size += b.SizeBytes
		out = append(out, b)
	}
	if len(out) > 1 && len(m.active) > len(out) {
		m.rotate()
	}
	return out
}

// rotate moves the first active partition to the end, so that a full request
// does not always serve the same ones.
func (m *Machine) rotate() {
	first := m.active[0]
	copy(m.active, m.active[1:])
	m.active[len(m.active)-1] = first
}

// next returns the batch a partition may send now, or nil.
func (m *Machine) next(p *partition) *Batch {
	if m.nowMs < p.retryAtMs || (m.protocol == 1 && m.cfg.Transactional && p.registeredTxn != m.txn) {
		return nil
	}
	if p.generation != m.generation && p.inFlight == 0 {
		p.generation, p.nextSequence, p.serial = m.generation, 0, true
	}
	i := slices.IndexFunc(p.queue, func(b *Batch) bool { return !b.inFlight })
	if i < 0 {
		return nil
	}
	b := p.queue[i]
	if p.inFlight > 0 {
		// A batch that failed is sent again only when nothing of its
		// partition is in flight any more, and only then may others follow.
		serial := p.serial && !m.cfg.Break.FreshIdentity
		if serial || b.sent || p.inFlightNode != p.leader {
			return nil
		}
	}
	// The window counts from the oldest unacknowledged batch, not the number
	// in flight: with batch 0 waiting for a retry and 1 to 5 appended, batch 0
	// would have left the broker's memory of five and could not be recognised.
	if b.ordinal-p.queue[0].ordinal >= windowBatches && !m.cfg.Break.Window {
		return nil
	}
	return b
}

func (m *Machine) onWritten(request int64) {
	if r, ok := m.requests[request]; ok {
		if b := m.broker(r.node); b.gate == request {
			b.gate = 0
		}
	}
}

func (m *Machine) onProduceReply(e ProduceReplyEvent) {
	r, ok := m.requests[e.Request]
	if !ok {
		return
	}
	m.onWritten(e.Request)
	delete(m.requests, e.Request)
	broker := m.broker(r.node)
	broker.inFlight--
	if e.ThrottleMs > 0 {
		broker.throttledUntilMs = max(broker.throttledUntilMs, m.nowMs+e.ThrottleMs)
	}
	for _, b := range r.batches {
		b.inFlight = false
		m.partitions[b.Partition].inFlight--
		m.inFlight--
	}
	for i, b := range r.batches {
		res := ProduceResult{Missing: true}
		if !e.Lost && i < len(e.Results) {
			res = e.Results[i]
		}
		m.onBatchResult(b, res)
	}
}

func (m *Machine) onBatchResult(b *Batch, res ProduceResult) {
	p := &m.partitions[b.Partition]
	if res.Missing {
		b.maybeWritten = true
		m.retryBatch(p, b, true, 0)
		return
	}
	f := Failure{Request: ReqProduce, Code: res.Code, Message: res.Message, Partition: b.Partition}
	v := VerdictFor(ReqProduce, res.Code)
	f.Reason = v.Reason
	switch v.Action {
	case ActOK:
		m.ack(p, b, res.BaseOffset)
	case ActDuplicate:
		m.ack(p, b, -1)
	case ActRetry:
		// REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND come from
		// batches that were appended.
		b.maybeWritten = b.maybeWritten || res.Code == 7 || res.Code == 20
		m.retryBatch(p, b, false, res.Code)
	case ActRefresh:
		m.retryBatch(p, b, true, res.Code)
	case ActGap:
		if p.queue[0] != b {
			// An earlier batch is pending: kgo may have sent this one on a
			// new connection before the earlier one's failure was reported,
			// so nothing is lost. Drain, then resend in order.
			m.retryBatch(p, b, false, res.Code)
			return
		}
		m.failBatch(p, b, f)
	case ActFenced, ActFatal:
		m.remove(p, b, Release{Batch: b, LastOffset: -1})
		m.fatal(f)
	default:
		m.failBatch(p, b, f)
	}
}

func (m *Machine) failBatch(p *partition, b *Batch, f Failure) {
	m.remove(p, b, Release{Batch: b, LastOffset: -1})
	if f.Reason == ReasonTopicRecreated {
		p.leader = NoNode // the next batch needs the new topic's id
	}
	if !m.cfg.Break.Poison {
		m.poison(f)
	}
}

func (m *Machine) ack(p *partition, b *Batch, base batch.Offset) {
	last := batch.Offset(-1)
	if base >= 0 {
		last = base + batch.Offset(b.Count) - 1
	}
	m.remove(p, b, Release{Batch: b, Acked: true, LastOffset: last})
	p.attempts, p.lastCode = 0, 0
	p.serial = false
	m.proved = m.proved || b.id == m.id
}

// remove takes a batch out of its queue and gives it back to the shell.
func (m *Machine) remove(p *partition, b *Batch, r Release) {
	if i := slices.Index(p.queue, b); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
		m.unacked--
		if len(p.queue) == 0 {
			p.retryAtMs = 0
			m.active = slices.DeleteFunc(m.active, func(i int) bool { return i == b.Partition })
		}
		m.emit(r)
	}
}

// retryBatch leaves a batch in its queue to be sent again, unless nobody
// waits for it any more.
func (m *Machine) retryBatch(p *partition, b *Batch, stale bool, code int16) {
	if m.unwanted(b) {
		m.remove(p, b, Release{Batch: b, LastOffset: -1})
		return
	}
	p.serial = true
	p.lastCode = code
	if stale {
		p.leader = NoNode
	}
	if p.retryAtMs <= m.nowMs { // not for each of five requests lost at once
		p.attempts++
		p.retryAtMs = m.nowMs + m.backoff(p.attempts, code)
	}
	m.emit(Retried{Kind: ReqProduce, Code: code})
}

// unwanted says that a batch which is not in flight need not be sent (again).
//
// Under version 2 the abort's new epoch shuts out every copy of it. Under
// version 1 a copy that may be under way could be appended behind the abort
// marker and hang the partition; it is sent again until its fate is known,
// after which the copy is a duplicate.
func (m *Machine) unwanted(b *Batch) bool {
	switch {
	case m.state == stateFatal:
		return true
	case !m.poisoned && m.op != opResolve:
		return false
	}
	return !(m.cfg.Transactional && m.protocol == 1 && b.maybeWritten && !b.dropped)
}

// dropUnsent gives back every batch that is not in flight and need not be sent.
func (m *Machine) dropUnsent() {
	for _, i := range slices.Clone(m.active) {
		p := &m.partitions[i]
		for _, b := range slices.Clone(p.queue) {
			if !b.inFlight && m.unwanted(b) {
				m.remove(p, b, Release{Batch: b, LastOffset: -1})
			}
		}
	}
}

// checkDelivery fails what was not acknowledged in time. A batch in flight is
// not cancelled; the transaction just cannot commit any more.
func (m *Machine) checkDelivery() {
	due := func(i int) bool { return m.nowMs >= m.partitions[i].queue[0].createdMs+m.cfg.DeliveryTimeoutMs }
	if !slices.ContainsFunc(m.active, due) {
		return
	}
	for _, i := range slices.Clone(m.active) {
		p := &m.partitions[i]
		if len(p.queue) == 0 || !due(i) { // dropped meanwhile by poison
			continue
		}
		b := p.queue[0]
		b.dropped = true
		reason := ReasonDeliveryTimeout
		if p.lastCode == 3 {
			reason = ReasonUnknownTopic
		}
		m.poison(Failure{Reason: reason, Request: ReqProduce, Code: p.lastCode, Partition: i,
			Message: "the batch was not acknowledged in time"})
		if m.poisoned && !b.inFlight && m.unwanted(b) {
			m.remove(p, b, Release{Batch: b, LastOffset: -1})
		}
	}
}
