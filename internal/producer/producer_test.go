package producer

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/producer/core"
)

func partition(t testing.TB, p *Producer, topic string, n int32) *Partition {
	t.Helper()
	pt, err := p.Partition(topic, n)
	if err != nil {
		t.Fatal(err)
	}
	return pt
}

func mustBegin(t testing.TB, p *Producer) {
	t.Helper()
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
}

func mustCommit(t testing.TB, p *Producer, g GroupMetadata, o Offsets) {
	t.Helper()
	if outcome, err := p.Commit(t.Context(), g, o); outcome != Committed || err != nil {
		t.Fatalf("commit: %v, %v", outcome, err)
	}
}

var someGroup = GroupMetadata{GroupID: "g", MemberID: "m", GenerationID: 3}

func someOffsets(n int64) Offsets {
	return Offsets{
		{Topic: "b", Partition: 1}: {Offset: n, LeaderEpoch: -1},
		{Topic: "a", Partition: 2}: {Offset: n, LeaderEpoch: 4, Metadata: "x"},
		{Topic: "a", Partition: 0}: {Offset: n, LeaderEpoch: -1},
	}
}

func TestTransactionOnTheWire(t *testing.T) {
	for _, level := range []int16{1, 2} {
		f := newFake()
		f.level = level
		p := newFakeProducer(t, f, Config{TransactionalID: "id"})
		mustBegin(t, p)
		a, b := partition(t, p, "out", 0), partition(t, p, "out", 3)
		for _, pt := range []*Partition{a, b, a} {
			if err := pt.Append([]byte("k"), []byte("v"), []Header{{Key: "h"}}, 1000); err != nil {
				t.Fatal(err)
			}
		}
		mustCommit(t, p, someGroup, someOffsets(5))

		want := map[int16]int16{0: 13, 26: 5, 28: 5} // key to version
		if level == 1 {
			want = map[int16]int16{0: 11, 24: 3, 25: 4, 26: 4, 28: 4}
		}
		for _, key := range []int16{0, 24, 25, 26, 28} {
			reqs := f.seen(key)
			v, ok := want[key]
			if ok != (len(reqs) == 1) || ok && reqs[0].GetVersion() != v {
				t.Errorf("level %d: %v sent %d times, want version %d", level, kmsg.NameForKey(key), len(reqs), v)
			}
		}
		produce := f.seen(0)[0].(*produceReq)
		if produce.Acks != -1 || *produce.TransactionID != "id" || len(produce.Topics) != 1 || len(produce.Topics[0].Partitions) != 2 {
			t.Errorf("Produce %+v", produce.ProduceRequest)
		}
		o := f.seen(28)[0].(*kmsg.TxnOffsetCommitRequest)
		if o.MemberID != "m" || o.Generation != 3 || o.Group != "g" || len(o.Topics) != 2 || o.Topics[0].Topic != "a" || o.Topics[0].Partitions[0].Partition != 0 {
			t.Errorf("TxnOffsetCommit %+v", o)
		}
		for _, raw := range f.batches {
			h, err := batch.ParseHeader(raw)
			if err != nil || h.Attributes&batch.AttrTransactional == 0 || h.BaseSequence != 0 || h.ProducerID != 7 || h.Epoch != 0 {
				t.Errorf("batch header %+v, %v", h, err)
			}
		}
		if off, ok := a.AckedOffset(); !ok || off < 1 {
			t.Errorf("acked offset %d, %v", off, ok)
		}
		if s := p.Stats(); s.Commits != 1 || s.BufferedBytes != 0 || s.RecordsAcked != 3 || s.TransactionVersion != level {
			t.Errorf("stats %+v", s)
		}
	}
}

func TestClientCapsChooseVersion1(t *testing.T) {
	f := newFake()
	f.caps = map[int16]int16{26: 4}
	if p := newFakeProducer(t, f, Config{TransactionalID: "id"}); p.Stats().TransactionVersion != 1 {
		t.Fatal("version 2 although EndTxn is capped at 4")
	}
}

// Trap 10 and 6: kgo rewrites the acks of a plain *kmsg.ProduceRequest, and
// sleeps for a response that says it throttles.
func TestProduceIsWrappedForKgo(t *testing.T) {
	var req kmsg.Request = &produceReq{ProduceRequest: kmsg.NewPtrProduceRequest(), versionMax: 11, written: func() {}}
	if _, plain := req.(*kmsg.ProduceRequest); plain {
		t.Fatal("kgo would rewrite the acks")
	}
	if req.MaxVersion() != 11 {
		t.Fatal("the version cap is lost")
	}
	resp := req.ResponseKind()
	resp.(*produceResp).ThrottleMillis = 35_000
	if ms, _ := resp.(kmsg.ThrottleResponse).Throttle(); ms != 0 {
		t.Fatal("kgo would sleep on the broker's writer")
	}
	if tr, ok := req.(kmsg.TimeoutRequest); !ok || tr.Timeout() == 0 {
		t.Fatal("kgo would not wait as long as the broker may")
	}
}

func TestWrittenIsSignalledOnce(t *testing.T) {
	n := 0
	req := &produceReq{ProduceRequest: kmsg.NewPtrProduceRequest(), versionMax: 13, written: func() { n++ }}
	req.AppendTo(nil)
	req.AppendTo(nil) // on a new connection, nothing having been written
	if n != 1 {
		t.Fatalf("signalled %d times", n)
	}
}

// Trap 12: a commit without a member would be accepted unfenced.
func TestOffsetsWithoutMembershipAreRefused(t *testing.T) {
	f := newFake()
	p := newFakeProducer(t, f, Config{TransactionalID: "id"})
	for _, g := range []GroupMetadata{{}, {GroupID: "g"}, {GroupID: "g", GenerationID: -1}, {GroupID: "g", MemberID: "m", GenerationID: -1}} {
		mustBegin(t, p)
		if o, err := p.Commit(t.Context(), g, someOffsets(1)); o != Aborted || !errors.Is(err, ErrInvalidConfig) {
			t.Fatalf("%+v: %v, %v", g, o, err)
		}
		if err := p.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.seen(28)) != 0 || len(f.seen(26)) != 0 {
		t.Fatal("something was sent")
	}
}

func TestErrorsNameEverything(t *testing.T) {
	f := newFake()
	f.intervene = func(req kmsg.Request) (kmsg.Response, error) {
		r, ok := req.(*produceReq)
		if !ok {
			return nil, nil
		}
		resp := f.append(r).(*produceResp)
		resp.Topics[0].Partitions[0].ErrorCode = 87
		resp.Topics[0].Partitions[0].ErrorMessage = kmsg.StringPtr("no key")
		return resp, nil
	}
	p := newFakeProducer(t, f, Config{TransactionalID: "id"})
	mustBegin(t, p)
	pt := partition(t, p, "out", 2)
	if err := pt.Append(nil, nil, nil, 1); err != nil {
		t.Fatal(err)
	}
	outcome, err := p.Commit(t.Context(), GroupMetadata{}, nil)
	if outcome != Aborted || !errors.Is(err, ErrInvalidRecord) || !errors.Is(err, kerr.InvalidRecord) {
		t.Fatalf("%v, %v", outcome, err)
	}
	for _, part := range []string{"commit", "Produce", "out-2", "no key", "INVALID_RECORD"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %q", err, part)
		}
	}
	if p.Stats().AbortsByReason[ErrInvalidRecord.Error()] != 1 {
		t.Errorf("stats %+v", p.Stats())
	}
}

func TestRecordTooLargeFailsTheTransaction(t *testing.T) {
	p := newFakeProducer(t, newFake(), Config{TransactionalID: "id", BatchMaxBytes: 1 << 10, MaxBufferedBytes: 4 << 10})
	mustBegin(t, p)
	pt := partition(t, p, "out", 0)
	if err := pt.Append(nil, make([]byte, 1500), nil, 1); err != nil {
		t.Fatalf("a record above BatchMaxBytes has a batch of its own: %v", err)
	}
	if err := pt.Append(nil, make([]byte, 3<<10), nil, 1); !errors.Is(err, ErrRecordTooLarge) {
		t.Fatal(err)
	}
	if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Aborted || !errors.Is(err, ErrRecordTooLarge) {
		t.Fatalf("%v, %v", o, err)
	}
}

func TestUnknownOutcomeAndResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		lose := true
		f.intervene = func(req kmsg.Request) (kmsg.Response, error) {
			if _, ok := req.(*kmsg.EndTxnRequest); ok && lose {
				return nil, errLost
			}
			return nil, nil
		}
		p := newFakeProducer(t, f, Config{TransactionalID: "id", EndTxnTimeout: 3 * time.Second})
		mustBegin(t, p)
		if err := partition(t, p, "out", 0).Append(nil, nil, nil, 1); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		outcome, err := p.Commit(t.Context(), GroupMetadata{}, nil)
		if outcome != Unknown || !errors.Is(err, ErrTimeout) || time.Since(start) < 3*time.Second {
			t.Fatalf("%v, %v after %v", outcome, err, time.Since(start))
		}
		if err := p.Begin(); !errors.Is(err, ErrState) {
			t.Fatalf("begin after an unknown outcome: %v", err)
		}
		if err := p.Abort(t.Context()); !errors.Is(err, ErrState) {
			t.Fatalf("abort after an unknown outcome: %v", err)
		}
		f.mu.Lock()
		lose = false
		f.mu.Unlock()
		if o, err := p.Resolve(t.Context()); o != Aborted || err != nil {
			t.Fatalf("resolve: %v, %v", o, err)
		}
		mustBegin(t, p)
	})
}

func TestLingerSealsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		p := newFakeProducer(t, f, Config{Linger: 50 * time.Millisecond})
		a, b := partition(t, p, "out", 0), partition(t, p, "out", 1)
		for i, pt := range []*Partition{a, b} {
			if err := pt.Append(nil, []byte("v"), nil, 1); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				time.Sleep(30 * time.Millisecond) // virtual
			}
		}
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		if _, ok := a.AckedOffset(); !ok {
			t.Error("the batch of 55 ms was not sent")
		}
		if _, ok := b.AckedOffset(); ok {
			t.Error("the batch of 25 ms was sent")
		}
		time.Sleep(80 * time.Millisecond)
		synctest.Wait()
		if _, ok := b.AckedOffset(); !ok {
			t.Error("the second batch was never sent")
		}
	})
}

func TestAppendBlocksAtTheBufferLimitUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.produced = make(chan struct{})
		p := newFakeProducer(t, f, Config{BatchMaxBytes: 16 << 10, MaxBufferedBytes: 64 << 10})
		pt := partition(t, p, "out", 0)
		appended, stop := 0, make(chan error)
		go func() {
			for range 200 {
				if err := pt.Append(nil, make([]byte, 1000), nil, 1); err != nil {
					stop <- err
					return
				}
				appended++
			}
			stop <- nil
		}()
		synctest.Wait()
		if appended == 200 || p.Stats().BufferedBytes > 64<<10 {
			t.Fatalf("%d records, %d bytes buffered", appended, p.Stats().BufferedBytes)
		}
		close(f.produced)
		if err := <-stop; err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := p.Stats().BufferedBytes; b != 0 {
			t.Fatalf("%d bytes buffered after the flush", b)
		}
	})
}

func TestCloseEndsABlockedAppendAndACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.produced = make(chan struct{})
		p := newFakeProducer(t, f, Config{TransactionalID: "id", BatchMaxBytes: 1 << 10, MaxBufferedBytes: 32 << 10})
		mustBegin(t, p)
		pt := partition(t, p, "out", 0)
		stop := make(chan error)
		go func() {
			for {
				if err := pt.Append(nil, make([]byte, 500), nil, 1); err != nil {
					stop <- err
					return
				}
			}
		}()
		synctest.Wait()
		p.Close()
		if err := <-stop; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if _, err := p.Commit(t.Context(), GroupMetadata{}, nil); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		p.Close()
	})
}

func TestContextEndsACommitBeforeEndTxn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.produced = make(chan struct{})
		p := newFakeProducer(t, f, Config{TransactionalID: "id"})
		mustBegin(t, p)
		if err := partition(t, p, "out", 0).Append(nil, nil, nil, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		outcome, err := p.Commit(ctx, GroupMetadata{}, nil)
		if outcome != Aborted || !errors.Is(err, ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", outcome, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Abort(ctx); !errors.Is(err, ErrCanceled) {
			t.Fatalf("abort with a batch in flight: %v", err)
		}
		close(f.produced)
		if err := p.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustBegin(t, p)
	})
}

func TestMissingTopicIsNamedAfterDeliveryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeProducer(t, newFake(), Config{TransactionalID: "id", DeliveryTimeout: 5 * time.Second})
		mustBegin(t, p)
		if err := partition(t, p, "missing", 0).Append(nil, nil, nil, 1); err != nil {
			t.Fatal(err)
		}
		if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Aborted || !errors.Is(err, ErrUnknownTopic) {
			t.Fatalf("%v, %v", o, err)
		}
		if _, err := p.PartitionCount(t.Context(), "missing"); !errors.Is(err, ErrUnknownTopic) {
			t.Fatal(err)
		}
		if n, err := p.PartitionCount(t.Context(), "out"); n != 4 || err != nil {
			t.Fatal(n, err)
		}
	})
}

func TestFencedProducerSaysSoEverywhere(t *testing.T) {
	f := newFake()
	p := newFakeProducer(t, f, Config{TransactionalID: "id"})
	f.intervene = func(req kmsg.Request) (kmsg.Response, error) {
		if _, ok := req.(*kmsg.EndTxnRequest); ok {
			resp := req.ResponseKind().(*kmsg.EndTxnResponse)
			resp.Version, resp.ErrorCode = 5, 90
			return resp, nil
		}
		return nil, nil
	}
	mustBegin(t, p)
	pt := partition(t, p, "out", 0)
	if err := pt.Append(nil, nil, nil, 1); err != nil {
		t.Fatal(err)
	}
	if o, err := p.Commit(t.Context(), GroupMetadata{}, nil); o != Aborted || !errors.Is(err, ErrFenced) {
		t.Fatalf("%v, %v", o, err)
	}
	for name, err := range map[string]error{"begin": p.Begin(), "abort": p.Abort(t.Context()), "recover": p.Recover(t.Context()), "flush": p.Flush(t.Context())} {
		if !errors.Is(err, ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMisuseIsAnErrorNotAPanic(t *testing.T) {
	p := newFakeProducer(t, newFake(), Config{TransactionalID: "id"})
	pt := partition(t, p, "out", 0)
	if err := pt.Append(nil, nil, nil, 1); !errors.Is(err, ErrState) {
		t.Errorf("append without a transaction: %v", err)
	}
	if _, err := p.Commit(t.Context(), GroupMetadata{}, nil); !errors.Is(err, ErrState) {
		t.Errorf("commit without a transaction: %v", err)
	}
	if err := p.Abort(t.Context()); err != nil {
		t.Errorf("abort without a transaction: %v", err)
	}
	mustBegin(t, p)
	if err := p.Begin(); !errors.Is(err, ErrState) {
		t.Errorf("begin twice: %v", err)
	}
	if err := p.Init(t.Context()); !errors.Is(err, ErrState) {
		t.Errorf("init twice: %v", err)
	}
	if _, err := p.Partition("", 0); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("empty topic: %v", err)
	}
	for _, cfg := range []Config{{}, {net: newFake(), Compression: 9}, {net: newFake(), BatchMaxBytes: 1}, {net: newFake(), MaxBufferedBytes: 1},
		{net: newFake(), Linger: -1}, {net: newFake(), TransactionTimeout: 1 << 60}} {
		if _, err := New(cfg); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestRecordsSurviveEveryCodec(t *testing.T) {
	for codec := CompressionNone; codec <= CompressionZstd; codec++ {
		f := newFake()
		p := newFakeProducer(t, f, Config{Compression: codec})
		pt := partition(t, p, "out", 0)
		for range 50 {
			if err := pt.Append([]byte("key"), bytes.Repeat([]byte("v"), 40), []Header{{Key: "h", Value: []byte("1")}}, 99); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, raw := range f.batches {
			if h, _ := batch.ParseHeader(raw); int8(h.Codec()) != int8(codec) {
				t.Errorf("codec %v, want %v", h.Codec(), codec)
			}
			for r, err := range batch.Records(raw) {
				if err != nil || string(r.Key) != "key" || len(r.Value) != 40 {
					t.Fatalf("codec %d: %+v, %v", codec, r, err)
				}
				n++
			}
		}
		if n != 50 {
			t.Errorf("codec %d: %d records", codec, n)
		}
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	p := newFakeProducer(t, newFake(), Config{TransactionalID: "id"})
	mustBegin(t, p)
	pt := partition(t, p, "out", 0)
	key, value := []byte("key"), make([]byte, 10)
	for range 100 {
		if err := pt.Append(key, value, nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(500, func() {
		if err := pt.Append(key, value, nil, 1); err != nil {
			t.Fatal(err)
		}
	}); n > 0.1 {
		t.Fatalf("%v allocations per record", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	cfg := Config{net: newFake()}
	p, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	if err := p.Init(b.Context()); err != nil {
		b.Fatal(err)
	}
	pt := partition(b, p, "out", 0)
	value := make([]byte, 100)
	b.SetBytes(100)
	b.ReportAllocs()
	for b.Loop() {
		if err := pt.Append(nil, value, nil, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func TestEverySentinelHasAReason(t *testing.T) {
	for r := core.ReasonFenced; r <= core.ReasonFatal; r++ {
		if sentinels[r] == nil {
			t.Errorf("reason %d has no error", r)
		}
	}
}
