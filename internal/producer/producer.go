package producer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/producer/core"
)

// GroupMetadata is the consumer group membership that offsets are committed
// under (KIP-447). It must be the membership under which the records were
// polled: take it at the poll and block rebalances while processing. Metadata
// read at commit time may belong to a newer membership than the records.
type GroupMetadata struct {
	GroupID      string
	MemberID     string
	GenerationID int32
	InstanceID   *string // group.instance.id, nil for none
}

// OffsetAndMetadata is one partition's next offset to read.
type OffsetAndMetadata struct {
	Offset      int64
	LeaderEpoch int32 // -1 if not known
	Metadata    string
}

// Offsets are the positions that a transaction commits.
type Offsets map[batch.TopicPartition]OffsetAndMetadata

// What Append may do; one load per record.
const (
	gateShut   int32 = iota // no transaction is open
	gateOpen                // records are welcome
	gateFailed              // the transaction or the producer failed
	gateClosed
)

// Producer writes records under one identity, in transactions if it has a
// transactional id.
type Producer struct {
	cfg     Config
	net     network
	started time.Time

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	partitions atomic.Pointer[[]*Partition]
	byName     map[batch.TopicPartition]*Partition // caller's goroutine only
	gate       atomic.Int32
	buffered   atomic.Int64

	// sealMu orders sealing with the handing over to the core, so that the
	// linger timer and the caller cannot swap two batches. It is taken before
	// Partition.mu and mu.
	sealMu      sync.Mutex
	lingerArmed atomic.Bool

	// opMu admits one API call at a time.
	opMu   sync.Mutex
	opDone chan core.OpDone

	// mu guards the machine and everything below.
	mu       sync.Mutex
	machine  *core.Machine
	room     *sync.Cond // signalled when buffered shrinks, or on failure
	failure  core.Failure
	timer    *time.Timer
	controls map[int64]context.CancelFunc
	topics   map[string]topicInfo
	offsets  *kmsg.TxnOffsetCommitRequest // of the commit under way
	group    string
	payloads []*payload // free list
	stats    Stats
	closed   bool
}

// topicInfo is what Metadata said about a topic.
type topicInfo struct {
	id [16]byte // zero before Metadata v10
}

// New returns a producer; it sends nothing before Init.
func New(cfg Config) (*Producer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Producer{
		cfg:      cfg,
		net:      cfg.net,
		started:  time.Now(),
		byName:   make(map[batch.TopicPartition]*Partition),
		opDone:   make(chan core.OpDone, 1),
		machine:  core.New(cfg.core()),
		controls: make(map[int64]context.CancelFunc),
		topics:   make(map[string]topicInfo),
	}
	if p.net == nil {
		p.net = &clients{data: cfg.Data, ctl: cfg.Control}
	}
	p.room = sync.NewCond(&p.mu)
	p.partitions.Store(new([]*Partition))
	p.stats.AbortsByReason = make(map[string]uint64)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Init gets the producer's identity. With a transactional id it fences every
// other producer of that id and ends its open transaction, so it belongs
// before the consumer's first OffsetFetch. It retries until ctx ends.
func (p *Producer) Init(ctx context.Context) error {
	_, err := p.do(ctx, "init", core.InitEvent{})
	if err == nil && p.cfg.TransactionalID == "" {
		p.open()
	}
	return err
}

// Partition returns the place to append records for a topic's partition. It
// sends nothing: a partition that does not exist fails the transaction with
// ErrUnknownTopic after DeliveryTimeout.
func (p *Producer) Partition(topic string, n int32) (*Partition, error) {
	if topic == "" || n < 0 {
		return nil, fmt.Errorf("producer: %w: partition %d of topic %q", ErrInvalidConfig, n, topic)
	}
	tp := batch.TopicPartition{Topic: topic, Partition: n}
	if pt, ok := p.byName[tp]; ok {
		return pt, nil
	}
	pt := &Partition{p: p, topic: topic, number: n}
	pt.builder.Reset(batch.BuilderOptions{})
	p.mu.Lock()
	defer p.mu.Unlock()
	pt.index = p.machine.AddPartition()
	parts := append(slices.Clip(*p.partitions.Load()), pt)
	p.partitions.Store(&parts)
	p.byName[tp] = pt
	return pt, nil
}

// Begin opens a transaction. The coordinator learns of it with the first
// write.
func (p *Producer) Begin() error {
	_, err := p.do(context.Background(), "begin", core.BeginEvent{})
	if err == nil {
		p.open()
	}
	return err
}

// open lets Append pass, unless the producer was closed meanwhile.
func (p *Producer) open() { p.gate.CompareAndSwap(gateShut, gateOpen) }

// shut keeps Append out until the next Begin.
func (p *Producer) shut() { p.gate.CompareAndSwap(gateOpen, gateShut) }

// Flush waits until every record appended so far is acknowledged. If it fails
// because of a batch, so does the transaction.
func (p *Producer) Flush(ctx context.Context) error {
	p.sealAll(-1)
	_, err := p.do(ctx, "flush", core.FlushEvent{})
	return err
}

// Commit flushes, adds the offsets to the transaction and ends it. A
// transaction may consist of offsets only.
//
// Committed: everything is visible together. Aborted: nothing will ever be;
// call Abort, after which the producer goes on (errors ErrFenced and ErrFatal
// excepted). Unknown: the answer to EndTxn was lost; call Recover, and find
// out by an OffsetFetch with RequireStable. The error says why it is not
// Committed.
//
// ctx ends the flush and the offsets, not EndTxn, which has EndTxnTimeout.
func (p *Producer) Commit(ctx context.Context, group GroupMetadata, offsets Offsets) (Outcome, error) {
	if err := checkGroup(group, offsets); err != nil {
		p.step(core.PoisonEvent{Failure: core.Failure{Reason: core.ReasonInvalidConfig, Message: err.Error(), Partition: -1}})
		return Aborted, err
	}
	p.shut()
	p.mu.Lock()
	p.offsets, p.group = nil, group.GroupID
	if len(offsets) > 0 {
		p.offsets = offsetRequest(p.cfg.TransactionalID, group, offsets)
	}
	p.mu.Unlock()
	p.sealAll(-1)
	outcome, err := p.do(ctx, "commit", core.CommitEvent{Offsets: len(offsets) > 0})
	p.count(outcome, err)
	return outcome, err
}

// checkGroup refuses offsets that the group coordinator would accept without
// checking the membership: an empty member with generation -1 is what kgo
// returns when it is no member, and it commits unfenced.
func checkGroup(g GroupMetadata, offsets Offsets) error {
	if len(offsets) == 0 {
		return nil
	}
	switch {
	case g.GroupID == "":
		return fmt.Errorf("producer: commit: %w: offsets without a group id", ErrInvalidConfig)
	case g.MemberID == "" || g.GenerationID < 0:
		return fmt.Errorf("producer: commit: %w: offsets for group %q with member %q and generation %d would not be fenced; "+
			"take the group metadata at the poll, as a member", ErrInvalidConfig, g.GroupID, g.MemberID, g.GenerationID)
	}
	for tp, o := range offsets {
		if tp.Topic == "" || tp.Partition < 0 || o.Offset < 0 {
			return fmt.Errorf("producer: commit: %w: offset %d for %q-%d", ErrInvalidConfig, o.Offset, tp.Topic, tp.Partition)
		}
	}
	return nil
}

// Abort ends the open transaction without its effects. It waits for requests
// in flight and retries until ctx ends; then it may be called again. Without
// an open transaction it does nothing.
func (p *Producer) Abort(ctx context.Context) error {
	p.shut()
	p.discardOpen()
	_, err := p.do(ctx, "abort", core.AbortEvent{})
	return err
}

// Recover resolves whatever is open at the coordinator and takes a fresh
// identity; sequences restart at 0. It is what follows an Unknown commit.
// Without a transactional id it takes a new producer id: what was not
// acknowledged is given up, and may or may not have been written.
func (p *Producer) Recover(ctx context.Context) error {
	_, err := p.Resolve(ctx)
	return err
}

// Resolve is Recover, and returns what became of the unresolved transaction
// as far as its coordinator told: under transaction.version 2 always Committed
// or Aborted, under version 1 perhaps Unknown.
func (p *Producer) Resolve(ctx context.Context) (Outcome, error) {
	p.shut()
	p.discardOpen()
	outcome, err := p.do(ctx, "recover", core.RecoverEvent{})
	if err == nil && p.cfg.TransactionalID == "" {
		p.open()
	}
	return outcome, err
}

// Close stops the producer and waits for its goroutines. An open transaction
// is left to the coordinator: abort it first, or the next Init of the same id
// or its timeout will.
func (p *Producer) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.work.Wait()
		return
	}
	p.closed = true
	p.gate.Store(gateClosed)
	p.cancel()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.room.Broadcast()
	p.mu.Unlock()
	p.work.Wait()
}

// do runs one API call in the core and waits for its end.
func (p *Producer) do(ctx context.Context, op string, ev core.Event) (Outcome, error) {
	p.opMu.Lock()
	defer p.opMu.Unlock()
	if p.ctx.Err() != nil {
		return Unknown, fmt.Errorf("producer: %s: %w", op, ErrClosed)
	}
	p.step(ev)
	canceled := ctx.Done()
	for {
		select {
		case r := <-p.opDone:
			var cause error
			if r.Failure.Reason == core.ReasonCanceled {
				cause = context.Cause(ctx)
			}
			return r.Outcome, p.errorOf(op, r.Failure, cause)
		case <-canceled:
			canceled = nil
			p.step(core.CancelEvent{})
		case <-p.ctx.Done():
			return Unknown, fmt.Errorf("producer: %s: %w", op, ErrClosed)
		}
	}
}

// gateError says why Append is refused.
func (p *Producer) gateError(op string) error {
	switch p.gate.Load() {
	case gateClosed:
		return fmt.Errorf("producer: %s: %w", op, ErrClosed)
	case gateFailed:
		p.mu.Lock()
		f := p.failure
		p.mu.Unlock()
		return p.errorOf(op, f, nil)
	}
	return fmt.Errorf("producer: %s: %w: no transaction is open", op, ErrState)
}
