package core

// slot is the one control request of its kind that may be under way.
type slot struct {
	request    int64 // 0 if none is in flight
	node       int32
	commit     bool
	partitions []int
	attempts   int
	retryAtMs  int64
	deadlineMs int64
}

// abandon forgets the request of a kind; its reply will be ignored.
func (m *Machine) abandon(k Request) {
	s := &m.slots[k]
	if s.request != 0 {
		m.emit(CancelControl{Request: s.request})
		m.straggler = true
	}
	*s = slot{}
}

// wanted says whether the state calls for a request of this kind.
func (m *Machine) wanted(k Request) bool {
	switch k {
	case ReqMetadata:
		return m.leaderless() != nil
	case ReqFeatures:
		return m.cfg.Transactional && m.protocol == 0 && m.op == opInit
	case ReqInitProducerID:
		if m.op == opInit {
			return !m.cfg.Transactional || m.protocol != 0
		}
		return (m.op == opResolve && m.phase == phaseInit) || (m.bumpNeeded && m.state != stateFatal)
	case ReqDescribeTransaction:
		return m.unsettledUntilMs != 0 && !m.describeOff
	case ReqAddPartitions:
		return m.protocol == 1 && m.state == stateOpen && !m.poisoned && !m.held() && m.unregistered() != nil
	case ReqAddOffsets:
		return m.protocol == 1 && m.committingOffsets() && !m.offsetsAdded
	case ReqTxnOffsetCommit:
		return m.committingOffsets() && (m.protocol >= 2 || m.offsetsAdded)
	case ReqEndTxn:
		return (m.op == opCommit && m.phase == phaseEnd) ||
			(m.op == opResolve && (m.phase == phaseAbort || m.phase == phaseCommitAgain))
	}
	return false
}

func (m *Machine) committingOffsets() bool {
	return m.op == opCommit && m.phase == phaseFlush && m.offsetsWanted && !m.offsetsDone && !m.poisoned && !m.held()
}

// leaderless lists the partitions that have batches and no known leader.
func (m *Machine) leaderless() []int {
	var out []int
	if m.state == stateFatal {
		return nil
	}
	for _, i := range m.active {
		if m.partitions[i].leader < 0 {
			out = append(out, i)
		}
	}
	return out
}

// unregistered lists the partitions that version 1 has yet to add.
func (m *Machine) unregistered() []int {
	var out []int
	for _, i := range m.active {
		if m.partitions[i].registeredTxn != m.txn {
			out = append(out, i)
		}
	}
	return out
}

// sendControls sends every wanted request that is not under way, looking up
// its coordinator first.
func (m *Machine) sendControls() {
	needTxn, needGroup := false, false
	for k := ReqFeatures; k < requestKinds; k++ {
		if !m.wanted(k) {
			continue
		}
		node := m.txnNode
		switch {
		case !m.cfg.Transactional:
			node = NoNode
		case k == ReqTxnOffsetCommit:
			node = m.groupNode
			needGroup = needGroup || node < 0
		default:
			needTxn = needTxn || node < 0
		}
		if node >= 0 || !m.cfg.Transactional {
			m.send(k, node)
		}
	}
	if needTxn {
		m.send(ReqFindTxnCoordinator, NoNode)
	}
	if needGroup {
		m.send(ReqFindGroupCoordinator, NoNode)
	}
	if m.wanted(ReqMetadata) {
		m.send(ReqMetadata, NoNode)
	}
}

func (m *Machine) send(k Request, node int32) {
	s := &m.slots[k]
	if s.request != 0 || m.nowMs < s.retryAtMs {
		return
	}
	m.lastID++
	s.request, s.node, s.deadlineMs = m.lastID, node, m.nowMs+m.cfg.RequestTimeoutMs
	e := SendControl{Request: s.request, Kind: k, Node: node, Identity: m.id}
	switch k {
	case ReqMetadata:
		s.partitions = m.leaderless()
	case ReqInitProducerID:
		if m.cfg.Transactional {
			e.VersionMin, e.VersionMax = 3, 5
			m.initSent = m.op != opInit
		}
		if m.op == opInit || !m.cfg.Transactional {
			e.Identity = NoIdentity
		}
	case ReqAddPartitions:
		s.partitions = m.unregistered()
		e.VersionMax = 3 // from v4 on it is a request between brokers
		m.touched = true
	case ReqAddOffsets:
		m.touched = true
	case ReqTxnOffsetCommit:
		m.touched = true
		e.VersionMin, e.VersionMax = 3, 4 // below 3 there is no generation to check (KIP-447)
		if m.protocol >= 2 {
			e.VersionMin, e.VersionMax = 5, 5
		}
	case ReqEndTxn:
		s.commit = m.op == opCommit || m.phase == phaseCommitAgain
		m.commitTried = m.commitTried || s.commit
		e.VersionMax = 4
		if m.protocol >= 2 {
			e.VersionMin, e.VersionMax = 5, 5
		}
	}
	e.Commit, e.Partitions = s.commit, s.partitions
	m.emit(e)
}

func (m *Machine) slotOf(request int64) (Request, bool) {
	for k := range m.slots {
		if request != 0 && m.slots[k].request == request {
			return Request(k), true
		}
	}
	return 0, false
}

// verdict reduces a reply to its worst code. Resending a whole request for
// one retriable partition is harmless: these requests are idempotent.
func verdict(k Request, e ControlReplyEvent) (Verdict, int16) {
	switch {
	case e.Unsupported:
		return Verdict{ActFatal, ReasonUnsupported}, 35
	case e.Lost || e.NotSent:
		return refresh, 0
	}
	v, code := VerdictFor(k, e.Code), e.Code
	for _, c := range e.Codes {
		if w := VerdictFor(k, c); w.Action > v.Action {
			v, code = w, c
		}
	}
	return v, code
}

func (m *Machine) onControlReply(e ControlReplyEvent) {
	k, ok := m.slotOf(e.Request)
	if !ok {
		return
	}
	s := &m.slots[k]
	s.request = 0
	v, code := verdict(k, e)
	if k == ReqDescribeTransaction {
		m.onDescribed(v, e)
		return
	}
	if k == ReqMetadata {
		m.onMetadata(v, e)
		return
	}
	if v.Action == ActRetry || v.Action == ActRefresh {
		m.retryControl(k, v, e, code)
		return
	}
	s.attempts, s.retryAtMs = 0, 0
	f := Failure{Reason: v.Reason, Request: k, Code: code, Message: e.Message, Partition: -1}
	switch k {
	case ReqFindTxnCoordinator:
		m.onCoordinator(&m.txnNode, v, f, e.Node)
	case ReqFindGroupCoordinator:
		m.onCoordinator(&m.groupNode, v, f, e.Node)
	case ReqFeatures:
		m.onFeatures(v, f, e.Features)
	case ReqInitProducerID:
		m.onIdentity(v, f, e.Identity)
	case ReqAddPartitions:
		if m.proceed(v, f) {
			for _, i := range s.partitions {
				m.partitions[i].registeredTxn = m.txn
			}
		}
	case ReqAddOffsets:
		m.offsetsAdded = m.proceed(v, f) || m.offsetsAdded
	case ReqTxnOffsetCommit:
		m.offsetsDone = m.proceed(v, f) || m.offsetsDone
		m.proved = m.proved || m.offsetsDone
	case ReqEndTxn:
		switch m.op {
		case opCommit:
			m.onCommitReply(v, f, e.Identity)
		case opResolve:
			m.onResolveReply(v, f, e.Identity)
		}
	}
}

func (m *Machine) retryControl(k Request, v Verdict, e ControlReplyEvent, code int16) {
	s := &m.slots[k]
	if k == ReqEndTxn && !e.NotSent {
		m.endMaybe = true
	}
	if k >= ReqAddPartitions && e.Lost && !e.NotSent {
		m.straggler = true
	}
	if v.Action == ActRefresh {
		if k == ReqTxnOffsetCommit {
			m.groupNode = NoNode
		} else {
			m.txnNode = NoNode
		}
	}
	s.attempts++
	s.retryAtMs = m.nowMs + m.backoff(s.attempts, code)
	m.emit(Retried{Kind: k, Code: code})
}

// proceed takes the answer to a request inside a transaction and says whether
// it succeeded.
func (m *Machine) proceed(v Verdict, f Failure) bool {
	switch v.Action {
	case ActOK:
		return true
	case ActFenced, ActFatal:
		m.fatal(f)
	default:
		m.poison(f)
	}
	return false
}

func (m *Machine) onCoordinator(node *int32, v Verdict, f Failure, answer int32) {
	switch v.Action {
	case ActOK:
		*node = answer
	case ActFatal, ActFenced:
		m.fatal(f)
	default:
		m.failOperation(f)
	}
}

// failOperation ends an Init or a resolve that may be tried again, or poisons
// the transaction that needed the answer.
func (m *Machine) failOperation(f Failure) {
	switch m.op {
	case opInit, opResolve:
		m.done(Unknown, f)
	case opCommit:
		if m.phase == phaseEnd {
			m.onCommitReply(Verdict{ActAbort, f.Reason}, f, NoIdentity)
			return
		}
		m.poison(f)
	default:
		m.poison(f)
	}
}

// onFeatures chooses the transaction protocol. Version 2 needs the finalized
// feature and every request that carries it; a broker before 2.5 has neither
// KIP-360 nor KIP-447 and is refused.
func (m *Machine) onFeatures(v Verdict, f Failure, x Features) {
	switch {
	case v.Action != ActOK:
		m.failOperation(f)
	case x.InitProducerIDMax < 3 || x.TxnOffsetCommitMax < 3:
		m.fatal(Failure{Reason: ReasonUnsupported, Request: ReqFeatures, Code: 35, Partition: -1,
			Message: "the broker lacks InitProducerId 3 or TxnOffsetCommit 3: Kafka 2.5 or newer is needed"})
	case x.TransactionVersion >= 2 && x.ProduceMax >= 12 && x.TxnOffsetCommitMax >= 5 && x.EndTxnMax >= 5 &&
		m.cfg.TransactionVersionMax != 1:
		m.protocol = 2
	default:
		m.protocol = 1
	}
}

func (m *Machine) onIdentity(v Verdict, f Failure, id Identity) {
	switch v.Action {
	case ActOK:
		if m.op == opNone && m.state == stateNew {
			return // of an Init that was given up: the next one asks again
		}
		m.setIdentity(id)
		m.bumpNeeded = false
		switch m.op {
		case opInit:
			m.state = stateReady
			m.done(Committed, Failure{})
		case opResolve:
			if m.phase == phaseInit {
				m.finishResolve(m.resolved)
				return
			}
			m.forgetTransaction()
		default:
			if m.state == stateUnresolved {
				m.forgetTransaction()
			}
		}
	case ActFenced, ActFatal:
		m.fatal(f)
	default:
		if m.op == opInit || m.op == opResolve || m.state == stateNew {
			m.failOperation(f)
			return
		}
		// The bump between two transactions failed: nothing may be written
		// until Abort or Recover has found a usable identity.
		m.bumpNeeded = false
		if m.state == stateReady {
			m.state = stateOpen
		}
		m.poison(f)
	}
}

// forgetTransaction notes that a new identity came while nobody waited for it:
// under the old one nothing can be open any more.
func (m *Machine) forgetTransaction() { m.touched, m.forceInit = false, false }

// onDescribed takes the answer to "has the last transaction completed?". It is
// an optimisation only: any doubt ends the asking, and the broker itself
// holds back what comes too early.
func (m *Machine) onDescribed(v Verdict, e ControlReplyEvent) {
	s := &m.slots[ReqDescribeTransaction]
	switch {
	case v.Action == ActOK && !e.Settled:
		s.retryAtMs = m.nowMs + (int64(1) << min(s.attempts, 3))
		s.attempts++
	case v.Action == ActFail || v.Action == ActFatal:
		m.describeOff = true
		m.unsettledUntilMs = 0
	case v.Action == ActOK:
		m.unsettledUntilMs = 0
		s.retryAtMs = 0
	default: // ask again, within SettleMaxMs
		if v.Action == ActRefresh {
			m.txnNode = NoNode
		}
		s.attempts++
		s.retryAtMs = m.nowMs + m.backoff(s.attempts, 0)
	}
}

func (m *Machine) onMetadata(v Verdict, e ControlReplyEvent) {
	s := &m.slots[ReqMetadata]
	again := v.Action != ActOK
	for _, l := range e.Leaders {
		p := &m.partitions[l.Partition]
		pv := VerdictFor(ReqMetadata, l.Code)
		f := Failure{Reason: pv.Reason, Request: ReqMetadata, Code: l.Code, Message: e.Message, Partition: l.Partition}
		switch {
		case l.Recreated && p.generation == m.generation && p.nextSequence != 0:
			// What this identity has written belongs to a topic that is gone.
			f.Reason, f.Message = ReasonTopicRecreated, "the topic was deleted and created again"
			m.poison(f)
			p.leader = l.Node
			m.broker(l.Node)
		case pv.Action == ActAbort:
			m.poison(f)
		case pv.Action != ActOK || l.Node < 0:
			again = true
			p.lastCode = l.Code
		default:
			p.leader = l.Node
			m.broker(l.Node)
		}
	}
	if !again {
		s.attempts, s.retryAtMs = 0, 0
		return
	}
	s.attempts++
	s.retryAtMs = m.nowMs + m.backoff(s.attempts, 0)
}
