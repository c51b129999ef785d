package core

import (
	"math/rand/v2"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// simCluster models what the brokers keep: producer state per partition, one
// transaction coordinator and one group offset. Rules: KIP-98, KIP-360,
// KIP-890 as Kafka 4.x has them.
type simCluster struct {
	v     int16
	rng   *rand.Rand
	later func(ms int64, f func())
	parts []*simPartition

	pid         batch.ProducerID
	epoch, last batch.Epoch
	state       simState
	commit      bool // which Prepare or Complete
	members     map[int]bool
	withOffsets bool
	offset      int // committed
	pending     int // -1 none
	offering    int // what the driver's next TxnOffsetCommit carries
}

type simState uint8

const (
	simEmpty simState = iota
	simOngoing
	simPrepare
	simComplete
)

type simPartition struct {
	epoch  batch.Epoch
	cached []simBatch
	open   bool
	log    []simRecord
}

type simBatch struct{ first, last int32 }

type simRecord struct {
	value int
	fate  int8 // 0 open, 1 committed, -1 aborted
}

func (p *simPartition) committed() (out []int) {
	for _, r := range p.log {
		if r.fate == 1 {
			out = append(out, r.value)
		}
	}
	return out
}

func newSimCluster(v int16, partitions int) *simCluster {
	c := &simCluster{v: v, pid: 7, epoch: -1, last: -1, members: map[int]bool{}, pending: -1}
	for range partitions {
		c.parts = append(c.parts, &simPartition{epoch: -1})
	}
	return c
}

func (c *simCluster) busy() bool { return c.state == simPrepare || c.pending >= 0 }

// produce appends one batch or refuses it.
func (c *simCluster) produce(b *Batch, node, leader int32) ProduceResult {
	p, e := c.parts[b.Partition], b.id.Epoch
	seq := simBatch{b.sequence, b.sequence + b.Count - 1}
	if node != leader {
		return ProduceResult{Code: 6}
	}
	if e == p.epoch {
		for _, x := range p.cached {
			if x == seq {
				return ProduceResult{Code: 0}
			}
		}
	}
	if !p.open || e != p.epoch { // no open transaction for exactly this identity
		if code := c.admit(b.Partition, e); code != 0 {
			return ProduceResult{Code: code}
		}
	}
	switch {
	case e < p.epoch:
		return ProduceResult{Code: 47}
	case c.v == 2 && (e > p.epoch || len(p.cached) == 0) && seq.first != 0:
		return ProduceResult{Code: 45}
	case e > p.epoch && p.epoch >= 0 && seq.first != 0:
		return ProduceResult{Code: 45}
	case e == p.epoch:
		next := int32(0)
		if n := len(p.cached); n > 0 {
			next = p.cached[n-1].last + 1
		}
		if seq.first != next {
			return ProduceResult{Code: 45}
		}
	}
	if e > p.epoch {
		p.epoch, p.cached = e, nil
	}
	p.cached = append(p.cached, seq)
	if len(p.cached) > 5 {
		p.cached = p.cached[1:]
	}
	p.open = true
	for _, v := range b.Payload.([]int) {
		p.log = append(p.log, simRecord{value: v})
	}
	return ProduceResult{Code: 0, BaseOffset: batch.Offset(len(p.log) - int(b.Count))}
}

// admit asks the coordinator about the first write to a partition: version 2
// adds it, version 1 verifies that it was added.
func (c *simCluster) admit(partition int, e batch.Epoch) int16 {
	switch {
	case e != c.epoch:
		return 47
	case c.state == simPrepare && c.v == 2:
		return 51
	case c.state == simPrepare:
		return 19
	case c.v == 1 && !(c.state == simOngoing && c.members[partition]):
		return 120
	}
	c.ongoing()
	c.members[partition] = true
	return 0
}

func (c *simCluster) ongoing() {
	if c.state != simOngoing {
		c.state, c.withOffsets = simOngoing, false
		clear(c.members)
	}
}

func (c *simCluster) control(e SendControl, offering int) ControlReplyEvent {
	r := ControlReplyEvent{Identity: NoIdentity}
	switch e.Kind {
	case ReqFindTxnCoordinator, ReqFindGroupCoordinator:
		r.Node = 1
	case ReqFeatures:
		r.Features = Features{TransactionVersion: c.v, ProduceMax: 13, InitProducerIDMax: 5, TxnOffsetCommitMax: 5, EndTxnMax: 5}
	case ReqInitProducerID:
		r.Code, r.Identity = c.init(e.Identity)
	case ReqDescribeTransaction:
		r.Settled = c.state != simPrepare
	case ReqAddPartitions, ReqAddOffsets:
		r.Code = c.add(e)
		r.Codes = []int16{r.Code}
	case ReqTxnOffsetCommit:
		r.Codes = []int16{c.offsets(e, offering)}
	case ReqEndTxn:
		r.Code, r.Identity = c.end(e)
	}
	return r
}

func (c *simCluster) add(e SendControl) int16 {
	switch {
	case e.Identity.Epoch != c.epoch:
		return 90
	case c.state == simPrepare:
		return 51
	}
	c.ongoing()
	for _, i := range e.Partitions {
		c.members[i] = true
	}
	c.withOffsets = c.withOffsets || e.Kind == ReqAddOffsets
	return 0
}

func (c *simCluster) offsets(e SendControl, offering int) int16 {
	switch {
	case e.Identity.Epoch != c.epoch:
		return 47
	case c.state == simPrepare:
		return 51
	case c.v == 1 && !(c.state == simOngoing && c.withOffsets):
		return 120
	}
	c.ongoing()
	c.withOffsets = true
	c.pending = offering
	return 0
}

func (c *simCluster) init(given Identity) (int16, Identity) {
	if c.state == simPrepare {
		return 51, NoIdentity
	}
	if c.state == simOngoing {
		c.epoch++ // the fence; never revealed
		c.last = -1
		c.prepare(false)
		return 51, NoIdentity
	}
	switch {
	case given.Epoch < 0:
		c.epoch, c.last = c.epoch+1, -1
	case given.Epoch == c.epoch:
		c.epoch, c.last = c.epoch+1, c.epoch
	case given.Epoch == c.last:
	default:
		return 90, NoIdentity
	}
	c.state = simEmpty
	return 0, Identity{c.pid, c.epoch}
}

func (c *simCluster) end(e SendControl) (int16, Identity) {
	if c.v == 1 {
		switch {
		case e.Identity.Epoch != c.epoch:
			return 90, NoIdentity
		case c.state == simOngoing:
			c.prepare(e.Commit)
			return 0, NoIdentity
		case c.state == simComplete && c.commit == e.Commit:
			return 0, NoIdentity
		case c.state == simPrepare && c.commit == e.Commit:
			return 51, NoIdentity
		}
		return 48, NoIdentity
	}
	current, retry := e.Identity.Epoch == c.epoch, e.Identity.Epoch+1 == c.epoch
	switch {
	case !current && !retry:
		return 90, NoIdentity
	case c.state == simOngoing && current:
		c.last = c.epoch
		c.epoch++
		c.prepare(e.Commit)
		return 0, Identity{c.pid, c.epoch}
	case c.state == simOngoing:
		return 90, NoIdentity
	case c.state == simPrepare && current:
		return 90, NoIdentity
	case c.state == simPrepare && c.commit == e.Commit:
		return 51, NoIdentity
	case c.state == simPrepare:
		return 48, NoIdentity
	case current && !e.Commit: // Empty or Complete: abort and bump
		c.last = c.epoch
		c.epoch++
		c.state, c.commit = simComplete, false
		return 0, Identity{c.pid, c.epoch}
	case current:
		return 48, NoIdentity
	case c.state == simComplete && c.commit == e.Commit:
		return 0, Identity{c.pid, c.epoch}
	case c.state == simComplete:
		return 48, NoIdentity
	}
	return 90, NoIdentity
}

// prepare decides the transaction; the markers follow a little later.
func (c *simCluster) prepare(commit bool) {
	c.state, c.commit = simPrepare, commit
	c.later(int64(c.rng.IntN(6)), func() {
		for i := range c.parts {
			if c.members[i] {
				c.parts[i].mark(c.epoch, commit)
			}
		}
		if c.withOffsets && commit && c.pending >= 0 {
			c.offset = c.pending
		}
		c.pending = -1
		c.state = simComplete
	})
}

func (p *simPartition) mark(epoch batch.Epoch, commit bool) {
	if epoch != p.epoch {
		p.epoch, p.cached = epoch, nil
	}
	p.open = false
	fate := int8(-1)
	if commit {
		fate = 1
	}
	for i := range p.log {
		if p.log[i].fate == 0 {
			p.log[i].fate = fate
		}
	}
}
