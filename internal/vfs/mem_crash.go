package vfs

import (
	"math/rand/v2"
	"slices"
)

// CrashPolicy says what a power cut does to what was not synced.
type CrashPolicy struct {
	kind crashKind
	seed uint64
}

type crashKind int8

const (
	crashDrop crashKind = iota
	crashKeep
	crashTorn
)

// DropUnsynced loses every byte and every name that was not synced.
var DropUnsynced = CrashPolicy{kind: crashDrop}

// KeepUnsynced loses nothing: what kill -9 leaves.
var KeepUnsynced = CrashPolicy{kind: crashKeep}

// Torn keeps a random subset, the same for the same seed: each unsynced
// sector of 512 bytes, each change of a file's size and each change of a name
// (a rename counts as one) is kept or lost by itself.
func Torn(seed uint64) CrashPolicy { return CrashPolicy{kind: crashTorn, seed: seed} }

// CrashClone returns a new file system as found after a power cut now. The
// original goes on unharmed; the clone holds no locks.
func (m *Mem) CrashClone(p CrashPolicy) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &cloner{policy: p, rng: rand.New(rand.NewPCG(p.seed, 0x68616e62656f6e)), nodes: map[*memNode]*memNode{}}
	root := c.node(m.root)
	for _, change := range m.pending {
		if p.kind == crashKeep || p.kind == crashTorn && c.rng.IntN(2) == 0 {
			for _, s := range change.sets {
				dir := c.node(s.dir)
				if s.node == nil {
					delete(dir.names, s.name)
				} else {
					dir.names[s.name] = c.node(s.node)
				}
			}
		}
	}
	// What survived is on the disk: it is durable from here on.
	for _, n := range c.nodes {
		if n.isDir {
			n.durableNames = make(map[string]*memNode, len(n.names))
			for name, child := range n.names {
				n.durableNames[name] = child
			}
		}
	}
	return &Mem{root: root, locks: map[string]bool{}}
}

// cloner copies nodes once each, so that a file with two names stays one.
type cloner struct {
	policy CrashPolicy
	rng    *rand.Rand
	nodes  map[*memNode]*memNode
}

// node returns the copy of n, with a directory's durable names.
func (c *cloner) node(n *memNode) *memNode {
	if done := c.nodes[n]; done != nil {
		return done
	}
	if !n.isDir {
		data := c.content(n)
		out := &memNode{data: data, durable: slices.Clone(data), dirty: map[int64]struct{}{}}
		c.nodes[n] = out
		return out
	}
	out := newMemDir()
	c.nodes[n] = out
	for _, name := range sortedNames(n.durableNames) {
		out.names[name] = c.node(n.durableNames[name])
	}
	return out
}

// content is what is left of a file's bytes.
func (c *cloner) content(n *memNode) []byte {
	switch c.policy.kind {
	case crashDrop:
		return slices.Clone(n.durable)
	case crashKeep:
		return slices.Clone(n.data)
	}
	size := len(n.durable)
	switch {
	case len(n.data) > size:
		size += c.rng.IntN(len(n.data) - size + 1)
	case len(n.data) < size && c.rng.IntN(2) == 0:
		size = len(n.data)
	}
	out := make([]byte, size)
	copy(out, n.durable)
	sectors := make([]int64, 0, len(n.dirty))
	for s := range n.dirty {
		sectors = append(sectors, s)
	}
	slices.Sort(sectors)
	for _, s := range sectors {
		from := int(s) * SectorBytes
		if from >= size || from >= len(n.data) || c.rng.IntN(2) == 0 {
			continue
		}
		copy(out[from:], n.data[from:min(from+SectorBytes, len(n.data))])
	}
	return out
}
