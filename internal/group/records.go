package group

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

func groupRecord(id string, v *batch.GroupValue) Record {
	return Record{Key: batch.MarshalGroupKey(id), Value: batch.MarshalGroupValue(*v)}
}

func offsetKey(id string, tp batch.TopicPartition) []byte {
	return batch.MarshalOffsetKey(batch.OffsetKey{Group: id, Topic: tp.Topic, Partition: tp.Partition})
}

func offsetRecord(id string, tp batch.TopicPartition, v batch.OffsetValue) Record {
	return Record{Key: offsetKey(id, tp), Value: batch.MarshalOffsetValue(v)}
}

// Apply takes one record of the log into hard state, in log order: what Decide
// asked for, once appended, and at boot everything there is. A transactional
// offset stays pending until the producer's marker. The record's bytes are not
// kept. Record types that this package does not know are skipped, as in Kafka.
// The error names the offset and wraps batch.ErrCorrupt or batch.ErrUnknownVersion.
func (m *Machine) Apply(off batch.Offset, r Record, pid batch.ProducerID, epoch batch.Epoch, transactional bool) error {
	kind, err := batch.KeyType(r.Key)
	if err == nil {
		switch kind {
		case batch.KeyTypeOffsetCommitV0, batch.KeyTypeOffsetCommit:
			if !transactional {
				pid, epoch = batch.NoProducerID, batch.NoEpoch
			}
			err = m.applyOffset(off, r, pid, epoch)
		case batch.KeyTypeGroupMetadata:
			err = m.applyGroup(off, r)
		}
	}
	if err != nil {
		return fmt.Errorf("group: record at offset %d: %w", off, err)
	}
	return nil
}

func (m *Machine) applyGroup(off batch.Offset, r Record) error {
	id, err := batch.ParseGroupKey(r.Key)
	if err != nil {
		return err
	}
	if r.Value == nil {
		if g := m.groups[id]; g != nil {
			m.disband(g)
			m.dropIfGone(g)
		}
		return nil
	}
	v, err := batch.UnmarshalGroupValue(r.Value)
	if err != nil {
		return fmt.Errorf("group %q: %w", id, err)
	}
	ids, instances := make(map[string]struct{}), make(map[string]struct{})
	for i := range v.Members {
		s := &v.Members[i]
		s.Subscription, s.Assignment = bytes.Clone(s.Subscription), bytes.Clone(s.Assignment)
		ids[s.MemberID] = struct{}{}
		if s.InstanceID != nil {
			if _, dup := instances[*s.InstanceID]; dup {
				return fmt.Errorf("group %q: instance id %q twice: %w", id, *s.InstanceID, batch.ErrCorrupt)
			}
			instances[*s.InstanceID] = struct{}{}
		}
	}
	if len(ids) != len(v.Members) {
		return fmt.Errorf("group %q: a member id twice: %w", id, batch.ErrCorrupt)
	}
	g := m.hard(id)
	g.stored, g.storedOffset = &v, off
	return nil
}

// hard returns the group, made if need be.
func (m *Machine) hard(id string) *group {
	g := m.groups[id]
	if g == nil {
		g = newGroup(id)
		m.groups[id] = g
	}
	return g
}

// dropIfGone forgets a group of which nothing is left.
func (m *Machine) dropIfGone(g *group) {
	if !g.exists() && !g.live() {
		m.timers.cancel(g.joinTimer)
		m.timers.cancel(g.syncTimer)
		delete(m.groups, g.id)
	}
}

func (m *Machine) applyOffset(off batch.Offset, r Record, pid batch.ProducerID, epoch batch.Epoch) error {
	k, err := batch.ParseOffsetKey(r.Key)
	if err != nil {
		return err
	}
	tp := batch.TopicPartition{Topic: k.Topic, Partition: k.Partition}
	if r.Value == nil {
		if g := m.groups[k.Group]; g != nil {
			delete(g.offsets, tp)
			m.dropPending(g, tp)
			m.dropIfGone(g)
		}
		return nil
	}
	v, err := batch.UnmarshalOffsetValue(r.Value)
	if err != nil {
		return fmt.Errorf("group %q, partition %s-%d: %w", k.Group, tp.Topic, tp.Partition, err)
	}
	g := m.hard(k.Group)
	c := commit{OffsetValue: v, recordOffset: off, epoch: epoch}
	if pid >= 0 {
		m.addPending(g, tp, pid, c)
		return nil
	}
	g.put(tp, c)
	return nil
}

func (g *group) put(tp batch.TopicPartition, c commit) {
	if g.offsets == nil {
		g.offsets = make(map[batch.TopicPartition]commit)
	}
	c.epoch = batch.NoEpoch
	g.offsets[tp] = c
}

// LiveRecord is a record that still counts, where it is in the log.
type LiveRecord struct {
	Offset     batch.Offset
	Record     Record
	ProducerID batch.ProducerID // -1 unless pending
	Epoch      batch.Epoch
}

// Records are the live records by group: its metadata, its committed offsets,
// its pending ones. Applied in this order (transactional if ProducerID is not
// -1) to a new machine they give the same hard state. An offset that a
// transaction committed comes out as a plain one.
func (m *Machine) Records() iter.Seq[LiveRecord] {
	return func(yield func(LiveRecord) bool) {
		pids := slices.Sorted(maps.Keys(m.pending))
		for _, id := range m.groupIDs() {
			g := m.groups[id]
			plain := LiveRecord{ProducerID: batch.NoProducerID, Epoch: batch.NoEpoch}
			if g.stored != nil {
				plain.Offset, plain.Record = g.storedOffset, groupRecord(id, g.stored)
				if !yield(plain) {
					return
				}
			}
			for _, tp := range sortedKeys(g.offsets) {
				c := g.offsets[tp]
				plain.Offset, plain.Record = c.recordOffset, offsetRecord(id, tp, c.OffsetValue)
				if !yield(plain) {
					return
				}
			}
			for _, pid := range pids {
				pending := m.pending[pid][id]
				for _, tp := range sortedKeys(pending) {
					c := pending[tp]
					if !yield(LiveRecord{c.recordOffset, offsetRecord(id, tp, c.OffsetValue), pid, c.epoch}) {
						return
					}
				}
			}
		}
	}
}

func sortedKeys[V any](m map[batch.TopicPartition]V) []batch.TopicPartition {
	return slices.SortedFunc(maps.Keys(m), batch.TopicPartition.Compare)
}
