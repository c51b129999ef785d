package prodstate

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Decide judges a write. Hard state is untouched; verification tokens, which are
// soft, may be made.
func (m *Machine) Decide(nowMs int64, c Command) Decision {
	switch c := c.(type) {
	case AppendBatch:
		return m.DecideBatch(nowMs, &c)
	case AppendMarker:
		return m.DecideMarker(nowMs, c)
	}
	return reject(kerr.UnknownServerError, "unknown command %T", c)
}

// DecideBatch is Decide for a data batch, without an allocation unless the batch
// is refused. The steps follow UnifiedLog.analyzeAndValidateProducerState and
// ProducerAppendInfo, in their order.
func (m *Machine) DecideBatch(nowMs int64, c *AppendBatch) Decision {
	m.nowMs = nowMs
	h := &c.Header
	if !h.HasProducer() {
		return Decision{Action: Append}
	}
	e := m.producers[h.ProducerID]
	if d, ok := m.decideDuplicate(e, c); ok {
		return d
	}
	if h.Epoch < e.currentEpoch() {
		return reject(kerr.InvalidProducerEpoch, "producer %d: epoch %d is older than the partition's epoch %d",
			h.ProducerID, h.Epoch, e.currentEpoch())
	}
	if h.IsTransactional() && !(e.isOpen() && e.epoch == h.Epoch) {
		if d, ok := m.decideUnverified(nowMs, c); ok {
			return d
		}
	}
	if !c.Coordinator {
		if d, ok := m.decideSequence(e, h); ok {
			return d
		}
	}
	if e.isOpen() && !h.IsTransactional() {
		return reject(kerr.InvalidTxnState, "producer %d has an open transaction since offset %d, but the batch is not transactional",
			h.ProducerID, e.txnFirstOffset)
	}
	return Decision{Action: Append}
}

// decideDuplicate finds a batch that was appended already. It comes before all
// else: the client only wants to know that its write is in the log.
func (m *Machine) decideDuplicate(e *entry, c *AppendBatch) (Decision, bool) {
	h := &c.Header
	if e == nil || c.Coordinator || e.epoch != h.Epoch || h.BaseSequence == batch.NoSequence {
		return Decision{}, false
	}
	b, ok := e.find(h.BaseSequence, h.LastSequence())
	if !ok {
		return Decision{}, false
	}
	e.lastSeenMs = max(e.lastSeenMs, m.nowMs)
	return Decision{
		Action:      Duplicate,
		BaseOffset:  b.firstOffset(),
		LastOffset:  b.lastOffset,
		TimestampMs: b.timestampMs,
	}, true
}

// decideUnverified handles a transactional batch that would open a transaction
// here: it needs the token that is installed.
func (m *Machine) decideUnverified(nowMs int64, c *AppendBatch) (Decision, bool) {
	if m.skipVerification && !c.TV2 {
		return Decision{}, false
	}
	h := &c.Header
	if c.Token == 0 {
		return Decision{Action: Verify, Token: m.touchToken(nowMs, c)}, true
	}
	if t := m.tokens[h.ProducerID]; t == nil || t.token != c.Token {
		return reject(kerr.InvalidTxnState,
			"producer %d, epoch %d: the verification of the transaction is void: the transaction was ended, or the verification expired",
			h.ProducerID, h.Epoch), true
	}
	return Decision{}, false
}

// touchToken returns the producer's token, making one at first, and keeps the
// lowest sequence of the newest epoch. A later in-flight batch must not overtake
// an earlier one whose verification failed in a way that is retried: the earlier
// one could then never be appended.
func (m *Machine) touchToken(nowMs int64, c *AppendBatch) Token {
	h := &c.Header
	t := m.tokens[h.ProducerID]
	switch {
	case t == nil:
		t = &tokenEntry{token: m.nextToken, createdMs: nowMs, epoch: h.Epoch, lowestSequence: h.BaseSequence, tv2: c.TV2}
		m.nextToken++
		m.tokens[h.ProducerID] = t
	case h.Epoch > t.epoch:
		t.epoch, t.lowestSequence, t.tv2 = h.Epoch, h.BaseSequence, c.TV2
	case h.Epoch == t.epoch:
		t.lowestSequence = min(t.lowestSequence, h.BaseSequence)
	}
	return t.token
}

// decideSequence checks the sequence numbers of a client's batch whose epoch is
// not old (ProducerAppendInfo.checkSequence).
func (m *Machine) decideSequence(e *entry, h *batch.Header) (Decision, bool) {
	first := h.BaseSequence
	if t := m.tokens[h.ProducerID]; t != nil {
		if t.tv2 && first != 0 && (e == nil || e.count == 0) {
			return outOfOrder(h, "the first batch of a transactions version 2 producer must have sequence 0"), true
		}
		if first > t.lowestSequence {
			return outOfOrder(h, "an earlier batch is still being verified"), true
		}
	}
	switch {
	case e.currentEpoch() == batch.NoEpoch:
		// Nothing is known, perhaps because retention took it: any will do.
	case h.Epoch > e.epoch && first != 0:
		return outOfOrder(h, "a new epoch must begin with sequence 0"), true
	case h.Epoch == e.epoch && first != nextSequence(e.lastSequence()):
		return outOfOrder(h, "it does not follow the last one appended"), true
	}
	return Decision{}, false
}

// nextSequence follows NoSequence with 0 and 2^31-1 with 0.
func nextSequence(last int32) int32 {
	return int32((int64(last) + 1) & math.MaxInt32)
}

func outOfOrder(h *batch.Header, why string) Decision {
	return reject(kerr.OutOfOrderSequenceNumber, "producer %d, epoch %d: sequence %d is out of order: %s",
		h.ProducerID, h.Epoch, h.BaseSequence, why)
}

// DecideMarker is Decide for a marker.
//
// A version 2 marker carries the epoch after that of the transaction it ends. So
// one whose epoch is the partition's is late: the next transaction may have begun
// in that epoch, and the marker would end it (KAFKA-19446). When none has begun
// the marker is a retry by a coordinator that lost the reply, which must succeed
// for it to finish (KAFKA-19999). At epoch 32767, the last, there is no next one.
func (m *Machine) DecideMarker(nowMs int64, c AppendMarker) Decision {
	m.nowMs = nowMs
	e := m.producers[c.ProducerID]
	if e == nil {
		return Decision{Action: Append}
	}
	if c.Epoch < e.epoch {
		return reject(kerr.InvalidProducerEpoch, "producer %d: the marker's epoch %d is older than the partition's epoch %d",
			c.ProducerID, c.Epoch, e.epoch)
	}
	if c.TV2 && c.Epoch == e.epoch && e.isOpen() && c.Epoch != math.MaxInt16 {
		return reject(kerr.InvalidProducerEpoch, "producer %d: the marker of epoch %d is late; a transaction of that epoch is open since offset %d",
			c.ProducerID, c.Epoch, e.txnFirstOffset)
	}
	if c.CoordinatorEpoch < e.coordinatorEpoch {
		return reject(kerr.TransactionCoordinatorFenced, "producer %d: the marker's coordinator epoch %d is older than %d",
			c.ProducerID, c.CoordinatorEpoch, e.coordinatorEpoch)
	}
	return Decision{Action: Append}
}
