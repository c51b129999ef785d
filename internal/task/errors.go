package task

import "fmt"

// RecordError says which input record a task failed on. The record stays at the
// head of its queue: Process tries it again, Skip drops it.
type RecordError struct {
	Task   ID
	Topic  string
	Offset int64
	Stage  Stage
	// Node names the processor, sink or store, where it is known.
	Node string
	Err  error
}

// Stage tells what a task was doing when a record failed.
type Stage int

// Decode and process errors come from the record (a poison record): the error
// handler may skip it. Send and store errors come from outside and must not be
// skipped, or effects would be lost.
const (
	StageProcess Stage = iota
	StageDecode
	StageSend
	StageStore
)

// String names the stage.
func (s Stage) String() string {
	switch s {
	case StageProcess:
		return "process"
	case StageDecode:
		return "decode"
	case StageSend:
		return "send"
	case StageStore:
		return "store"
	}
	return fmt.Sprintf("stage %d", int(s))
}

// Error names task, topic, partition and offset.
func (e *RecordError) Error() string {
	at := ""
	if e.Node != "" {
		at = " at " + e.Node
	}
	return fmt.Sprintf("task %s: record %s/%d offset %d: %s%s: %v", e.Task, e.Topic, e.Task.Partition, e.Offset, e.Stage, at, e.Err)
}

// Unwrap gives the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// Poison says whether the record itself is at fault, so that skipping it is safe.
func (e *RecordError) Poison() bool { return e.Stage == StageDecode || e.Stage == StageProcess }

// StageError is how a processor reports where it failed; Process turns it into a
// RecordError. An error of any other type counts as StageProcess.
type StageError struct {
	Stage Stage
	Node  string
	Err   error
}

// Error names the stage and the node.
func (e *StageError) Error() string { return fmt.Sprintf("%s at %s: %v", e.Stage, e.Node, e.Err) }

// Unwrap gives the cause.
func (e *StageError) Unwrap() error { return e.Err }
