package producer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/producer/core"
)

// Header is a record header.
type Header = batch.RecordHeader

// Partition is where records for one topic partition are appended.
type Partition struct {
	p      *Producer
	topic  string
	number int32
	index  int

	// mu guards the open batch against the linger timer. It is uncontended
	// in Append.
	mu       sync.Mutex
	builder  batch.Builder
	openedMs int64
	reserved int // bytes of the buffer limit the open batch holds

	ackedNext atomic.Int64 // offset after the last acknowledged record, 0 if none
}

// payload is the shell's part of a sealed batch.
type payload struct {
	partition *Partition
	bytes     []byte
	stamped   core.Identity // what the bytes carry; none before the first send
	sequence  int32
}

const (
	// reserveBytesMax bounds the step in which an open batch takes from the
	// buffer limit, so that appending a record touches no shared counter.
	reserveBytesMax = 16 << 10
	// recordOverheadBytes is more than the framing of a record with no
	// headers; headerOverheadBytes that of one header.
	recordOverheadBytes = 40
	headerOverheadBytes = 12
)

// Topic returns the topic's name.
func (pt *Partition) Topic() string { return pt.topic }

// Number returns the partition's number.
func (pt *Partition) Number() int32 { return pt.number }

// AckedOffset returns the offset of the last acknowledged record that was
// written through this producer, and false if there is none. It may belong to
// a transaction that is open or was aborted.
func (pt *Partition) AckedOffset() (int64, bool) {
	next := pt.ackedNext.Load()
	return next - 1, next > 0
}

// Append copies one record into the partition's open batch. Nil keys and
// values are null. It blocks while MaxBufferedBytes are held; Close ends the
// wait. Inside a transaction any error means that the transaction cannot
// commit any more.
func (pt *Partition) Append(key, value []byte, headers []Header, timestampMs int64) error {
	p := pt.p
	if p.gate.Load() != gateOpen {
		return p.gateError("append to " + pt.topic)
	}
	need := recordOverheadBytes + len(key) + len(value)
	for i := range headers {
		need += headerOverheadBytes + len(headers[i].Key) + len(headers[i].Value)
	}
	pt.mu.Lock()
	size := pt.builder.Size()
	full := pt.builder.Count() > 0 && size+need > p.cfg.BatchMaxBytes
	if full || size+need > pt.reserved {
		pt.mu.Unlock()
		if err := pt.makeRoom(full, need); err != nil {
			return err
		}
		pt.mu.Lock()
	}
	if pt.builder.Count() == 0 {
		pt.open(timestampMs)
	}
	pt.builder.Append(timestampMs, key, value, headers)
	pt.mu.Unlock()
	return nil
}

// open starts a batch; the caller holds mu.
func (pt *Partition) open(timestampMs int64) {
	p := pt.p
	opts := batch.PlainBatch(timestampMs)
	opts.Attributes = batch.Attributes(p.cfg.Compression)
	if p.cfg.TransactionalID != "" {
		opts.Attributes |= batch.AttrTransactional
	}
	pt.builder.Reset(opts)
	pt.openedMs = p.nowMs()
	p.armLinger()
}

// makeRoom seals the open batch if it is full and takes from the buffer limit
// what the next record needs, waiting for acknowledgements if it must.
func (pt *Partition) makeRoom(full bool, need int) error {
	p := pt.p
	if need+batch.HeaderSize > min(p.cfg.MaxBufferedBytes/2, batch.SizeMax) {
		f := core.Failure{Reason: core.ReasonRecordTooLarge, Partition: pt.index,
			Message: fmt.Sprintf("a record of %d bytes is above half of MaxBufferedBytes (%d)", need, p.cfg.MaxBufferedBytes)}
		p.step(core.PoisonEvent{Failure: f}) // an append that failed must not be committed around
		return p.errorOf("append to "+pt.topic, f, nil)
	}
	if full {
		p.seal(pt)
	}
	pt.mu.Lock()
	want := p.roundUp(pt.builder.Size() + need - pt.reserved)
	pt.mu.Unlock()
	if want > 0 && !p.tryReserve(want) {
		// The room may be held by open batches, this one included: send them.
		p.sealAll(-1)
		want = p.roundUp(batch.HeaderSize + need)
		if err := p.reserve(want, "append to "+pt.topic); err != nil {
			return err
		}
	}
	pt.mu.Lock()
	pt.reserved += want
	pt.mu.Unlock()
	return nil
}

// roundUp rounds to the step in which room is taken.
func (p *Producer) roundUp(n int) int {
	step := min(reserveBytesMax, p.cfg.BatchMaxBytes/8)
	return max(0, (n+step-1)/step*step)
}

// take builds the open batch and empties the builder; nil if it is empty. The
// caller holds the producer's sealMu.
func (pt *Partition) take() *core.Batch {
	pt.mu.Lock()
	defer pt.mu.Unlock()
	count := pt.builder.Count()
	if count == 0 {
		return nil
	}
	p := pt.p
	pl := p.getPayload()
	pl.partition = pt
	pl.bytes = pt.builder.Build(pl.bytes[:0])
	pl.stamped = core.NoIdentity
	p.buffered.Add(int64(len(pl.bytes) - pt.reserved))
	pt.drop()
	return &core.Batch{Partition: pt.index, Count: int32(count), SizeBytes: len(pl.bytes), Payload: pl}
}

// drop empties the builder; the caller holds mu and has settled reserved.
func (pt *Partition) drop() {
	pt.reserved = 0
	pt.builder.Reset(batch.BuilderOptions{})
}

// discard throws the open batch away.
func (pt *Partition) discard() {
	pt.mu.Lock()
	defer pt.mu.Unlock()
	pt.p.buffered.Add(int64(-pt.reserved))
	pt.drop()
}
