package streams

import (
	"github.com/hanbeon/hanbeon/internal/task"
)

// compile cuts the graph into its connected parts. Repartition topics are cuts,
// since a part's sink and the next part's source are not linked. Parts are numbered
// by their first operator, as in Kafka's InternalTopologyBuilder.
func (b *Builder) compile() *task.Topology {
	root := map[*node]*node{}
	find := func(n *node) *node {
		for root[n] != n {
			n = root[n]
		}
		return n
	}
	for _, n := range b.nodes {
		root[n] = n
		for _, p := range n.parents {
			// The part keeps the root that was added first.
			a, c := find(p), find(n)
			if b.index(a) > b.index(c) {
				a, c = c, a
			}
			root[c] = a
		}
	}
	topology := &task.Topology{}
	parts := map[*node]*part{}
	for _, n := range b.nodes {
		r := find(n)
		p := parts[r]
		if p == nil {
			p = &part{sub: &task.Subtopology{ID: len(topology.Subtopologies)}}
			p.sub.Build = p.build
			parts[r] = p
			topology.Subtopologies = append(topology.Subtopologies, p.sub)
		}
		p.add(n)
	}
	return topology
}

func (b *Builder) index(n *node) int {
	for i, o := range b.nodes {
		if o == n {
			return i
		}
	}
	return -1
}

// part is one sub-topology with its operators.
type part struct {
	sub     *task.Subtopology
	sources []*node // as in sub.Sources
	sinks   []*node // as in sub.Sinks
}

func (p *part) add(n *node) {
	switch n.kind {
	case task.NodeSource:
		p.sources = append(p.sources, n)
		p.sub.Sources = append(p.sub.Sources, task.Source{Topic: n.topic, Repartition: n.repartition, Partitions: n.partitions})
	case task.NodeSink:
		p.sinks = append(p.sinks, n)
		p.sub.Sinks = append(p.sub.Sinks, task.Sink{Name: n.name, Topic: n.topic, Repartition: n.repartition})
	}
	described := task.Node{Kind: n.kind, Name: n.name, Topic: n.topic, Repartition: n.repartition}
	if n.store != nil {
		p.sub.Stores = append(p.sub.Stores, *n.store)
		described.Stores = []string{n.store.Name}
	}
	for _, c := range n.children {
		described.Successors = append(described.Successors, c.name)
	}
	for _, c := range n.parents {
		described.Predecessors = append(described.Predecessors, c.name)
	}
	p.sub.Nodes = append(p.sub.Nodes, described)
}

// build wires the processors of one task.
func (p *part) build(a *task.Assembly) error {
	as := &assembly{Assembly: a, handlers: map[*node]any{}, outputs: map[*node]*task.Output{}}
	for i, n := range p.sinks {
		as.outputs[n] = a.Output(i)
	}
	for i, n := range p.sources {
		a.Source(i, as.handler(n).(task.Handler))
	}
	return nil
}

// assembly is one task under construction.
type assembly struct {
	*task.Assembly
	handlers map[*node]any
	outputs  map[*node]*task.Output
}

// handler compiles a node once, however many parents it has.
func (a *assembly) handler(n *node) any {
	h, ok := a.handlers[n]
	if !ok {
		h = n.compile(a)
		a.handlers[n] = h
	}
	return h
}

// handler processes one record of a stream. It may change the context for its
// children, and sets it back before it returns without error.
type handler[K, V any] func(key K, value V, ctx *task.Context) error

// children joins the handlers of a stream node's children into one, nil for none.
func children[K, V any](a *assembly, n *node) handler[K, V] {
	var list []handler[K, V]
	for _, c := range n.children {
		list = append(list, a.handler(c).(handler[K, V]))
	}
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return func(key K, value V, ctx *task.Context) error {
		for _, h := range list {
			if err := h(key, value, ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// change is an update of a table row. Without HasNew the row is deleted.
type change[V any] struct {
	New, Old       V
	HasNew, HasOld bool
}

// tableHandler processes one update of a table.
type tableHandler[K, V any] func(key K, c change[V], ctx *task.Context) error

// tableChildren joins the handlers of a table node's children, nil for none.
func tableChildren[K, V any](a *assembly, n *node) tableHandler[K, V] {
	var list []tableHandler[K, V]
	for _, c := range n.children {
		list = append(list, a.handler(c).(tableHandler[K, V]))
	}
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return func(key K, c change[V], ctx *task.Context) error {
		for _, h := range list {
			if err := h(key, c, ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// atNode says at which operator a record failed.
func atNode(stage task.Stage, n *node, err error) error {
	return &task.StageError{Stage: stage, Node: n.name, Err: err}
}
