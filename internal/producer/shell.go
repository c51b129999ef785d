package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/producer/core"
)

// payloadsFreeMax bounds the free list of batch buffers.
const payloadsFreeMax = 64

func (p *Producer) nowMs() int64 { return time.Since(p.started).Milliseconds() }

// step hands an event to the core and carries out the effects. Nothing here
// blocks: requests run in goroutines of their own.
func (p *Producer) step(ev core.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.dropClosed(ev)
		return
	}
	for _, e := range p.machine.Step(p.nowMs(), ev) {
		p.apply(e)
	}
}

// dropClosed forgets what comes after Close.
func (p *Producer) dropClosed(ev core.Event) {
	if a, ok := ev.(core.AppendEvent); ok {
		for _, b := range a.Batches {
			p.buffered.Add(int64(-b.SizeBytes))
		}
	}
}

func (p *Producer) apply(e core.Effect) {
	switch e := e.(type) {
	case core.SendProduce:
		p.stats.ProduceRequests++
		p.stats.Batches += uint64(len(e.Batches))
		p.work.Add(1)
		go p.sendProduce(e)
	case core.SendControl:
		ctx, cancel := context.WithCancel(p.ctx)
		p.controls[e.Request] = cancel
		p.work.Add(1)
		go p.sendControl(ctx, e)
	case core.CancelControl:
		if cancel, ok := p.controls[e.Request]; ok {
			cancel()
		}
	case core.Release:
		p.release(e)
	case core.Poisoned:
		p.failure = e.Failure
		p.gate.CompareAndSwap(gateOpen, gateFailed)
		p.room.Broadcast()
		p.cfg.Logger.Warn("producer: transaction failed", "transactional_id", p.cfg.TransactionalID,
			"err", p.errorOf("transaction", e.Failure, nil))
	case core.Healthy:
		p.failure = core.Failure{}
		p.gate.CompareAndSwap(gateFailed, gateShut)
	case core.OpDone:
		p.opDone <- e
	case core.Wake:
		p.wake(e.AtMs)
	case core.Retried:
		p.stats.Retries++
		p.cfg.Logger.Debug("producer: retry", "request", e.Kind.String(), "code", e.Code)
	}
}

func (p *Producer) wake(atMs int64) {
	d := time.Duration(atMs)*time.Millisecond - time.Since(p.started)
	if p.timer == nil {
		p.timer = time.AfterFunc(d, func() { p.step(core.TickEvent{}) })
		return
	}
	p.timer.Reset(d)
}

// release takes a batch back from the core.
func (p *Producer) release(e core.Release) {
	pl := e.Batch.Payload.(*payload)
	if e.Acked {
		p.stats.RecordsAcked += uint64(e.Batch.Count)
		if next := int64(e.LastOffset) + 1; next > pl.partition.ackedNext.Load() {
			pl.partition.ackedNext.Store(next)
		}
	}
	p.buffered.Add(int64(-len(pl.bytes)))
	pl.partition = nil
	if len(p.payloads) < payloadsFreeMax && cap(pl.bytes) <= 2*p.cfg.BatchMaxBytes {
		p.payloads = append(p.payloads, pl)
	}
	p.room.Broadcast()
}

func (p *Producer) getPayload() *payload {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.payloads); n > 0 {
		pl := p.payloads[n-1]
		p.payloads = p.payloads[:n-1]
		return pl
	}
	return new(payload)
}

// tryReserve takes from the buffer limit if there is room.
func (p *Producer) tryReserve(n int) bool {
	if p.buffered.Add(int64(n)) <= int64(p.cfg.MaxBufferedBytes) {
		return true
	}
	p.buffered.Add(int64(-n))
	return false
}

// reserve waits for room. It returns when the transaction fails or the
// producer is closed.
func (p *Producer) reserve(n int, op string) error {
	p.mu.Lock()
	for p.gate.Load() == gateOpen && !p.tryReserve(n) {
		p.room.Wait()
	}
	p.mu.Unlock()
	if p.gate.Load() != gateOpen {
		return p.gateError(op)
	}
	return nil
}

// seal hands one partition's open batch to the core.
func (p *Producer) seal(pt *Partition) {
	p.sealMu.Lock()
	defer p.sealMu.Unlock()
	if b := pt.take(); b != nil {
		p.step(core.AppendEvent{Batches: []*core.Batch{b}})
	}
}

// sealAll hands over every open batch that was opened at or before a time; a
// negative time means all. They go in one event, so that they can share
// requests.
func (p *Producer) sealAll(openedMs int64) {
	p.sealMu.Lock()
	defer p.sealMu.Unlock()
	var batches []*core.Batch
	for _, pt := range *p.partitions.Load() {
		pt.mu.Lock()
		due := pt.builder.Count() > 0 && (openedMs < 0 || pt.openedMs <= openedMs)
		pt.mu.Unlock()
		if !due {
			continue
		}
		if b := pt.take(); b != nil {
			batches = append(batches, b)
		}
	}
	if len(batches) > 0 {
		p.step(core.AppendEvent{Batches: batches})
	}
}

func (p *Producer) discardOpen() {
	p.sealMu.Lock()
	defer p.sealMu.Unlock()
	for _, pt := range *p.partitions.Load() {
		pt.discard()
	}
}

// armLinger makes sure that a timer runs while a batch is open.
func (p *Producer) armLinger() {
	if p.lingerArmed.CompareAndSwap(false, true) {
		time.AfterFunc(p.cfg.Linger, p.lingerDue)
	}
}

// lingerDue seals what has waited long enough and arms itself for the rest.
func (p *Producer) lingerDue() {
	p.lingerArmed.Store(false)
	if p.ctx.Err() != nil {
		return
	}
	p.sealAll(p.nowMs() - p.cfg.Linger.Milliseconds())
	for _, pt := range *p.partitions.Load() {
		pt.mu.Lock()
		open := pt.builder.Count() > 0
		pt.mu.Unlock()
		if open {
			p.armLinger()
			return
		}
	}
}

// sendProduce sends one Produce request and reports its end.
func (p *Producer) sendProduce(e core.SendProduce) {
	defer p.work.Done()
	for _, b := range e.Batches {
		pl := b.Payload.(*payload)
		if id := b.Identity(); pl.stamped != id || pl.sequence != b.Sequence() {
			batch.SetProducer(pl.bytes, id.ProducerID, id.Epoch, b.Sequence())
			pl.stamped, pl.sequence = id, b.Sequence()
		}
	}
	req := p.produceRequest(e)
	resp, err := p.net.produce(p.ctx, e.Node, req)
	p.step(produceReply(e, req, resp, err))
}

// sendControl sends one control request and reports its end.
func (p *Producer) sendControl(ctx context.Context, e core.SendControl) {
	defer p.work.Done()
	reply := p.control(ctx, e)
	reply.Request = e.Request
	p.mu.Lock()
	p.controls[e.Request]()
	delete(p.controls, e.Request)
	p.mu.Unlock()
	p.step(reply)
}

// PartitionCount asks the cluster how many partitions a topic has.
func (p *Producer) PartitionCount(ctx context.Context, topic string) (int32, error) {
	resp, err := p.metadata(ctx, []string{topic})
	if err != nil {
		return 0, fmt.Errorf("producer: partition count of %q: %w: %w", topic, ErrTimeout, err)
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil || *t.Topic != topic {
			continue
		}
		if t.ErrorCode != 0 {
			f := core.Failure{Reason: core.ReasonUnknownTopic, Request: core.ReqMetadata, Code: t.ErrorCode, Partition: -1}
			if v := core.VerdictFor(core.ReqMetadata, t.ErrorCode); v.Reason != core.ReasonNone {
				f.Reason = v.Reason
			}
			return 0, p.errorOf("partition count of "+topic, f, nil)
		}
		return int32(len(t.Partitions)), nil
	}
	return 0, fmt.Errorf("producer: partition count of %q: %w", topic, ErrUnknownTopic)
}
