package txn

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Config holds the coordinator's settings; zero numbers take the default.
type Config struct {
	MaxTimeoutMs   int32 // transaction.max.timeout.ms, 900,000
	IDExpirationMs int64 // transactional.id.expiration.ms, 604,800,000
	MarkerRetryMs  int64 // pause before a refused marker is repeated, 100
	MaxWaitMs      int64 // longest time a command stays parked, 10,000
	// EarlyCommitMs is how long after a transaction's end a commit of the next
	// one, which has nothing in it yet, is answered 51 and not 48; 0 never.
	//
	// Java's producer (seen with 4.3.1) can send EndTxn before the batches of
	// the transaction. Its sender asks whether batches are incomplete (no),
	// then waits for the transaction manager's lock, which the application's
	// thread holds: it begins a transaction, appends a record and commits. The
	// sender gets the lock, finds EndTxn waiting, and sends it on its stale
	// answer. Kafka is mostly still writing Complete then and answers 51, so
	// the client tries again, behind its batches; when it is not, it answers
	// 48, and the client dies of it. Here Complete is always written before
	// the client can ask.
	EarlyCommitMs    int64
	CoordinatorEpoch int32 // goes into markers; must rise with every start
	// NextID takes a producer id from a block that is durably reserved; false if
	// none is free, which is answered 14.
	NextID func() (batch.ProducerID, bool)
}

func (c Config) withDefaults() Config {
	if c.MaxTimeoutMs == 0 {
		c.MaxTimeoutMs = 900_000
	}
	if c.IDExpirationMs == 0 {
		c.IDExpirationMs = 604_800_000
	}
	if c.MarkerRetryMs == 0 {
		c.MarkerRetryMs = 100
	}
	if c.MaxWaitMs == 0 {
		c.MaxWaitMs = 10_000
	}
	if c.NextID == nil {
		c.NextID = func() (batch.ProducerID, bool) { return batch.NoProducerID, false }
	}
	return c
}

// Machine is the coordinator of one partition's transactional ids. It is not
// safe for concurrent use.
type Machine struct {
	cfg     Config
	entries map[string]*entry
	// deadlineMs is the earliest time at which Tick may have work; it may be
	// too early, never too late. Tick computes it afresh. 0: none.
	deadlineMs int64
}

// entry is a transactional id: md is hard state, written by Apply; the rest is
// soft and lost with the machine.
type entry struct {
	id string
	md metadata

	remaining []batch.TopicPartition // prepared: partitions without their marker, sorted
	retry     []batch.TopicPartition // part of remaining to be sent again at retryAtMs
	retryAtMs int64
	stalled   []PartitionResult // partitions that refused for good
	ending    *parkedEnd        // EndTxn to be answered at Complete
	waiting   []parkedAdd       // AddPartitions to be decided after Complete
}

type parkedEnd struct {
	token   Token
	version int16
	sinceMs int64
}

type parkedAdd struct {
	cmd     AddPartitions
	sinceMs int64
}

// New returns an empty machine, to be filled by Apply and then started with a
// [Resume] command.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg.withDefaults(), entries: map[string]*entry{}}
}

// Len returns the number of transactional ids.
func (m *Machine) Len() int { return len(m.entries) }

// Decide works out a command's effects. Hard state stays as it is until Apply.
func (m *Machine) Decide(nowMs int64, c Command) Effects {
	eff := &Effects{}
	switch c := c.(type) {
	case Init:
		m.decideInit(eff, nowMs, c)
	case AddPartitions:
		m.decideAdd(eff, nowMs, c)
	case EndTxn:
		m.decideEnd(eff, nowMs, c)
	case MarkersWritten:
		m.decideMarkersWritten(eff, nowMs, c)
	case Tick:
		m.decideTick(eff, nowMs)
	case Resume:
		m.decideResume(eff, nowMs)
	default:
		eff.Fatal = fmt.Errorf("transaction coordinator: unknown command %T", c)
	}
	if eff.Fatal != nil {
		return Effects{Fatal: eff.Fatal}
	}
	eff.DeadlineMs = m.deadlineMs
	return *eff
}

// Apply writes one record of the log into the state. During the boot replay an
// [batch.ErrUnknownVersion] may be skipped; the state is then unchanged, as it is
// after [batch.ErrCorrupt].
func (m *Machine) Apply(off batch.Offset, r Record) error {
	id, err := decodeKey(r.Key)
	if err != nil {
		return fmt.Errorf("apply record at offset %d: %w", off, err)
	}
	if r.Value == nil {
		delete(m.entries, id)
		return nil
	}
	md, err := decodeValue(r.Value)
	if err != nil {
		return fmt.Errorf("apply record of %q at offset %d: %w", id, off, err)
	}
	e := m.entries[id]
	if e == nil {
		e = &entry{id: id}
		m.entries[id] = e
	}
	e.md = md
	e.remaining, e.retry, e.stalled = nil, nil, nil
	if md.state.prepared() {
		e.remaining = slices.Clone(md.partitions)
	} else {
		e.ending, e.waiting = nil, nil // answered by the decision that wrote Complete
	}
	m.wakeFor(md)
	return nil
}

// Records yields the live records in the order of transactional ids. Applied to
// a new machine they give the same hard state: it is the snapshot and what
// compaction keeps.
func (m *Machine) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, id := range slices.Sorted(maps.Keys(m.entries)) {
			if !yield(Record{Key: encodeKey(id), Value: encodeValue(m.entries[id].md)}) {
				return
			}
		}
	}
}

// write appends the record that takes id from old to next, after asserting that
// the transition is legal.
func (m *Machine) write(eff *Effects, id string, old, next metadata) {
	if err := checkTransition(old, next); err != nil {
		m.fail(eff, fmt.Errorf("transactional id %q: %w", id, err))
		return
	}
	eff.Records = append(eff.Records, Record{Key: encodeKey(id), Value: encodeValue(next)})
	m.wakeFor(next)
}

func (m *Machine) fail(eff *Effects, err error) {
	eff.Fatal = errors.Join(eff.Fatal, fmt.Errorf("transaction coordinator: %w", err))
}

// wake asks for a Tick at atMs or earlier.
func (m *Machine) wake(atMs int64) {
	if m.deadlineMs == 0 || atMs < m.deadlineMs {
		m.deadlineMs = max(atMs, 1)
	}
}

// wakeFor asks for the Tick that the metadata needs.
func (m *Machine) wakeFor(md metadata) {
	switch {
	case md.state == Ongoing && md.timeoutMs != noTimeoutMs:
		m.wake(md.timeoutAtMs())
	case md.state.resting():
		m.wake(md.updateMs + m.cfg.IDExpirationMs)
	}
}

// timeoutAtMs is the first time at which the transaction has timed out.
func (md metadata) timeoutAtMs() int64 { return md.startMs + int64(md.timeoutMs) + 1 }

// refuse answers with an error code.
func (eff *Effects) refuse(t Token, code int16, message string) {
	eff.Replies = append(eff.Replies, Reply{
		Token: t, Code: code, Message: message,
		ProducerID: batch.NoProducerID, Epoch: batch.NoEpoch,
	})
}

// grant answers with success and a pair.
func (eff *Effects) grant(t Token, id batch.ProducerID, epoch batch.Epoch) {
	eff.Replies = append(eff.Replies, Reply{Token: t, ProducerID: id, Epoch: epoch})
}
