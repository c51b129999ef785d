package shard

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// DeleteRecords moves the log's start up to offset; -1 is the high watermark.
// done gets the new start.
func (p *Partition) DeleteRecords(offset batch.Offset, done func(start batch.Offset, code int16, lsn seglog.LSN)) {
	type answer struct {
		start batch.Offset
		code  int16
		lsn   seglog.LSN
	}
	give := once(func(a answer) { done(a.start, a.code, a.lsn) })
	p.actor.call(func() {
		start, code := p.deleteRecords(offset)
		give(answer{start, code, p.lastLSN})
	}, func() { give(answer{-1, p.refusal(), 0}) })
}

func (p *Partition) deleteRecords(offset batch.Offset) (start batch.Offset, code int16) {
	if code := p.errCode(); code != 0 {
		return -1, code
	}
	hw := p.log.DurableEnd()
	if offset == -1 {
		offset = hw
	}
	switch {
	case offset < 0 || offset > hw:
		return -1, kerr.OffsetOutOfRange.Code
	case offset <= p.log.Start():
		return p.log.Start(), 0
	}
	lsn, err := p.log.SetStart(offset)
	if err != nil {
		p.fail(err)
		return -1, p.errCode()
	}
	p.lastLSN = lsn
	p.prod.SetLogStart(offset)
	p.publish()
	return p.log.Start(), 0
}

// DescribeProducers lists the producers whose state the partition keeps.
func (p *Partition) DescribeProducers(done func([]prodstate.ActiveProducer, seglog.LSN)) {
	type answer struct {
		all []prodstate.ActiveProducer
		lsn seglog.LSN
	}
	give := once(func(a answer) { done(a.all, a.lsn) })
	p.actor.call(func() { give(answer{p.prod.Describe(), p.lastLSN}) }, func() { give(answer{}) })
}

// ExpireProducers forgets producers that were idle for too long.
func (p *Partition) ExpireProducers() {
	p.actor.post(func() {
		if p.err == nil {
			p.prod.Expire(nowMs(), p.env.ProducerIDExpirationMs)
		}
	})
}

// TopicDeleted drops committed offsets of partitions that are gone. done gets
// the position that makes it durable.
func (p *Partition) TopicDeleted(topic string, partitions []int32, done func(seglog.LSN)) {
	done = once(done)
	p.actor.call(func() {
		if p.err == nil {
			p.decideGroup(group.TopicDeleted{Topic: topic, Partitions: partitions})
		}
		done(p.lastLSN)
	}, func() { done(0) })
}

// forgetDeleted drops the offsets of partitions whose topic was deleted, when a
// crash came between the two. Runs on the actor at its start.
func (p *Partition) forgetDeleted() {
	for _, tp := range p.group.OffsetPartitions() {
		if p.err == nil && p.env.Lookup(tp) == nil {
			p.decideGroup(group.TopicDeleted{Topic: tp.Topic, Partitions: []int32{tp.Partition}})
		}
	}
}
