package txn

import (
	"fmt"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// decideInit is InitProducerId (TransactionCoordinator.handleInitProducerId,
// KIP-360).
func (m *Machine) decideInit(eff *Effects, nowMs int64, c Init) {
	if code, message := m.validateInit(c); code != codeNone {
		eff.refuse(c.Token, code, message)
		return
	}
	var md metadata
	if e := m.entries[c.TransactionalID]; e != nil {
		md = e.md
	} else {
		id, ok := m.cfg.NextID()
		if !ok {
			eff.refuse(c.Token, codeLoadInProgress, "no producer id is free yet")
			return
		}
		md = newMetadata(id, c.TimeoutMs, nowMs)
	}
	if c.given() && !c.knowsProducerID(md) {
		eff.refuse(c.Token, codeProducerFenced, "producer id belongs to an older producer")
		return
	}
	switch {
	case md.state.prepared():
		eff.refuse(c.Token, codeConcurrentTransactions, "")
	case md.state == Ongoing:
		// The epoch of the fence is never revealed: the client's next try gets
		// a pair of its own.
		if !m.fence(eff, nowMs, m.entries[c.TransactionalID]) {
			eff.refuse(c.Token, codeLoadInProgress, "no producer id is free yet")
			return
		}
		eff.refuse(c.Token, codeConcurrentTransactions, "")
	default:
		m.initResting(eff, nowMs, c, md)
	}
}

// maxIDBytes is the longest string that a record's key can hold; a flexible
// request can carry a longer one.
const maxIDBytes = 32767

// validateInit checks the request by itself.
func (m *Machine) validateInit(c Init) (code int16, message string) {
	switch {
	case (c.ProducerID == batch.NoProducerID) != (c.Epoch == batch.NoEpoch):
		return codeInvalidRequest, "producer id and epoch must both be given or both be absent"
	case c.TransactionalID == "":
		return codeInvalidRequest, "transactional id is empty"
	case len(c.TransactionalID) > maxIDBytes:
		return codeInvalidRequest, fmt.Sprintf("transactional id of %d bytes: the limit is %d", len(c.TransactionalID), maxIDBytes)
	case c.Enable2PC:
		return codeTransactionalIDAuth, "two-phase commit is not enabled"
	case c.KeepPrepared:
		return codeUnsupportedVersion, "keeping a prepared transaction is not supported"
	case c.TimeoutMs <= 0 || c.TimeoutMs > m.cfg.MaxTimeoutMs:
		return codeInvalidTxnTimeout, fmt.Sprintf("transaction timeout must be 1 to %d ms (transaction.max.timeout.ms)", m.cfg.MaxTimeoutMs)
	}
	return codeNone, ""
}

// given reports whether the client names the pair it holds.
func (c Init) given() bool { return c.ProducerID != batch.NoProducerID }

// knowsProducerID reports whether a client that gives c's pair may go on: its id
// is new at this coordinator, or current, or was current until a rotation whose
// answer may have been lost.
func (c Init) knowsProducerID(md metadata) bool {
	return md.epoch == batch.NoEpoch || c.ProducerID == md.producerID ||
		c.ProducerID == md.previousID && c.Epoch >= lastClientEpoch
}

// initResting is InitProducerId without an open transaction: it takes the next
// epoch, or a new producer id if there is none, or repeats an earlier answer.
func (m *Machine) initResting(eff *Effects, nowMs int64, c Init, md metadata) {
	var next metadata
	current := c.Epoch == md.epoch || md.epoch == batch.NoEpoch
	repeated := c.given() && !current && c.Epoch == md.lastEpoch
	switch {
	case md.exhausted() && (!c.given() || current || repeated && md.epoch > lastClientEpoch):
		id, ok := m.cfg.NextID()
		if !ok {
			eff.refuse(c.Token, codeLoadInProgress, "no producer id is free yet")
			return
		}
		lastEpoch := batch.NoEpoch
		if c.given() {
			lastEpoch = c.Epoch
		}
		next = md.initialise(id, 0, lastEpoch, c.TimeoutMs, nowMs)
	case !c.given():
		next = md.initialise(md.producerID, md.epoch+1, batch.NoEpoch, c.TimeoutMs, nowMs)
	case current:
		next = md.initialise(md.producerID, md.epoch+1, md.epoch, c.TimeoutMs, nowMs)
	case repeated:
		next = md.initialise(md.producerID, md.epoch, md.lastEpoch, c.TimeoutMs, nowMs)
	default:
		eff.refuse(c.Token, codeProducerFenced, "producer epoch belongs to an older producer")
		return
	}
	m.write(eff, c.TransactionalID, md, next)
	eff.grant(c.Token, next.producerID, next.epoch)
}
