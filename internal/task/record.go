// Package task runs one stream task: a sub-topology over one partition number.
//
// A task buffers the records of its input partitions, picks the record with the
// smallest timestamp, runs it through the processor graph, keeps stream time and
// tells the positions to commit. It sees stores and the producer by interface.
//
// The package is pure: no goroutine, clock, I/O, randomness, logging or lock. A
// Task belongs to one goroutine at a time.
package task

import (
	"fmt"
	"strconv"
	"strings"
)

// ID names a task: one partition number of one sub-topology (Kafka's TaskId).
type ID struct {
	Subtopology int
	Partition   int32
}

// String gives Kafka's form, "<sub-topology>_<partition>".
func (id ID) String() string {
	return strconv.Itoa(id.Subtopology) + "_" + strconv.Itoa(int(id.Partition))
}

// Compare orders by sub-topology, then partition, for slices.SortFunc.
func (id ID) Compare(o ID) int {
	if id.Subtopology != o.Subtopology {
		return id.Subtopology - o.Subtopology
	}
	return int(id.Partition) - int(o.Partition)
}

// ParseID reads what String wrote.
func ParseID(s string) (ID, error) {
	sub, part, ok := strings.Cut(s, "_")
	if ok && isDigits(sub) && isDigits(part) {
		subtopology, errSub := strconv.ParseInt(sub, 10, 32)
		partition, errPart := strconv.ParseInt(part, 10, 32)
		if errSub == nil && errPart == nil {
			return ID{Subtopology: int(subtopology), Partition: int32(partition)}, nil
		}
	}
	return ID{}, fmt.Errorf("task id %q: want <sub-topology>_<partition>, such as 0_3", s)
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// Header is one record header.
type Header struct {
	Key   string
	Value []byte
}

// Record is one input record. A nil Key or Value is Kafka's null, an empty one is
// not. The bytes belong to the task from Enqueue on and are never changed.
type Record struct {
	Offset      int64
	TimestampMs int64
	Key, Value  []byte
	Headers     []Header
}

// bytes is the record's share of a task's buffer, in bytes.
func (r *Record) bytes() int {
	n := len(r.Key) + len(r.Value) + recordOverhead
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// recordOverhead is about what a buffered Record costs besides its contents.
const recordOverhead = 96
