package core

func (m *Machine) onBegin() {
	switch {
	case m.busy():
	case !m.cfg.Transactional:
		m.refuse("begin without a transactional id")
	case m.state != stateReady:
		m.refuse("begin needs an initialised producer without an open or unresolved transaction")
	default:
		m.state = stateOpen
		m.txn++
		m.touched, m.commitTried, m.endMaybe = false, false, false
		m.done(Committed, Failure{})
	}
}

func (m *Machine) onCommit(offsets bool) {
	switch {
	case m.busy():
	case m.state != stateOpen:
		m.refuse("commit without an open transaction")
	default:
		m.op, m.phase = opCommit, phaseFlush
		m.offsetsWanted, m.offsetsAdded, m.offsetsDone = offsets, false, false
		m.commitDeadlineMs = m.nowMs + m.cfg.DeliveryTimeoutMs
		m.endDeadlineMs = 0
	}
}

// progressCommit moves from the flush to EndTxn. Offsets travel while the
// batches do; EndTxn waits for both.
func (m *Machine) progressCommit() {
	if m.phase != phaseFlush {
		return
	}
	if m.poisoned && !m.cfg.Break.Poison {
		m.done(Aborted, m.failure)
		return
	}
	if m.unacked > 0 || (m.offsetsWanted && !m.offsetsDone) {
		return
	}
	if !m.touched { // nothing was sent: there is nothing to end
		m.finishTransaction()
		m.done(Committed, Failure{})
		return
	}
	m.phase = phaseEnd
	m.endMaybe = false
	m.endDeadlineMs = m.nowMs + m.cfg.EndTxnTimeoutMs
}

// finishTransaction returns to stateReady after a decided transaction.
func (m *Machine) finishTransaction() {
	m.state = stateReady
	m.touched, m.unknown, m.commitTried, m.straggler = false, false, false, false
}

// onCommitReply takes EndTxn's final answer to a commit.
//
// INVALID_TXN_STATE under version 2 is a definite no: the coordinator's own
// abort moved the epoch, and a commit that had succeeded answers its retry
// with success. A fencing answer is a definite no only if no earlier attempt
// may have been acted on.
func (m *Machine) onCommitReply(v Verdict, f Failure, id Identity) {
	switch {
	case v.Action == ActOK:
		straggler := m.straggler
		m.finishTransaction()
		m.startSettle()
		switch {
		case m.protocol >= 2 && id.ProducerID >= 0:
			m.setIdentity(id)
		case m.protocol >= 2 || straggler:
			m.bumpNeeded = true
		}
		m.done(Committed, Failure{})
	case v.Action == ActFenced:
		m.fatal(f)
	case v.Action == ActFatal:
		// The code is none that a coordinator gives before deciding
		// nothing, except those the client caused itself.
		if v.Reason == ReasonFatal {
			m.endMaybe = true
		}
		m.fatal(f)
	default:
		outcome := Aborted
		if m.endMaybe && v.Reason != ReasonTimedOutByCoordinator {
			outcome, m.unknown = Unknown, true
		}
		m.state = stateUnresolved
		m.done(outcome, f)
	}
}

// commitTimedOut ends a commit whose EndTxn was not answered in time.
func (m *Machine) commitTimedOut() {
	maybe := m.endMaybe || m.slots[ReqEndTxn].request != 0
	f := Failure{Reason: ReasonTimeout, Request: ReqEndTxn, Message: "EndTxn was not answered in time", Partition: -1}
	m.abandon(ReqEndTxn)
	m.state = stateUnresolved
	outcome := Aborted
	if maybe && !m.cfg.Break.UnknownIsAborted {
		outcome, m.unknown = Unknown, true
	}
	m.done(outcome, f)
}

// startSettle begins asking whether the ended transaction has completed.
// Under version 2 a Produce that comes too early waits inside the broker in
// steps of add.partitions.to.txn.retry.backoff.ms (20 ms); asking first
// takes about a millisecond.
func (m *Machine) startSettle() {
	m.lastEndMs = m.nowMs
	if m.describeOff {
		return
	}
	m.unsettledUntilMs = m.nowMs + m.cfg.SettleMaxMs
	m.slots[ReqDescribeTransaction].attempts = 0
	m.slots[ReqDescribeTransaction].retryAtMs = 0
}

// held says that the open transaction may not write yet.
func (m *Machine) held() bool { return m.unsettledUntilMs != 0 || m.bumpNeeded }

func (m *Machine) onAbort() {
	switch {
	case m.busy():
	case !m.cfg.Transactional:
		m.refuse("abort without a transactional id")
	case m.state == stateReady: // nothing open
		m.done(Aborted, Failure{})
	case m.state == stateOpen || m.state == stateUnresolved:
		if m.unknown {
			m.refuse("the last commit's outcome is unknown; use Recover")
			return
		}
		m.startResolve(false)
	default:
		m.refuse("abort without an open transaction")
	}
}

func (m *Machine) onRecover() {
	switch {
	case m.busy():
	case m.state == stateNew || m.state == stateFatal:
		m.refuse("recover needs an initialised producer")
	default:
		m.startResolve(true)
	}
}

// startResolve begins Abort or Recover. What is not in flight is dropped; what
// is in flight is waited for, never cancelled.
func (m *Machine) startResolve(recovering bool) {
	m.op, m.phase = opResolve, phaseDrain
	m.state = stateUnresolved
	m.resolved = Unknown
	m.forceInit = recovering && !m.touched
	// An InitProducerId under way is waited for: two of them may be acted on
	// in either order, and the producer would fence itself.
	if m.failure.Reason == ReasonMappingLost {
		m.forceInit = true
	}
	m.abandon(ReqEndTxn)
	m.bumpNeeded = false
	m.dropUnsent()
}

func (m *Machine) progressResolve() {
	if m.phase != phaseDrain || m.unacked > 0 {
		return
	}
	for _, k := range []Request{ReqInitProducerID, ReqAddPartitions, ReqAddOffsets, ReqTxnOffsetCommit} {
		if m.slots[k].request != 0 {
			return
		}
	}
	switch {
	case !m.cfg.Transactional || m.initSent:
		m.phase = phaseInit
	case m.touched && m.protocol >= 2 && m.unsettledUntilMs != 0:
		// The transaction before is being completed; an abort of this one
		// would be answered PRODUCER_FENCED meanwhile.
	case m.touched:
		m.phase = phaseAbort
	case m.forceInit:
		m.phase = phaseInit
	case m.unknown:
		m.finishResolve(m.resolved)
	default:
		m.finishResolve(Aborted)
	}
}

// onResolveReply takes EndTxn's answer during a resolve.
//
// Version 2 resolves everything by EndTxn alone. The abort succeeds if the
// transaction was open or had been aborted (by us before, or by the
// coordinator for time), and brings the next identity. It is refused with
// INVALID_TXN_STATE exactly if the commit had happened; then repeating the
// commit returns its identity. This survives a coordinator restart, which
// InitProducerId with the old epoch does not: lastProducerEpoch is kept in
// memory only.
//
// Version 1 follows the abort by InitProducerId with id and epoch in every
// case, so that a delayed request of this epoch cannot act later (KIP-360).
func (m *Machine) onResolveReply(v Verdict, f Failure, id Identity) {
	again := m.phase == phaseCommitAgain
	switch {
	case v.Action == ActFenced && m.protocol >= 2 && !m.proved && m.nowMs < m.lastEndMs+5*m.cfg.SettleMaxMs:
		// PRODUCER_FENCED is also what the coordinator says about the current
		// epoch while it completes the transaction before.
		s := &m.slots[ReqEndTxn]
		s.attempts++
		s.retryAtMs = m.nowMs + m.backoff(s.attempts, 51)
		m.emit(Retried{Kind: ReqEndTxn, Code: f.Code})
	case v.Action == ActFenced, v.Action == ActFatal:
		m.fatal(f)
	case v.Action == ActOK && m.protocol >= 2 && id.ProducerID >= 0:
		m.setIdentity(id)
		m.startSettle()
		if again {
			m.finishResolve(Committed)
		} else {
			m.finishResolve(Aborted)
		}
	case v.Action == ActOK:
		// A copy of AddPartitionsToTxn that came after a successful commit may
		// have opened an empty transaction, and that is what was aborted: after
		// an unknown commit this success says nothing about it.
		if !m.unknown {
			m.resolved = Aborted
		}
		m.phase = phaseInit
	case m.protocol >= 2 && !again && m.commitTried && v.Reason == ReasonTimedOutByCoordinator:
		m.phase = phaseCommitAgain
	default:
		m.phase = phaseInit
	}
}

func (m *Machine) finishResolve(o Outcome) {
	m.finishTransaction()
	m.poisoned, m.failure = false, Failure{}
	m.forceInit = false
	m.emit(Healthy{})
	m.done(o, Failure{})
}
