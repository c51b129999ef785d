package task

import (
	"fmt"
	"slices"
	"strings"
)

// NodeKind tells sources and sinks from processors.
type NodeKind int

// The kinds of nodes in a description.
const (
	NodeSource NodeKind = iota
	NodeProcessor
	NodeSink
)

// Node is one vertex of the processor graph, for Describe.
type Node struct {
	Kind NodeKind
	Name string
	// Topic is set for sources and sinks; Repartition tells an internal one.
	Topic       string
	Repartition bool
	Stores      []string
	// Predecessors and Successors are names, in the order of creation.
	Predecessors, Successors []string
}

// Describe prints the topology in the form of Kafka's TopologyDescription, which
// tools for drawing topologies read.
func (t *Topology) Describe() string {
	var b strings.Builder
	b.WriteString("Topologies:\n")
	for _, sub := range t.Subtopologies {
		fmt.Fprintf(&b, "   Sub-topology: %d\n", sub.ID)
		for _, n := range sub.Nodes {
			t.describeNode(&b, n)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (t *Topology) describeNode(b *strings.Builder, n Node) {
	topic := n.Topic
	if n.Repartition && t.Application != "" {
		topic = t.Application + "-" + topic
	}
	switch n.Kind {
	case NodeSource:
		fmt.Fprintf(b, "    Source: %s (topics: [%s])\n", n.Name, topic)
	case NodeProcessor:
		stores := slices.Sorted(slices.Values(n.Stores))
		fmt.Fprintf(b, "    Processor: %s (stores: [%s])\n", n.Name, strings.Join(stores, ", "))
	case NodeSink:
		fmt.Fprintf(b, "    Sink: %s (topic: %s)\n", n.Name, topic)
	}
	if n.Kind != NodeSink {
		fmt.Fprintf(b, "      --> %s\n", names(n.Successors))
	}
	if n.Kind != NodeSource {
		fmt.Fprintf(b, "      <-- %s\n", names(n.Predecessors))
	}
}

func names(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
