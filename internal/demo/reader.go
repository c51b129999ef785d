package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// readStall is how long a read may make no progress before it is given up.
const readStall = 30 * time.Second

// isolation is what a reader is shown of transactions.
type isolation string

const (
	readCommitted   isolation = "read_committed"
	readUncommitted isolation = "read_uncommitted"
)

// reader reads whole topics, from an offset to the end that they have when the
// read starts.
type reader struct {
	cluster *cluster
	brokers string
}

// readAll gives every record of topic to each, in offset order per partition.
// An open transaction holds a read_committed reader back: it waits for its end,
// and is an error where none comes.
func (r *reader) readAll(ctx context.Context, topic string, level isolation, each func(*kgo.Record) error) error {
	ends, err := r.cluster.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("listing the end offsets of %s: %w", topic, err)
	}
	starts, err := r.cluster.admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("listing the start offsets of %s: %w", topic, err)
	}
	var ranges []partitionLag
	for _, end := range ends[topic] {
		start, _ := starts.Lookup(topic, end.Partition)
		ranges = append(ranges, partitionLag{topic: topic, partition: end.Partition, committed: start.Offset, end: end.Offset})
	}
	return r.readRanges(ctx, ranges, level, each)
}

// readRanges gives the data records of every range, from its committed offset to
// its end, to each.
//
// The end of a range is recognised by the offset end-1: the last thing in a log
// is a record that the reader gets or a transaction marker, which is asked for
// too and left out here. (Compaction keeps the last record of a log.)
func (r *reader) readRanges(ctx context.Context, ranges []partitionLag, level isolation, each func(*kgo.Record) error) error {
	assignment := make(map[string]map[int32]kgo.Offset)
	ends := make(map[string]map[int32]int64)
	open := 0
	for _, p := range ranges {
		if p.end <= max(0, p.committed) {
			continue
		}
		if assignment[p.topic] == nil {
			assignment[p.topic] = make(map[int32]kgo.Offset)
			ends[p.topic] = make(map[int32]int64)
		}
		assignment[p.topic][p.partition] = kgo.NewOffset().At(max(0, p.committed))
		ends[p.topic][p.partition] = p.end
		open++
	}
	if open == 0 {
		return nil
	}
	options := append(clientOptions(r.brokers),
		kgo.ClientID("hanbeon-demo-proof"),
		kgo.ConsumePartitions(assignment),
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.FetchMaxPartitionBytes(4<<20),
	)
	if level == readCommitted {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	defer client.Close()

	for open > 0 {
		pollCtx, cancel := context.WithTimeout(ctx, readStall)
		fetches := client.PollFetches(pollCtx)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		progressed := false
		var failed error
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if p.Err != nil && failed == nil && pollCtx.Err() == nil {
				failed = fmt.Errorf("reading %s-%d at %s: %w", p.Topic, p.Partition, level, p.Err)
			}
			end, ok := ends[p.Topic][p.Partition]
			for _, record := range p.Records {
				if !ok || record.Offset >= end {
					break
				}
				progressed = true
				if !record.Attrs.IsControl() && failed == nil {
					failed = each(record)
				}
				if record.Offset == end-1 {
					delete(ends[p.Topic], p.Partition)
					open--
				}
			}
		})
		if failed != nil {
			return failed
		}
		if !progressed && pollCtx.Err() != nil {
			return stalled(ends, level)
		}
	}
	return nil
}

// stalled names a partition whose end did not come.
func stalled(ends map[string]map[int32]int64, level isolation) error {
	for topic, partitions := range ends {
		for partition, end := range partitions {
			return fmt.Errorf("reading %s-%d at %s: nothing came for %v before the end at offset %d; is a transaction open (kafka-transactions.sh find-hanging)?",
				topic, partition, level, readStall, end)
		}
	}
	return fmt.Errorf("reading at %s: nothing came for %v", level, readStall)
}
