package runtime

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kgo"
)

// assignedWorker has been given partitions; "a" and "b" had two each at the start.
func assignedWorker(t *testing.T, added ...map[string][]int32) *worker {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	topology := &task.Topology{Subtopologies: []*task.Subtopology{{Sources: []task.Source{{Topic: "a"}, {Topic: "b"}}}}}
	app := &App{opts: Options{Topology: topology, StateListener: func(State, State) {}}, log: slog.New(slog.DiscardHandler)}
	app.layout.partitions = map[string]int32{"a": 2, "b": 2}
	w := newWorker(app, 1)
	w.consumer = cl
	close(w.ready)
	for _, partitions := range added {
		w.onAssigned(t.Context(), cl, partitions)
	}
	return w
}

// Partitions that a topic got since the start would otherwise stay paused for ever,
// without a word.
func TestPartitionsNewerThanTheApplicationGetATask(t *testing.T) {
	w := assignedWorker(t, map[string][]int32{"a": {1, 2}, "b": {1}})
	if len(w.tasks) != 2 || w.fatal != nil {
		t.Fatalf("tasks %v, %v; want 0_1 and 0_2", w.taskNames(), w.fatal)
	}
	if got, want := w.tasks[0].partitions, []batch.TopicPartition{{Topic: "a", Partition: 1}, {Topic: "b", Partition: 1}}; !slices.Equal(got, want) {
		t.Errorf("task 0_1 reads %v, want %v", got, want)
	}
	if got, want := w.tasks[1].partitions, []batch.TopicPartition{{Topic: "a", Partition: 2}}; !slices.Equal(got, want) {
		t.Errorf("task 0_2 reads %v, want %v", got, want)
	}
}

func TestLatestIsNotForPartitionsNewerThanTheApplication(t *testing.T) {
	w := assignedWorker(t, map[string][]int32{"a": {1, 2}, "b": {1}})
	w.opts.StartAtLatest = true
	for i, want := range []bool{true, false} {
		if got := w.fromEnd(w.tasks[i], w.tasks[i].partitions[0]); got != want {
			t.Errorf("%v starts at the end: %v, want %v", w.tasks[i].partitions[0], got, want)
		}
	}
}

func TestTaskThatGetsAnotherPartitionEndsTheWorker(t *testing.T) {
	w := assignedWorker(t, map[string][]int32{"a": {2}}, map[string][]int32{"b": {2}})
	if w.fatal == nil || !strings.Contains(w.fatal.Error(), "b/2") || !strings.Contains(w.fatal.Error(), "restart") {
		t.Errorf("got %v, want an error that names b/2 and says restart", w.fatal)
	}
}
