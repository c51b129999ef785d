package task

import "math"

// unknown is the position of a queue that never had a record or a position.
const unknown = -1

// queue buffers one input partition, in whole fetched batches.
type queue struct {
	topic   string
	handler Handler

	batches [][]Record // batches[0][next] is the head
	next    int
	count   int
	bytes   int

	headTimestampMs int64 // math.MaxInt64 when empty
	processed       int64 // last processed offset + 1, or unknown
	consumed        int64 // the consumer's position, or unknown
	timeMs          int64 // partition time: largest timestamp processed, or unknown
}

func newQueue(topic string) *queue {
	return &queue{topic: topic, headTimestampMs: math.MaxInt64, processed: unknown, consumed: unknown, timeMs: unknown}
}

func (q *queue) push(records []Record) {
	if len(records) == 0 {
		return
	}
	q.batches = append(q.batches, records)
	q.count += len(records)
	for i := range records {
		q.bytes += records[i].bytes()
	}
	q.consumed = max(q.consumed, records[len(records)-1].Offset+1)
	if q.headTimestampMs == math.MaxInt64 {
		q.headTimestampMs = records[0].TimestampMs
	}
}

func (q *queue) head() *Record { return &q.batches[0][q.next] }

// pop drops the head and lets go of its bytes.
func (q *queue) pop() {
	batch := q.batches[0]
	rec := &batch[q.next]
	q.processed = rec.Offset + 1
	q.count--
	q.bytes -= rec.bytes()
	*rec = Record{}
	q.next++
	if q.next == len(batch) {
		q.next = 0
		n := copy(q.batches, q.batches[1:])
		q.batches[n] = nil
		q.batches = q.batches[:n]
	}
	if q.count == 0 {
		q.headTimestampMs = math.MaxInt64
		return
	}
	q.headTimestampMs = q.batches[0][q.next].TimestampMs
}

// position is the offset to commit: the head, else what was passed.
func (q *queue) position() int64 {
	if q.count > 0 {
		return q.head().Offset
	}
	return max(q.processed, q.consumed)
}

func (q *queue) clear() {
	*q = queue{topic: q.topic, handler: q.handler, headTimestampMs: math.MaxInt64, processed: unknown, consumed: unknown, timeMs: unknown}
}
