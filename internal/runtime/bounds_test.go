package runtime

import (
	"bytes"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
)

// A store without a changelog sends nothing, and a processor need not send
// anything either; what such a task has not committed is memory all the same.
func TestUncommittedStoreWritesMakeACommitDue(t *testing.T) {
	s := store.NewMemory()
	w := &worker{
		opts: &Options{CommitInterval: time.Hour, MaxUncommittedBytes: 64 << 10}, out: &collector{}, lastCommit: time.Now(),
		tasks: []*activeTask{{stage: stageRunning, stores: []*activeStore{{store: s}}}},
	}
	if w.commitDue() {
		t.Fatal("a commit is due with nothing to commit")
	}
	if err := s.Put([]byte("key"), bytes.Repeat([]byte("x"), 65<<10), 0); err != nil {
		t.Fatal(err)
	}
	if !w.commitDue() {
		t.Error("no commit is due although the stores hold more than MaxUncommittedBytes")
	}
}

// The leader epoch of a position is not known. Epoch 0 would make a consumer that
// starts there believe the log was cut back to the end of that epoch (KIP-320).
func TestCommittedOffsetsClaimNoLeaderEpoch(t *testing.T) {
	sub := &task.Subtopology{
		Sources: []task.Source{{Topic: "in"}},
		Build: func(a *task.Assembly) error {
			a.Source(0, func(*task.Record, *task.Context) error { return nil })
			return nil
		},
	}
	made, err := task.New(sub, 2, task.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	made.SetPosition("in", 7)
	w := &worker{tasks: []*activeTask{{id: made.ID(), sub: sub, task: made, stage: stageRunning, start: map[string]int64{"in": 5}}}}
	o, ok := w.offsetsToCommit()[batch.TopicPartition{Topic: "in", Partition: 2}]
	if !ok || o.Offset != 7 || o.LeaderEpoch != -1 {
		t.Errorf("committing %+v, want offset 7 with leader epoch -1", o)
	}
}
