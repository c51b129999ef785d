//go:build conformance

package producer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// These tests run against a real cluster named by HANBEON_KAFKA (host:port).

func kafkaAddr(tb testing.TB) string {
	tb.Helper()
	addr := os.Getenv("HANBEON_KAFKA")
	if addr == "" {
		tb.Fatal("HANBEON_KAFKA (host:port) is needed with the build tag conformance")
	}
	return addr
}

func newClient(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(kafkaAddr(tb))}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

var unique atomic.Int64

func uniqueName(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, time.Now().UnixNano(), unique.Add(1))
}

func newTopic(tb testing.TB, partitions int32) string {
	tb.Helper()
	name := uniqueName("producer")
	adm := kadm.NewClient(newClient(tb))
	if _, err := adm.CreateTopic(tb.Context(), partitions, 1, nil, name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { adm.DeleteTopics(context.Background(), name) })
	return name
}

func newReal(tb testing.TB, cfg Config, opts ...kgo.Opt) *Producer {
	tb.Helper()
	cfg.Data, cfg.Control = newClient(tb, opts...), newClient(tb, opts...)
	p, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	if err := p.Init(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return p
}

// versions runs a test under both transaction protocols.
func versions(t *testing.T, test func(t *testing.T, v int16)) {
	for _, v := range []int16{2, 1} {
		t.Run(fmt.Sprintf("version%d", v), func(t *testing.T) { test(t, v) })
	}
}

func parts(tb testing.TB, p *Producer, topic string, n int32) []*Partition {
	tb.Helper()
	out := make([]*Partition, n)
	for i := range out {
		pt, err := p.Partition(topic, int32(i))
		if err != nil {
			tb.Fatal(err)
		}
		out[i] = pt
	}
	return out
}

func appendNumber(tb testing.TB, pt *Partition, n uint64) {
	tb.Helper()
	if err := pt.Append(nil, binary.BigEndian.AppendUint64(nil, n), nil, time.Now().UnixMilli()); err != nil {
		tb.Fatal(err)
	}
}

// readCommitted reads a topic to its end and returns the numbers per partition.
func readCommitted(tb testing.TB, topic string) map[int32][]uint64 {
	tb.Helper()
	return readWith(tb, topic, func(b []byte) uint64 { return binary.BigEndian.Uint64(b) })
}

func readText(tb testing.TB, topic string) map[int32][]uint64 {
	tb.Helper()
	return readWith(tb, topic, func(b []byte) uint64 {
		n, err := strconv.ParseUint(string(b), 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		return n
	})
}

func readWith(tb testing.TB, topic string, parse func([]byte) uint64) map[int32][]uint64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 60*time.Second)
	defer cancel()
	adm := kadm.NewClient(newClient(tb))
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		tb.Fatal(err)
	}
	cl := newClient(tb, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	want := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			want[o.Partition] = o.Offset
		}
	})
	out := make(map[int32][]uint64)
	for len(want) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			tb.Fatalf("reading %s to its end: %v; still wanted: %v", topic, err, want)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out[r.Partition] = append(out[r.Partition], parse(r.Value))
			}
			if r.Offset+1 >= want[r.Partition] {
				delete(want, r.Partition)
			}
		})
	}
	return out
}

func TestCommitIsVisibleAndAbortIsNot(t *testing.T) {
	versions(t, func(t *testing.T, v int16) {
		topic := newTopic(t, 3)
		p := newReal(t, Config{TransactionalID: uniqueName("id"), TransactionVersionMax: v, Compression: CompressionLz4})
		if got := p.Stats().TransactionVersion; got != v {
			t.Fatalf("transaction version %d, want %d", got, v)
		}
		pts := parts(t, p, topic, 3)
		want := make(map[int32][]uint64)
		for txn := range 40 {
			if err := p.Begin(); err != nil {
				t.Fatal(err)
			}
			abort := txn%4 == 3
			for i := range 10 {
				n := uint64(txn*10 + i)
				appendNumber(t, pts[n%3], n)
				if !abort {
					want[int32(n%3)] = append(want[int32(n%3)], n)
				}
			}
			if abort {
				if txn%8 == 3 {
					if err := p.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := p.Abort(t.Context()); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Committed || err != nil {
				t.Fatalf("transaction %d: %v, %v", txn, o, err)
			}
		}
		if got := readCommitted(t, topic); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("read %v\nwant %v", got, want)
		}
		if off, ok := pts[0].AckedOffset(); !ok || off < 100 {
			t.Fatalf("acked offset %d, %v", off, ok)
		}
	})
}

func offsetsOf(topic string, n int64) Offsets {
	return Offsets{batch.TopicPartition{Topic: topic, Partition: 0}: {Offset: n, LeaderEpoch: -1, Metadata: "m"}}
}

func TestOffsetsOnlyTransactionsMoveTheGroup(t *testing.T) {
	versions(t, func(t *testing.T, v int16) {
		in := newTopic(t, 1)
		feed(t, in)
		_, group := member(t, in)
		p := newReal(t, Config{TransactionalID: uniqueName("id"), TransactionVersionMax: v})
		adm := kadm.NewClient(newClient(t))
		for n := int64(1); n <= 10; n++ {
			if err := p.Begin(); err != nil {
				t.Fatal(err)
			}
			if o, err := p.Commit(t.Context(), group, offsetsOf(in, n)); o != Committed || err != nil {
				t.Fatal(o, err)
			}
		}
		c := &chaosRun{t: t, in: in, group: group, adm: adm}
		if got, err := c.committed(t.Context()); got != 10 || err != nil {
			t.Fatalf("committed offset %d, %v", got, err)
		}
		// A membership that is gone must not commit.
		if err := p.Begin(); err != nil {
			t.Fatal(err)
		}
		stale := group
		stale.GenerationID--
		if o, err := p.Commit(t.Context(), stale, offsetsOf(in, 99)); o != Aborted || !errors.Is(err, ErrRebalanced) {
			t.Fatalf("stale generation: %v, %v", o, err)
		}
		if err := p.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := c.committed(t.Context()); got != 10 || err != nil {
			t.Fatalf("committed offset %d, %v", got, err)
		}
	})
}

func TestAbortRightAfterCommit(t *testing.T) {
	versions(t, func(t *testing.T, v int16) {
		topic := newTopic(t, 1)
		p := newReal(t, Config{TransactionalID: uniqueName("id"), TransactionVersionMax: v})
		pt := parts(t, p, topic, 1)[0]
		var want []uint64
		for n := range uint64(30) {
			for _, commit := range []bool{true, false} {
				if err := p.Begin(); err != nil {
					t.Fatal(err)
				}
				appendNumber(t, pt, n)
				if !commit {
					if n%2 == 0 {
						p.sealAll(-1) // on the wire when the abort comes
					}
					if err := p.Abort(t.Context()); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Committed {
					t.Fatal(o, err)
				}
				want = append(want, n)
			}
		}
		if got := readCommitted(t, topic)[0]; !slices.Equal(got, want) {
			t.Fatalf("read %v, want %v", got, want)
		}
	})
}

func TestCommitAfterCoordinatorTimeout(t *testing.T) {
	topic := newTopic(t, 1)
	p := newReal(t, Config{TransactionalID: uniqueName("id"), TransactionTimeout: 500 * time.Millisecond})
	pt := parts(t, p, topic, 1)[0]
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	appendNumber(t, pt, 1)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitAborted(t, p.cfg.TransactionalID)
	if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Aborted || !errors.Is(err, ErrTimedOutByCoordinator) {
		t.Fatalf("%v, %v", o, err)
	}
	if err := p.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	appendNumber(t, pt, 2)
	if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Committed {
		t.Fatal(o, err)
	}
	if got := readCommitted(t, topic)[0]; !slices.Equal(got, []uint64{2}) {
		t.Fatalf("read %v, want [2]", got)
	}
}

// awaitAborted polls until the coordinator has aborted the id's transaction.
func awaitAborted(t *testing.T, id string) {
	t.Helper()
	adm := kadm.NewClient(newClient(t))
	deadline := time.Now().Add(60 * time.Second)
	for tick := time.NewTicker(100 * time.Millisecond); time.Now().Before(deadline); <-tick.C {
		if d, err := adm.DescribeTransactions(t.Context(), id); err == nil && d[id].State == "CompleteAbort" {
			return
		}
	}
	t.Fatal("the coordinator did not abort the transaction; set transaction.abort.timed.out.transaction.cleanup.interval.ms low")
}

func TestReplacedProducerIsFenced(t *testing.T) {
	versions(t, func(t *testing.T, v int16) {
		topic := newTopic(t, 1)
		id := uniqueName("id")
		old := newReal(t, Config{TransactionalID: id, TransactionVersionMax: v})
		if err := old.Begin(); err != nil {
			t.Fatal(err)
		}
		appendNumber(t, parts(t, old, topic, 1)[0], 1)
		if err := old.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		heir := newReal(t, Config{TransactionalID: id, TransactionVersionMax: v})
		if o, err := old.Commit(t.Context(), GroupMetadata{}, nil); o != Aborted || !errors.Is(err, ErrFenced) {
			t.Fatalf("old producer: %v, %v", o, err)
		}
		if err := old.Recover(t.Context()); !errors.Is(err, ErrFenced) {
			t.Fatalf("the old producer took the id back: %v", err)
		}
		if err := heir.Begin(); err != nil {
			t.Fatal(err)
		}
		appendNumber(t, parts(t, heir, topic, 1)[0], 2)
		if o, err := heir.Commit(t.Context(), GroupMetadata{}, nil); o != Committed {
			t.Fatal(o, err)
		}
		if got := readCommitted(t, topic)[0]; !slices.Equal(got, []uint64{2}) {
			t.Fatalf("read %v, want [2]", got)
		}
	})
}

func TestTopicRecreatedInATransactionIsAborted(t *testing.T) {
	topic := newTopic(t, 1)
	p := newReal(t, Config{TransactionalID: uniqueName("id")})
	pt := parts(t, p, topic, 1)[0]
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	appendNumber(t, pt, 1)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(newClient(t))
	if _, err := adm.DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	for {
		if r, err := adm.CreateTopics(t.Context(), 1, 1, nil, topic); err == nil && r[topic].Err == nil {
			break
		}
	}
	appendNumber(t, pt, 2)
	if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Aborted || !errors.Is(err, ErrTopicRecreated) {
		t.Fatalf("%v, %v", o, err)
	}
	if err := p.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	appendNumber(t, pt, 3)
	if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Committed {
		t.Fatal(o, err)
	}
	if got := readCommitted(t, topic)[0]; !slices.Equal(got, []uint64{3}) {
		t.Fatalf("read %v, want [3]", got)
	}
}
