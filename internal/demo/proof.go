package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/verify"
)

// prove reads back everything that the run left and compares it with the
// independent count of the lines that were fed. The workers have ended.
func prove(ctx context.Context, r *reader, application string, topics Topics, fed []string, stores []verify.StoreContent) (verify.Report, error) {
	want := verify.CountWords(slices.Values(fed))
	report := verify.Report{Words: want.Total(), Distinct: len(want)}

	var err error
	if report.Lines, err = proveLines(ctx, r, topics.Lines, len(fed)); err != nil {
		return report, err
	}
	if report.Sink, err = proveSink(ctx, r, topics.Counts, readCommitted, want); err != nil {
		return report, err
	}
	dirty, err := proveSink(ctx, r, topics.Counts, readUncommitted, want)
	if err != nil {
		return report, err
	}
	report.Isolation = verify.CompareIsolation(report.Sink, dirty)
	if report.Changelog, report.Stores, err = proveState(ctx, r, application, want, stores); err != nil {
		return report, err
	}
	report.Offsets, err = proveOffsets(ctx, r, application, topics)
	return report, err
}

func proveLines(ctx context.Context, r *reader, topic string, fed int) (verify.LinesResult, error) {
	checker := verify.NewLineChecker(fed)
	err := r.readAll(ctx, topic, readCommitted, func(record *kgo.Record) error {
		number, err := strconv.ParseInt(string(record.Key), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: the key is not a line number: %w", place(record), err)
		}
		checker.Add(number)
		return nil
	})
	return checker.Result(), err
}

func proveSink(ctx context.Context, r *reader, topic string, level isolation, want verify.Counts) (verify.SinkResult, error) {
	checker := verify.NewSinkChecker()
	err := r.readAll(ctx, topic, level, func(record *kgo.Record) error {
		count, err := decodeCount(record)
		if err != nil {
			return err
		}
		checker.Add(verify.Update{Partition: record.Partition, Offset: record.Offset, Word: string(record.Key), Count: count})
		return nil
	})
	return checker.Result(want), err
}

// proveState reads the changelog once, for its own content and for the stores.
func proveState(ctx context.Context, r *reader, application string, want verify.Counts, stores []verify.StoreContent) (verify.ChangelogResult, verify.StoresResult, error) {
	changelog := verify.NewChangelogChecker()
	onDisk := verify.NewStoreChecker(stores)
	topics, err := r.cluster.topicsWithSuffix(ctx, application, "-changelog")
	if err == nil && len(topics) != 1 {
		err = fmt.Errorf("application %s has the changelog topics %q, want one", application, topics)
	}
	if err != nil {
		return verify.ChangelogResult{}, verify.StoresResult{}, err
	}
	err = r.readAll(ctx, topics[0], readCommitted, func(record *kgo.Record) error {
		change := verify.Change{Partition: record.Partition, Offset: record.Offset, Word: string(record.Key), Deleted: record.Value == nil}
		if !change.Deleted {
			var err error
			if change.Count, err = decodeCount(record); err != nil {
				return err
			}
		}
		changelog.Add(change)
		onDisk.Add(change)
		return nil
	})
	return changelog.Result(want), onDisk.Result(), err
}

// proveOffsets compares the committed offsets with the ends of all source
// topics. Where they differ it reads what is between: transaction markers take
// up offsets too.
func proveOffsets(ctx context.Context, r *reader, application string, topics Topics) (verify.OffsetsResult, error) {
	repartition, err := r.cluster.topicsWithSuffix(ctx, application, "-repartition")
	if err != nil {
		return verify.OffsetsResult{}, err
	}
	lags, err := r.cluster.lags(ctx, application, append([]string{topics.Lines}, repartition...)...)
	if err != nil {
		return verify.OffsetsResult{}, err
	}
	var partitions []partitionLag
	for _, topic := range append([]string{topics.Lines}, repartition...) {
		partitions = append(partitions, lags[topic].partition...)
	}
	unread, err := r.unread(ctx, partitions)
	if err != nil {
		return verify.OffsetsResult{}, err
	}
	progress := make([]verify.PartitionProgress, 0, len(partitions))
	for i, p := range partitions {
		progress = append(progress, verify.PartitionProgress{
			Topic: p.topic, Partition: p.partition, Committed: p.committed, End: p.end, Unread: unread[i],
		})
	}
	return verify.CheckOffsets(progress), nil
}

// unread counts the committed data records between the committed offset and the
// end of each partition.
func (r *reader) unread(ctx context.Context, partitions []partitionLag) ([]int64, error) {
	counts := make([]int64, len(partitions))
	err := r.readRanges(ctx, partitions, readCommitted, func(record *kgo.Record) error {
		for i, p := range partitions {
			if p.topic == record.Topic && p.partition == record.Partition {
				counts[i]++
			}
		}
		return nil
	})
	return counts, err
}

// decodeCount reads a count: a big-endian 64-bit integer, as Kafka's
// LongSerializer writes it.
func decodeCount(record *kgo.Record) (int64, error) {
	if len(record.Value) != 8 {
		return 0, fmt.Errorf("%s: the count has %d bytes, want 8", place(record), len(record.Value))
	}
	return int64(binary.BigEndian.Uint64(record.Value)), nil
}

func place(record *kgo.Record) string {
	return fmt.Sprintf("%s-%d at offset %d", record.Topic, record.Partition, record.Offset)
}
