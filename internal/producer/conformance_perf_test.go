//go:build conformance

package producer

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestThroughputFigures measures 1 M records of 100 bytes in transactions of
// 1,000 and prints the figures; it checks only what must not regress by an
// order of magnitude.
func TestThroughputFigures(t *testing.T) {
	versions(t, func(t *testing.T, v int16) {
		const records, perTxn, partitions = 1_000_000, 1_000, 4
		topic := newTopic(t, partitions)
		p := newReal(t, Config{TransactionalID: uniqueName("perf"), TransactionVersionMax: v})
		pts := parts(t, p, topic, partitions)
		value, now := make([]byte, 100), time.Now().UnixMilli()
		run := func(records int) []time.Duration {
			var commits []time.Duration
			for done := 0; done < records; done += perTxn {
				if err := p.Begin(); err != nil {
					t.Fatal(err)
				}
				for i := range perTxn {
					if err := pts[i%partitions].Append(nil, value, nil, now); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Committed {
					t.Fatal(o, err)
				}
				commits = append(commits, time.Since(start))
			}
			return commits
		}
		run(20 * perTxn)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		commits := run(records)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		slices.Sort(commits)
		allocs := float64(after.Mallocs-before.Mallocs) / records
		t.Logf("%.0f records/s, commit p50 %v p99 %v, %.3f allocations/record, %d produce requests, %d retries",
			records/took.Seconds(), commits[len(commits)/2], commits[len(commits)*99/100], allocs,
			p.Stats().ProduceRequests, p.Stats().Retries)
		if allocs > 0.5 {
			t.Errorf("%.3f allocations per record", allocs)
		}
	})
}

// TestPlainThroughputFigures measures one long transaction, where the wire is
// the limit.
func TestPlainThroughputFigures(t *testing.T) {
	const records, partitions = 2_000_000, 4
	topic := newTopic(t, partitions)
	p := newReal(t, Config{TransactionalID: uniqueName("perf"), TransactionTimeout: time.Minute})
	pts := parts(t, p, topic, partitions)
	value, now := make([]byte, 100), time.Now().UnixMilli()
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for i := range records {
		if err := pts[i%partitions].Append(nil, value, nil, now); err != nil {
			t.Fatal(err)
		}
	}
	if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Committed {
		t.Fatal(o, err)
	}
	t.Logf("%.0f records/s in one transaction", records/time.Since(start).Seconds())
}
