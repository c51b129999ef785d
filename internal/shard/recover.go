package shard

import (
	"fmt"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// recover rebuilds the machines from the log: the producer state from its
// newest readable snapshot and the batches behind it, a coordinator from all
// records of its partition.
func (p *Partition) recover() error {
	p.prod = prodstate.New(prodstate.Options{LogStart: p.log.Start()})
	// Without a snapshot every batch counts, also the one that holds the log's
	// start: DeleteRecords may have left its last records only, which belong to
	// its producer's state and transaction all the same.
	from := batch.Offset(0)
	for _, at := range p.log.ProducerSnapshots() {
		data, err := p.log.ReadProducerSnapshot(at)
		if err != nil {
			return err
		}
		prod, err := prodstate.Restore(data, prodstate.Options{LogStart: p.log.Start()})
		if err != nil { // an older one, or the log itself, tells the same
			p.env.Logger.Warn("producer snapshot unreadable, using an older one",
				"topic", p.TP.Topic, "partition", p.TP.Partition, "offset", at, "err", err)
			continue
		}
		p.prod, from = prod, at
		break
	}
	p.prod.SetLogStart(p.log.Start())
	replayFrom := max(from, p.log.Start())
	if p.txn != nil || p.group != nil {
		replayFrom = p.log.Start()
	}
	for raw, err := range p.log.Batches(replayFrom) {
		if err != nil {
			return err
		}
		if err := p.replay(raw, from); err != nil {
			return err
		}
	}
	p.publish()
	return nil
}

// replay applies one stored batch: to the producer state from its snapshot's
// offset on, and to the coordinator always.
func (p *Partition) replay(raw []byte, producersFrom batch.Offset) error {
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return err
	}
	var marker *prodstate.Marker
	if h.IsControl() && h.Count > 0 {
		kind, epoch, err := batch.ParseMarker(raw)
		if err != nil {
			return fmt.Errorf("offset %d: %w", h.BaseOffset, err)
		}
		if kind == batch.ControlAbort || kind == batch.ControlCommit {
			marker = &prodstate.Marker{Type: kind, CoordinatorEpoch: epoch}
		}
	}
	if h.BaseOffset >= producersFrom {
		if err := p.apply(h.BaseOffset, h, marker); err != nil {
			return err
		}
		p.unsavedBytes += int64(len(raw))
	}
	switch {
	case h.IsControl():
		if marker != nil && p.group != nil {
			p.group.ApplyMarker(h.BaseOffset, h.ProducerID, h.Epoch, marker.Type == batch.ControlCommit)
		}
		return nil
	case p.txn == nil && p.group == nil:
		return nil
	}
	for rec, err := range batch.Records(raw) {
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		off := h.BaseOffset + batch.Offset(rec.OffsetDelta)
		if p.txn != nil {
			err = p.txn.Apply(off, txn.Record{Key: rec.Key, Value: rec.Value})
		} else {
			err = p.group.Apply(off, group.Record{Key: rec.Key, Value: rec.Value}, h.ProducerID, h.Epoch, h.IsTransactional())
		}
		if err != nil { // a record of a newer version: skipped, as Kafka does
			p.env.Logger.Warn("internal record skipped", "topic", p.TP.Topic, "partition", p.TP.Partition, "offset", off, "err", err)
		}
	}
	return nil
}
