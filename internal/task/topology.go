package task

import "slices"

// Topology is a compiled, immutable topology: what the builder makes, and what the
// runtime creates internal topics and tasks from.
type Topology struct {
	// Application is the application id that internal topic names carry, or ""
	// for a topology that was not given one yet.
	Application   string
	Subtopologies []*Subtopology
}

// Subtopology is a connected part of the graph. Its tasks share no memory with the
// tasks of other parts; they meet only through topics.
type Subtopology struct {
	ID      int
	Sources []Source
	Sinks   []Sink
	Stores  []StoreSpec
	// Nodes describes the processor graph, for Describe only.
	Nodes []Node
	// Build wires one task's processors. It is called once per task and must be
	// safe to call from several goroutines.
	Build func(a *Assembly) error
}

// Source is an input topic; topic names are unique over the whole topology.
type Source struct {
	Topic string
	// Repartition marks an internal topic: created by the runtime, and purged
	// with DeleteRecords after a commit.
	Repartition bool
	// Partitions is the number asked for a repartition topic, 0 to derive it from
	// the topics upstream. Always 0 for other topics.
	Partitions int32
}

// Sink is an output topic.
type Sink struct {
	// Name is the operator's, for errors.
	Name        string
	Topic       string
	Repartition bool
}

// StoreSpec is a store of a sub-topology; every task has its own.
type StoreSpec struct {
	Name string
	// ChangelogTopic is "" for a store without a changelog, whose contents do not
	// survive a move or a lost disk. Its partition is the task's.
	ChangelogTopic string
	// Persistent asks for a store on disk.
	Persistent bool
}

// ForApplication returns the topology with its internal topics named as Kafka
// Streams names them: "<application>-<name>-repartition" and
// "<application>-<store>-changelog". The builder leaves out the first part, so that
// Describe reads the same for every application.
func (t *Topology) ForApplication(applicationID string) *Topology {
	prefix := applicationID + "-"
	named := &Topology{Application: applicationID}
	for _, sub := range t.Subtopologies {
		s := *sub
		s.Sources = slices.Clone(sub.Sources)
		for i := range s.Sources {
			if s.Sources[i].Repartition {
				s.Sources[i].Topic = prefix + s.Sources[i].Topic
			}
		}
		s.Sinks = slices.Clone(sub.Sinks)
		for i := range s.Sinks {
			if s.Sinks[i].Repartition {
				s.Sinks[i].Topic = prefix + s.Sinks[i].Topic
			}
		}
		s.Stores = slices.Clone(sub.Stores)
		for i := range s.Stores {
			if s.Stores[i].ChangelogTopic != "" {
				s.Stores[i].ChangelogTopic = prefix + s.Stores[i].ChangelogTopic
			}
		}
		named.Subtopologies = append(named.Subtopologies, &s)
	}
	return named
}

// SourceTopics lists the topics that the topology reads, internal ones included,
// sorted by name.
func (t *Topology) SourceTopics() []string {
	var topics []string
	for _, sub := range t.Subtopologies {
		for _, s := range sub.Sources {
			topics = append(topics, s.Topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// SubtopologyOf finds the sub-topology that reads a topic.
func (t *Topology) SubtopologyOf(topic string) (*Subtopology, bool) {
	for _, sub := range t.Subtopologies {
		if sub.source(topic) >= 0 {
			return sub, true
		}
	}
	return nil, false
}

// source is the index of a source topic, or -1.
func (s *Subtopology) source(topic string) int {
	return slices.IndexFunc(s.Sources, func(src Source) bool { return src.Topic == topic })
}
