package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrMissingTopics is the cause when a topic that the topology reads does not exist.
var ErrMissingTopics = errors.New("source topics missing")

// Plan is a topology laid over the partitions that exist.
type Plan struct {
	// Tasks lists every task, in order of ID.
	Tasks []ID
	// Internal lists the topics that must exist before the tasks start: first
	// repartition topics, then changelogs, each sorted by name.
	Internal []InternalTopic
}

// InternalTopic is a topic that the runtime creates.
type InternalTopic struct {
	Name       string
	Partitions int32
	Changelog  bool
}

// Configs gives the topic settings that Kafka Streams uses too
// (RepartitionTopicConfig, UnwindowedUnversionedChangelogTopicConfig).
func (t InternalTopic) Configs() map[string]string {
	if t.Changelog {
		return map[string]string{
			"cleanup.policy":         "compact",
			"message.timestamp.type": "CreateTime",
		}
	}
	return map[string]string{
		"cleanup.policy":         "delete",
		"retention.ms":           "-1", // emptied by DeleteRecords after each commit
		"segment.bytes":          "52428800",
		"message.timestamp.type": "CreateTime",
	}
}

// Plan derives tasks and internal topics. The function tells the partition count of
// a topic that is not internal, 0 where it does not exist. A sub-topology has as
// many tasks as its largest source has partitions; a repartition topic without a
// count of its own gets the largest count of the sub-topologies that write it,
// followed through chains of repartition topics.
func (t *Topology) Plan(partitions func(topic string) int32) (Plan, error) {
	counts := map[string]int32{}
	var missing []string
	for _, sub := range t.Subtopologies {
		for _, s := range sub.Sources {
			switch {
			case s.Repartition:
				counts[s.Topic] = s.Partitions
			case partitions(s.Topic) > 0:
				counts[s.Topic] = partitions(s.Topic)
			default:
				missing = append(missing, s.Topic)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return Plan{}, fmt.Errorf("%w: %s; create them before the application starts", ErrMissingTopics, strings.Join(missing, ", "))
	}
	if err := t.deriveRepartitions(counts); err != nil {
		return Plan{}, err
	}
	return t.planFrom(counts), nil
}

// deriveRepartitions fills in the counts of repartition topics, upstream first.
func (t *Topology) deriveRepartitions(counts map[string]int32) error {
	for changed := true; changed; {
		changed = false
		for _, sub := range t.Subtopologies {
			n := sub.tasks(counts)
			if n == 0 {
				continue // a source of it is not derived yet
			}
			for _, sink := range sub.Sinks {
				if sink.Repartition && !t.partitionsGiven(sink.Topic) && counts[sink.Topic] < n {
					counts[sink.Topic] = n
					changed = true
				}
			}
		}
	}
	for _, sub := range t.Subtopologies {
		for _, s := range sub.Sources {
			if counts[s.Topic] == 0 {
				return fmt.Errorf("repartition topic %s: its partition count cannot be derived, because nothing that writes it has partitions; give it a count", s.Topic)
			}
		}
	}
	return nil
}

func (t *Topology) partitionsGiven(repartition string) bool {
	sub, ok := t.SubtopologyOf(repartition)
	return ok && sub.Sources[sub.source(repartition)].Partitions > 0
}

// tasks is the largest count among the sources that have one, 0 for none.
func (s *Subtopology) tasks(counts map[string]int32) int32 {
	var n int32
	for _, src := range s.Sources {
		n = max(n, counts[src.Topic])
	}
	return n
}

func (t *Topology) planFrom(counts map[string]int32) Plan {
	var p Plan
	for _, sub := range t.Subtopologies {
		n := sub.tasks(counts)
		for partition := range n {
			p.Tasks = append(p.Tasks, ID{Subtopology: sub.ID, Partition: partition})
		}
		for _, s := range sub.Sources {
			if s.Repartition {
				p.Internal = append(p.Internal, InternalTopic{Name: s.Topic, Partitions: counts[s.Topic]})
			}
		}
		for _, st := range sub.Stores {
			if st.ChangelogTopic != "" {
				p.Internal = append(p.Internal, InternalTopic{Name: st.ChangelogTopic, Partitions: n, Changelog: true})
			}
		}
	}
	slices.SortFunc(p.Tasks, ID.Compare)
	slices.SortFunc(p.Internal, func(a, b InternalTopic) int {
		if a.Changelog != b.Changelog {
			if a.Changelog {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return p
}
