package shard

import (
	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
)

// Marker ends a producer's transaction in one partition (WriteTxnMarkers).
type Marker struct {
	ProducerID       batch.ProducerID
	Epoch            batch.Epoch
	Commit           bool
	CoordinatorEpoch int32
	TV2              bool // transaction.version 2: the epoch was bumped (KIP-1228)
}

// WriteMarker appends the marker. done is called exactly once; its position
// must be durable before a client may hear of it.
func (p *Partition) WriteMarker(m Marker, done func(code int16, lsn seglog.LSN)) {
	type answer struct {
		code int16
		lsn  seglog.LSN
	}
	give := once(func(a answer) { done(a.code, a.lsn) })
	p.actor.call(func() {
		code := p.writeMarker(m)
		give(answer{code, p.lastLSN})
	}, func() { give(answer{code: p.refusal()}) })
}

func (p *Partition) writeMarker(m Marker) int16 {
	if code := p.errCode(); code != 0 {
		return code
	}
	now := nowMs()
	d := p.prod.Decide(now, prodstate.AppendMarker{
		ProducerID: m.ProducerID, Epoch: m.Epoch, CoordinatorEpoch: m.CoordinatorEpoch, TV2: m.TV2,
	})
	if d.Action == prodstate.Reject {
		p.countFenced(d.Code)
		return d.Code
	}
	kind := batch.ControlAbort
	if m.Commit {
		kind = batch.ControlCommit
	}
	raw := batch.AppendMarker(nil, m.ProducerID, m.Epoch, kind, m.CoordinatorEpoch, now)
	h, err := batch.ParseHeader(raw)
	if err != nil {
		p.fail(err)
		return p.errCode()
	}
	base, err := p.append(raw, h, &prodstate.Marker{Type: kind, CoordinatorEpoch: m.CoordinatorEpoch, TV2: m.TV2})
	if err != nil {
		return p.errCode()
	}
	if p.group != nil {
		p.group.ApplyMarker(base, m.ProducerID, m.Epoch, m.Commit)
	}
	return 0
}
