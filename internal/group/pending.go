package group

import "github.com/hanbeon/hanbeon/internal/batch"

// addPending puts an offset of an open transaction aside (§5.2). The later
// record of the same transaction wins.
func (m *Machine) addPending(g *group, tp batch.TopicPartition, pid batch.ProducerID, c commit) {
	groups := m.pending[pid]
	if groups == nil {
		groups = make(map[string]map[batch.TopicPartition]commit)
		m.pending[pid] = groups
	}
	offsets := groups[g.id]
	if offsets == nil {
		offsets = make(map[batch.TopicPartition]commit)
		groups[g.id] = offsets
	}
	if _, again := offsets[tp]; !again {
		if g.pending == nil {
			g.pending = make(map[batch.TopicPartition]int)
		}
		g.pending[tp]++
	}
	offsets[tp] = c
}

// dropPending forgets what any transaction holds for a partition: its offset
// was deleted after the transaction wrote it, so the marker must not bring it back.
func (m *Machine) dropPending(g *group, tp batch.TopicPartition) {
	if g.pending[tp] == 0 {
		return
	}
	for pid, groups := range m.pending {
		offsets := groups[g.id]
		if _, ok := offsets[tp]; !ok {
			continue
		}
		delete(offsets, tp)
		if len(offsets) == 0 {
			delete(groups, g.id)
		}
		if len(groups) == 0 {
			delete(m.pending, pid)
		}
	}
	delete(g.pending, tp)
}

// ApplyMarker ends a producer's transaction, in log order and at boot too. A
// commit moves each pending offset, unless a plain commit that came later in
// the log is there: it is newer, whatever the marker's place. An abort drops
// them. A producer without pending offsets is a no-op.
//
// The epoch is not compared: the log has already refused stale markers, and a
// marker of transaction version 2 carries a later epoch than its records.
func (m *Machine) ApplyMarker(off batch.Offset, pid batch.ProducerID, epoch batch.Epoch, commit bool) {
	_, _ = off, epoch
	groups := m.pending[pid]
	delete(m.pending, pid)
	for id, offsets := range groups {
		g := m.groups[id]
		for tp, c := range offsets {
			if g.pending[tp]--; g.pending[tp] == 0 {
				delete(g.pending, tp)
			}
			if old, ok := g.offsets[tp]; commit && (!ok || c.recordOffset > old.recordOffset) {
				g.put(tp, c)
			}
		}
		m.dropIfGone(g)
	}
}

// hasPending reports whether some open transaction holds the partition.
func (g *group) hasPending(tp batch.TopicPartition) bool { return g.pending[tp] > 0 }
