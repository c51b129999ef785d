package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// onAssigned takes new tasks. It runs in kgo's goroutine while the worker is
// parked in a poll. Opening and restoring happen in the worker's loop, so that
// the group does not wait for them.
func (w *worker) onAssigned(_ context.Context, cl *kgo.Client, added map[string][]int32) {
	<-w.ready
	if w.closing {
		return
	}
	defer w.wakeUp()
	w.checkMembership(w.life)
	w.lostMember, w.joining = "", false
	w.joined.Store(true)
	if len(added) == 0 {
		w.countTasks()
		return
	}
	cl.PauseFetchPartitions(added)
	for _, topic := range sortedKeys(added) {
		sub, ok := w.opts.Topology.SubtopologyOf(topic)
		if !ok {
			continue
		}
		for _, p := range added[topic] {
			id := task.ID{Subtopology: sub.ID, Partition: p}
			t := w.taskByID(id)
			if t != nil && !slices.Contains(t.partitions, batch.TopicPartition{Topic: topic, Partition: p}) {
				w.fatal = fmt.Errorf("task %s has begun without %s/%d, which is new: restart the application: %w", id, topic, p, ErrPartitionCount)
			}
			if t == nil {
				w.tasks = append(w.tasks, &activeTask{
					id: id, sub: sub, partitions: w.partitionsOf(sub, p, added),
					stale: true, openSince: time.Now(), start: make(map[string]int64), chosen: make(map[string]bool),
				})
			}
		}
	}
	slices.SortFunc(w.tasks, func(a, b *activeTask) int { return a.id.Compare(b.id) })
	w.stats.rebalances.Add(1)
	w.log.Info("tasks assigned", "tasks", w.taskNames(), "generation", w.generation)
	w.countTasks()
}

// onRevoked gives tasks up in order: if any of them has progress, everything is
// committed first, under the membership that still holds (Kafka Streams'
// TaskManager.handleRevocation).
func (w *worker) onRevoked(_ context.Context, cl *kgo.Client, lost map[string][]int32) {
	<-w.ready
	if len(lost) == 0 { // the session ends; a join follows
		w.joining, w.joinSince = true, time.Now()
	}
	tasks := w.tasksOf(lost)
	if w.closing || len(tasks) == 0 {
		return
	}
	defer w.wakeUp()
	if slices.ContainsFunc(tasks, (*activeTask).dirty) {
		if err := w.commit(w.life); err != nil {
			w.fatal = err
		}
		w.awaitStable(w.life, tasks)
	}
	w.dropTasks(tasks)
	cl.ResumeFetchPartitions(lost) // forget the pause of partitions that are gone
	w.stats.rebalances.Add(1)
	w.log.Info("tasks revoked", "revoked", names(tasks), "kept", w.taskNames())
}

// onLost gives all tasks up when the membership is gone: another member may
// own them already, so nothing may be committed.
func (w *worker) onLost(_ context.Context, cl *kgo.Client, lost map[string][]int32) {
	<-w.ready
	w.joined.Store(false)
	if w.closing {
		return
	}
	defer w.wakeUp()
	w.stats.lost.Add(1)
	w.noteFenced(w.abort(w.life, causeLost))
	w.dropTasks(slices.Clone(w.tasks))
	cl.ResumeFetchPartitions(lost)
	w.log.Warn("the group membership was lost; rejoining with the stores kept")
}

// awaitStable waits until the offsets just committed are stable, a few
// milliseconds: kgo's next owner would otherwise find them pending and ask
// again only after a second.
func (w *worker) awaitStable(ctx context.Context, tasks []*activeTask) {
	if !w.opts.ExactlyOnce {
		return
	}
	var partitions []batch.TopicPartition
	for _, t := range tasks {
		partitions = append(partitions, t.partitions...)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		_, err := fetchStableOffsets(ctx, w.control, w.opts.ApplicationID, partitions)
		if err == nil || pause(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
}

func (w *worker) tasksOf(partitions map[string][]int32) (tasks []*activeTask) {
	for _, t := range w.tasks {
		for _, tp := range t.partitions {
			if slices.Contains(partitions[tp.Topic], tp.Partition) {
				tasks = append(tasks, t)
				break
			}
		}
	}
	return tasks
}

// dropTasks closes tasks and forgets them. What they had not committed is gone.
func (w *worker) dropTasks(tasks []*activeTask) {
	for _, t := range tasks {
		if err := t.close(); err != nil {
			w.log.Error("closing a task failed", "task", t.id, "err", err)
		}
	}
	w.tasks = slices.DeleteFunc(w.tasks, func(t *activeTask) bool { return slices.Contains(tasks, t) })
	w.countTasks()
}

func (w *worker) taskByID(id task.ID) *activeTask {
	for _, t := range w.tasks {
		if t.id == id {
			return t
		}
	}
	return nil
}

// checkMembership compares the membership with the one that the tasks were
// assigned under; it runs after each poll, while no rebalance can.
//
// A new member id means that the old membership ended. kgo tells of most such
// ends by onLost, but not of one it learns from a JoinGroup reply: it then joins
// anew and keeps partitions that another member may have owned in between.
// Tasks are then sent back to read offsets and changelog again.
//
// A new generation under the same member id is harmless: a partition that the
// new generation takes away is given to nobody before we have revoked it.
func (w *worker) checkMembership(ctx context.Context) {
	member, generation := w.consumer.GroupMetadata()
	if member == w.member {
		w.generation = generation
		return
	}
	if w.member != "" && len(w.tasks) > 0 {
		w.log.Warn("the group gave a new member id; replaying from the committed offsets")
		w.stats.lost.Add(1)
		w.noteFenced(w.abort(ctx, causeLost))
		for _, t := range w.tasks {
			w.rewind(t, true)
		}
		w.countTasks()
	}
	w.member, w.generation = member, generation
	w.lostMember = ""
}

// rewind sends a task back to the committed offsets and stops its fetching
// until it runs again.
func (w *worker) rewind(t *activeTask, stale bool) {
	w.consumer.PauseFetchPartitions(t.topicPartitions())
	t.rollback(stale)
}

// waitsForMembership says whether the coordinator refused the membership that
// we still have: it is then of no use to process, until kgo has noticed by its
// heartbeat. A bound keeps a misjudged refusal from stopping the worker.
func (w *worker) waitsForMembership() bool {
	if w.member == "" || w.generation < 0 {
		return true
	}
	if w.lostMember != w.member {
		return false
	}
	if time.Now().After(w.lostUntil) {
		w.lostMember = ""
		return false
	}
	return true
}

// stillMember asks the coordinator whether the membership holds. Only then is
// a committed offset that equals ours surely ours: nobody else could write it.
func (w *worker) stillMember(ctx context.Context) bool {
	member, generation := w.consumer.GroupMetadata()
	if member == "" || member != w.member {
		return false
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = w.opts.ApplicationID, member, generation
	resp, err := req.RequestWith(ctx, w.control)
	if err != nil {
		return false
	}
	return resp.ErrorCode == 0 || resp.ErrorCode == kerr.RebalanceInProgress.Code
}

func (w *worker) taskNames() []string { return names(w.tasks) }

func names(tasks []*activeTask) []string {
	out := make([]string, 0, len(tasks))
	for _, t := range tasks {
		out = append(out, t.id.String())
	}
	return out
}

// countTasks publishes the number of tasks for Stats and the App's state.
func (w *worker) countTasks() {
	running := 0
	for _, t := range w.tasks {
		if t.stage == stageRunning {
			running++
		}
	}
	w.stats.tasks.Store(int64(len(w.tasks)))
	w.stats.running.Store(int64(running))
	w.app.workerChanged()
}

// leaveGroup leaves the group through kgo, and meanwhile tells the coordinator
// itself. kgo first waits for the answer to its JoinGroup, and that one waits for
// every other member: with one that has died, until its session ends. The
// coordinator answers the join of a member that leaves.
func (w *worker) leaveGroup(ctx context.Context) error {
	telling, cancel := context.WithCancel(ctx)
	defer cancel()
	told := make(chan bool, 1)
	go func() { told <- w.tellLeave(telling) }()
	err := w.consumer.LeaveGroupContext(ctx)
	cancel()
	if <-told && errors.Is(err, kerr.UnknownMemberID) {
		return nil // ours was first
	}
	return err
}

// leaveAgain is how long tellLeave waits for kgo to have left.
const leaveAgain = 50 * time.Millisecond

// tellLeave leaves until ctx ends, and reports whether one of its requests was
// taken. One may not be enough: if the join is answered before kgo has begun to
// leave, kgo joins anew under another id, and waits again. A static member
// (KIP-345) does not leave: its place is kept for its return.
func (w *worker) tellLeave(ctx context.Context) (taken bool) {
	if static, _ := w.consumer.OptValue(kgo.InstanceID).(string); static != "" {
		return false
	}
	left := ""
	for {
		if id, _ := w.consumer.GroupMetadata(); id != left && w.sendLeave(ctx, id) {
			taken, left = true, id
		}
		if pause(ctx, leaveAgain) != nil {
			return taken
		}
	}
}

func (w *worker) sendLeave(ctx context.Context, id string) bool {
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID, member.Reason = id, kmsg.StringPtr("the application stops")
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID, req.Members = w.opts.ApplicationID, id, []kmsg.LeaveGroupRequestMember{member}
	resp, err := req.RequestWith(ctx, w.control)
	return err == nil && resp.ErrorCode == 0
}
