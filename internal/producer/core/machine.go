package core

// state is where the producer stands between operations.
type state uint8

const (
	stateNew        state = iota // no identity yet
	stateReady                   // an identity and no transaction
	stateOpen                    // a transaction is open, perhaps poisoned
	stateUnresolved              // the last transaction must be resolved by Abort or Recover
	stateFatal                   // fenced or worse
)

// operation is the API call under way.
type operation uint8

const (
	opNone operation = iota
	opInit
	opFlush
	opCommit
	opResolve // Abort and Recover
)

// phase is how far an operation has come.
type phase uint8

const (
	phaseNone        phase = iota
	phaseFlush             // commit: batches and offsets
	phaseEnd               // commit: EndTxn
	phaseDrain             // resolve: nothing in flight any more
	phaseAbort             // resolve: EndTxn(abort)
	phaseCommitAgain       // resolve: the commit had happened, fetch its identity
	phaseInit              // resolve: InitProducerId
)

// Machine is the producer's state. It is not safe for concurrent use.
type Machine struct {
	cfg   Config
	nowMs int64
	out   []Effect

	state    state
	op       operation
	phase    phase
	poisoned bool
	failure  Failure // why poisoned or fatal

	id         Identity
	generation uint64 // counts identities; sequences belong to one
	protocol   int16  // transaction.version in use: 0 not known, 1 or 2

	txn         uint64 // counts transactions
	touched     bool   // the coordinator may know of the open transaction
	commitTried bool   // EndTxn(commit) was sent for it
	unknown     bool   // the last commit's outcome is unknown
	forceInit   bool   // resolve ends with InitProducerId in any case
	resolved    Outcome

	offsetsWanted, offsetsAdded, offsetsDone bool
	commitDeadlineMs                         int64 // for the offsets
	endDeadlineMs                            int64 // for EndTxn(commit)
	endMaybe                                 bool  // an EndTxn may have been acted on

	// straggler: a control request of this transaction ended without an
	// answer. Under version 1 its first copy may arrive during the next
	// transaction, which has the same epoch, and end it or set its offsets
	// back; so bumpNeeded makes the epoch move on before the next one writes.
	straggler, bumpNeeded bool
	// proved: the coordinator has acted under this identity, so nothing of
	// an earlier one is being completed any more. lastEndMs is when the last
	// transaction ended.
	proved    bool
	lastEndMs int64
	// initSent: an InitProducerId that replaces this identity was sent, so
	// the coordinator may already refuse everything else under it.
	initSent         bool
	unsettledUntilMs int64 // the last transaction may still be completing
	describeOff      bool  // DescribeTransactions is refused here

	txnNode, groupNode int32
	slots              [requestKinds]slot

	partitions []partition
	active     []int // partitions with batches
	unacked    int   // batches in all queues
	inFlight   int   // of them, in a request
	brokers    []*brokerState
	requests   map[int64]*produceRequest
	lastID     int64
	wakeAtMs   int64
}

// New returns a machine without an identity.
func New(cfg Config) *Machine {
	cfg.setDefaults()
	return &Machine{
		cfg: cfg, id: NoIdentity, txnNode: NoNode, groupNode: NoNode,
		requests: make(map[int64]*produceRequest), wakeAtMs: -1,
	}
}

// AddPartition makes room for one more partition and returns its index.
func (m *Machine) AddPartition() int {
	m.partitions = append(m.partitions, partition{leader: NoNode, inFlightNode: NoNode})
	return len(m.partitions) - 1
}

// Identity returns the current producer id and epoch.
func (m *Machine) Identity() Identity { return m.id }

// TransactionVersion returns the protocol in use: 1, 2, or 0 before Init.
func (m *Machine) TransactionVersion() int16 { return m.protocol }

// Step takes one event and returns what to do. The returned slice is reused
// by the next Step. Time must not go back.
func (m *Machine) Step(nowMs int64, ev Event) []Effect {
	m.nowMs = max(m.nowMs, nowMs)
	clear(m.out)
	m.out = m.out[:0]
	switch e := ev.(type) {
	case InitEvent:
		m.onInit()
	case BeginEvent:
		m.onBegin()
	case AppendEvent:
		m.onAppend(e.Batches)
	case FlushEvent:
		m.onFlush()
	case CommitEvent:
		m.onCommit(e.Offsets)
	case AbortEvent:
		m.onAbort()
	case RecoverEvent:
		m.onRecover()
	case PoisonEvent:
		m.poison(e.Failure)
	case CancelEvent:
		m.onCancel()
	case WrittenEvent:
		m.onWritten(e.Request)
	case ProduceReplyEvent:
		m.onProduceReply(e)
	case ControlReplyEvent:
		m.onControlReply(e)
	case TickEvent:
	}
	m.checkDeadlines()
	m.progress()
	m.sendControls()
	m.dispatch()
	m.scheduleWake()
	return m.out
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *Machine) done(o Outcome, f Failure) {
	m.op, m.phase = opNone, phaseNone
	m.emit(OpDone{Outcome: o, Failure: f})
}

func stateFailure(msg string) Failure {
	return Failure{Reason: ReasonState, Message: msg, Partition: -1}
}

// refuse answers an API call that the state does not allow.
func (m *Machine) refuse(msg string) {
	f := stateFailure(msg)
	if m.state == stateFatal {
		f = m.failure
	}
	m.emit(OpDone{Outcome: Aborted, Failure: f})
}

func (m *Machine) busy() bool {
	if m.op == opNone {
		return false
	}
	m.emit(OpDone{Outcome: Aborted, Failure: stateFailure("another operation is under way")})
	return true
}

func (m *Machine) onInit() {
	switch {
	case m.busy():
	case m.state != stateNew:
		m.refuse("already initialised; use Recover")
	default:
		m.op = opInit
	}
}

func (m *Machine) onFlush() {
	switch {
	case m.busy():
	case m.state == stateFatal || m.state == stateNew || m.state == stateUnresolved:
		m.refuse("flush needs a usable producer")
	default:
		m.op = opFlush
	}
}

// onCancel ends the operation its caller no longer waits for. A commit whose
// EndTxn was sent is not ended: its outcome is worth more than the caller's
// patience, and EndTxn has a deadline of its own.
func (m *Machine) onCancel() {
	f := Failure{Reason: ReasonCanceled, Message: "the caller's context ended", Partition: -1}
	switch m.op {
	case opNone:
	case opInit:
		// The request stays: sent again beside it, the two could be acted on
		// in either order, and the producer would fence itself.
		m.done(Unknown, f)
	case opResolve:
		m.done(Unknown, f)
	case opFlush:
		m.done(Unknown, f)
	case opCommit:
		if m.phase == phaseEnd && m.commitTried {
			return
		}
		m.poison(f)
		m.done(Aborted, f)
	}
}

// poison records that the open transaction (or, without transactions, the
// producer) failed. Batches that were not sent are given back at once: they
// can never be committed.
func (m *Machine) poison(f Failure) {
	open := m.state == stateOpen || (!m.cfg.Transactional && m.state == stateReady)
	if !open || m.poisoned {
		return
	}
	m.poisoned, m.failure = true, f
	m.emit(Poisoned{Failure: f})
	m.dropUnsent()
}

// fatal ends the producer's life; only Close is left.
func (m *Machine) fatal(f Failure) {
	if m.state == stateFatal {
		return
	}
	m.state, m.poisoned, m.failure = stateFatal, true, f
	m.emit(Poisoned{Failure: f})
	m.dropUnsent()
	switch m.op {
	case opNone:
	case opCommit:
		outcome := Aborted
		if m.phase == phaseEnd && m.endMaybe {
			outcome, m.unknown = Unknown, true
		}
		m.done(outcome, f)
	default:
		m.done(Unknown, f)
	}
}

// progress moves the operation under way as far as it goes without an answer.
func (m *Machine) progress() {
	switch m.op {
	case opFlush:
		if m.poisoned {
			m.done(Unknown, m.failure)
		} else if m.unacked == 0 {
			m.done(Committed, Failure{})
		}
	case opCommit:
		m.progressCommit()
	case opResolve:
		m.progressResolve()
	}
}

// setIdentity takes a new producer id and epoch; all sequences restart at 0.
func (m *Machine) setIdentity(id Identity) {
	m.id = id
	m.initSent, m.proved = false, false
	m.generation++
}

// backoff returns the delay before attempt n (from 1).
func (m *Machine) backoff(attempt int, code int16) int64 {
	limit := m.cfg.RetryBackoffMaxMs
	if code == 51 { // CONCURRENT_TRANSACTIONS passes within milliseconds
		limit = min(limit, 5*m.cfg.RetryBackoffMs)
	}
	d := m.cfg.RetryBackoffMs
	for i := 1; i < attempt && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}

// scheduleWake asks for a tick at the next moment at which anything changes by
// time alone. An earlier tick than needed is harmless, so a later wish does
// not move the timer.
func (m *Machine) scheduleWake() {
	next := int64(-1)
	at := func(t int64) {
		if t > m.nowMs && (next < 0 || t < next) {
			next = t
		}
	}
	for i := range m.slots {
		at(m.slots[i].retryAtMs)
		if m.slots[i].request != 0 {
			at(m.slots[i].deadlineMs)
		}
	}
	for _, i := range m.active {
		p := &m.partitions[i]
		at(p.retryAtMs)
		at(p.queue[0].createdMs + m.cfg.DeliveryTimeoutMs)
	}
	for _, b := range m.brokers {
		at(b.throttledUntilMs)
	}
	at(m.unsettledUntilMs)
	if m.op == opCommit {
		at(m.commitDeadlineMs)
		at(m.endDeadlineMs)
	}
	if next >= 0 && (m.wakeAtMs <= m.nowMs || next < m.wakeAtMs) {
		m.wakeAtMs = next
		m.emit(Wake{AtMs: next})
	}
}

// checkDeadlines turns passed deadlines into the events they stand for.
func (m *Machine) checkDeadlines() {
	for k := range m.slots {
		if s := &m.slots[k]; s.request != 0 && m.nowMs >= s.deadlineMs {
			id := s.request
			m.emit(CancelControl{Request: id})
			m.onControlReply(ControlReplyEvent{Request: id, Lost: true, Message: "no answer in time"})
		}
	}
	if m.unsettledUntilMs != 0 && m.nowMs >= m.unsettledUntilMs {
		m.unsettledUntilMs = 0
	}
	m.checkDelivery()
	if m.op != opCommit {
		return
	}
	if m.phase == phaseFlush && m.offsetsWanted && !m.offsetsDone && m.nowMs >= m.commitDeadlineMs {
		m.poison(Failure{Reason: ReasonTimeout, Request: ReqTxnOffsetCommit,
			Message: "the offsets were not accepted in time", Partition: -1})
	}
	if m.phase == phaseEnd && m.nowMs >= m.endDeadlineMs {
		m.commitTimedOut()
	}
}
