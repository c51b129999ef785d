package task

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func counts(m map[string]int32) func(string) int32 {
	return func(topic string) int32 { return m[topic] }
}

// chain is in1, in2 → (0) → first → (1) → second → (2) with a store.
func chain(secondPartitions int32) *Topology {
	return (&Topology{Subtopologies: []*Subtopology{
		{ID: 0, Sources: []Source{{Topic: "in1"}, {Topic: "in2"}}, Sinks: []Sink{{Topic: "first-repartition", Repartition: true}, {Topic: "out"}}},
		{
			ID: 1, Sources: []Source{{Topic: "first-repartition", Repartition: true}},
			Sinks: []Sink{{Topic: "second-repartition", Repartition: true}},
		},
		{
			ID: 2, Sources: []Source{{Topic: "second-repartition", Repartition: true, Partitions: secondPartitions}},
			Stores: []StoreSpec{{Name: "counts", ChangelogTopic: "counts-changelog"}, {Name: "scratch"}},
		},
	}}).ForApplication("app")
}

func planned(p Plan) string {
	var b strings.Builder
	for _, id := range p.Tasks {
		fmt.Fprintf(&b, "%s ", id)
	}
	for _, topic := range p.Internal {
		fmt.Fprintf(&b, "%s:%d:%s ", topic.Name, topic.Partitions, topic.Configs()["cleanup.policy"])
	}
	return strings.TrimSpace(b.String())
}

func TestPlanFollowsPartitionCountsThroughRepartitionTopics(t *testing.T) {
	for _, c := range []struct {
		second int32
		want   string
	}{
		{0, "0_0 0_1 1_0 1_1 2_0 2_1 app-first-repartition:2:delete app-second-repartition:2:delete app-counts-changelog:2:compact"},
		{1, "0_0 0_1 1_0 1_1 2_0 app-first-repartition:2:delete app-second-repartition:1:delete app-counts-changelog:1:compact"},
	} {
		plan, err := chain(c.second).Plan(counts(map[string]int32{"in1": 1, "in2": 2}))
		if err != nil || planned(plan) != c.want {
			t.Errorf("%s, %v; want %s", planned(plan), err, c.want)
		}
	}
}

func TestPlanDoesNotDependOnTheOrderOfSubtopologies(t *testing.T) {
	forward := chain(0)
	backward := &Topology{Subtopologies: []*Subtopology{forward.Subtopologies[2], forward.Subtopologies[1], forward.Subtopologies[0]}}
	m := counts(map[string]int32{"in1": 3, "in2": 2})
	a, errA := forward.Plan(m)
	b, errB := backward.Plan(m)
	if planned(a) != planned(b) || errA != nil || errB != nil {
		t.Errorf("%s, %v\n%s, %v", planned(a), errA, planned(b), errB)
	}
}

func TestPlanNamesMissingTopics(t *testing.T) {
	_, err := chain(0).Plan(counts(map[string]int32{"in1": 1}))
	if !errors.Is(err, ErrMissingTopics) || !strings.Contains(err.Error(), "in2") || strings.Contains(err.Error(), "in1") {
		t.Errorf("got %v", err)
	}
}

func TestPlanOfARepartitionTopicThatFeedsOnlyItselfIsAnError(t *testing.T) {
	loop := &Topology{Subtopologies: []*Subtopology{{
		Sources: []Source{{Topic: "loop", Repartition: true}}, Sinks: []Sink{{Topic: "loop", Repartition: true}},
	}}}
	if _, err := loop.Plan(counts(nil)); err == nil || !strings.Contains(err.Error(), "repartition topic loop") {
		t.Errorf("got %v", err)
	}
}

// loggedStore needs a base that may fail; the changelog must not run ahead of it.
func TestChangelogFollowsTheStore(t *testing.T) {
	var log []string
	collector := sendFunc(func(topic string, partition int32, key, value []byte, ms int64) error {
		log = append(log, fmt.Sprintf("%s/%d %s=%s@%d", topic, partition, key, value, ms))
		return nil
	})
	kv := &failingStore{}
	s := &loggedStore{KeyValueStore: kv, name: "counts", topic: "app-counts-changelog", partition: 4, collector: collector, ctx: &Context{TimestampMs: 9}}
	if err := errors.Join(s.Put([]byte("k"), []byte("v"), 5), s.Delete([]byte("k"))); err != nil {
		t.Fatal(err)
	}
	kv.err = errors.New("disk full")
	var stage *StageError
	if err := s.Put([]byte("k"), []byte("w"), 6); !errors.As(err, &stage) || stage.Stage != StageStore {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(log, ", "); got != "app-counts-changelog/4 k=v@5, app-counts-changelog/4 k=@9" {
		t.Errorf("changelog: %s", got)
	}
}

type sendFunc func(topic string, partition int32, key, value []byte, ms int64) error

func (f sendFunc) Send(topic string, partition int32, key, value []byte, _ []Header, ms int64) error {
	return f(topic, partition, key, value, ms)
}
func (f sendFunc) PartitionCount(string) int32 { return 0 }

type failingStore struct {
	KeyValueStore
	err error
}

func (s *failingStore) Put([]byte, []byte, int64) error { return s.err }
