//go:build conformance

package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// cutter dials through a relay that cuts connections at random points of the
// byte stream, in either direction.
type cutter struct {
	mu    sync.Mutex
	rng   *rand.Rand
	on    bool
	kills int
	mean  int // bytes until a cut, on average
}

func (c *cutter) budget() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return -1
	}
	return 1 + c.rng.IntN(2*c.mean)
}

func (c *cutter) set(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = on
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c, left: c.budget()}, nil
}

// cutConn closes itself in the middle of a read or write once its budget is
// used up: requests are lost half-written, or acted on without an answer.
type cutConn struct {
	net.Conn
	c    *cutter
	mu   sync.Mutex
	left int
}

func (k *cutConn) spend(n int) (allowed int, cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left < 0 {
		return n, false
	}
	if n < k.left {
		k.left -= n
		return n, false
	}
	allowed, k.left = k.left, 0
	return allowed, true
}

func (k *cutConn) kill() error {
	k.c.mu.Lock()
	k.c.kills++
	k.c.mu.Unlock()
	k.Conn.Close()
	return io.ErrUnexpectedEOF
}

func (k *cutConn) Write(b []byte) (int, error) {
	n, cut := k.spend(len(b))
	written, err := k.Conn.Write(b[:n])
	if cut && err == nil {
		err = k.kill()
	}
	return written, err
}

func (k *cutConn) Read(b []byte) (int, error) {
	n, err := k.Conn.Read(b)
	if _, cut := k.spend(n); cut {
		return 0, k.kill() // what came is lost
	}
	return n, err
}

// chaosRun writes numbered records in transactions with offsets until all are
// committed, resolving every outcome as a stream processor would.
type chaosRun struct {
	t        *testing.T
	p        *Producer
	pts      []*Partition
	in       string // topic whose offset is committed
	member   *kgo.Client
	group    GroupMetadata
	adm      *kadm.Client
	rng      *rand.Rand
	perTxn   int
	unknown  int
	aborted  int
	selfMade int
}

// committed reads how far the group has come, waiting for what is undecided.
func (c *chaosRun) committed(ctx context.Context) (int64, error) {
	for {
		offs, err := c.adm.FetchOffsets(ctx, c.group.GroupID)
		if err == nil {
			if o, ok := offs.Lookup(c.in, 0); ok {
				if o.Err == nil {
					return o.At, nil
				}
				err = o.Err
			} else {
				return 0, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// transaction tries to process records from position on and returns the new
// position.
func (c *chaosRun) transaction(ctx context.Context, position int64) int64 {
	c.t.Helper()
	if err := c.p.Begin(); err != nil {
		c.t.Fatal(err)
	}
	var failed error
	for i := range int64(c.perTxn) {
		n := position + i
		b := []byte(fmt.Sprintf("%08d", n))
		if failed = c.pts[n%int64(len(c.pts))].Append(nil, b, nil, time.Now().UnixMilli()); failed != nil {
			break
		}
	}
	if c.rng.IntN(12) == 0 { // a processor that failed
		c.selfMade++
		c.resolve(ctx, c.p.Abort)
		return position
	}
	next := position + int64(c.perTxn)
	outcome, err := c.p.Commit(ctx, c.group, Offsets{batch.TopicPartition{Topic: c.in}: {Offset: next, LeaderEpoch: -1}})
	switch outcome {
	case Committed:
		return next
	case Aborted:
		c.aborted++
		c.t.Logf("aborted at %d: %v", position, err)
		c.resolve(ctx, c.p.Abort)
		if errors.Is(err, ErrRebalanced) { // a new membership, and the position that goes with it
			c.group = membership(ctx, c.member, c.group.GroupID)
			if position, err = c.committed(ctx); err != nil {
				c.t.Fatal(err)
			}
		}
		return position
	}
	c.unknown++
	c.resolve(ctx, c.p.Recover)
	got, err := c.committed(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

func (c *chaosRun) resolve(ctx context.Context, f func(context.Context) error) {
	c.t.Helper()
	if err := f(ctx); err != nil {
		c.t.Fatalf("resolve: %v", err)
	}
}

// member joins a group for real, so that the offsets are fenced.
func member(t *testing.T, topic string) (*kgo.Client, GroupMetadata) {
	t.Helper()
	group := uniqueName("group")
	cl := newClient(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.SessionTimeout(45*time.Second))
	return cl, membership(t.Context(), cl, group)
}

// membership waits until the member has a generation that the group knows.
func membership(ctx context.Context, cl *kgo.Client, group string) GroupMetadata {
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		cl.PollFetches(poll)
		cancel()
		if id, gen := cl.GroupMetadata(); id != "" && gen >= 0 {
			return GroupMetadata{GroupID: group, MemberID: id, GenerationID: gen}
		}
	}
	return GroupMetadata{}
}

func chaosTransactions() int {
	if n, err := strconv.Atoi(os.Getenv("HANBEON_CHAOS_TXNS")); err == nil {
		return n
	}
	return 100
}

func feed(t *testing.T, topic string) {
	t.Helper()
	cl := newClient(t)
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// TestConnectionsCutAtRandomLoseAndDoubleNothing runs transactions with
// offsets over connections that are cut in the middle of requests and
// answers, and checks the committed content record by record.
func TestConnectionsCutAtRandomLoseAndDoubleNothing(t *testing.T) {
	versions(t, func(t *testing.T, v int16) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		cut := &cutter{rng: rand.New(rand.NewPCG(seed, 2)), mean: 1_800}
		topic, in := newTopic(t, 3), newTopic(t, 1)
		feed(t, in)
		const perTxn = 30
		txns := chaosTransactions()
		p := newReal(t, Config{TransactionalID: uniqueName("chaos"), TransactionVersionMax: v, TransactionTimeout: 30 * time.Second,
			BatchMaxBytes: 1 << 10, Linger: time.Millisecond, RequestTimeout: 2 * time.Second, EndTxnTimeout: 20 * time.Millisecond,
			RetryBackoff: 5 * time.Millisecond, RetryBackoffMax: 100 * time.Millisecond},
			kgo.Dialer(cut.dial), kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }))
		cl, group := member(t, in)
		c := &chaosRun{t: t, p: p, pts: parts(t, p, topic, 3), in: in, member: cl, group: group,
			adm: kadm.NewClient(newClient(t)), rng: rng, perTxn: perTxn}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Second)
		defer cancel()
		cut.set(true)
		for position := int64(0); position < int64(txns*perTxn); {
			position = c.transaction(ctx, position)
		}
		cut.set(false)
		t.Logf("%d transactions: %d kills, %d aborted by failure, %d by choice, %d unknown, %d retries",
			txns, cut.kills, c.aborted, c.selfMade, c.unknown, p.Stats().Retries)
		if cut.kills == 0 || p.Stats().Retries == 0 {
			t.Error("nothing was cut or retried: this run proves nothing")
		}
		checkNumbers(t, topic, 3, int64(txns*perTxn))
	})
}

// checkNumbers wants exactly the numbers below n, in order per partition.
func checkNumbers(t *testing.T, topic string, partitions, n int64) {
	t.Helper()
	want := make(map[int32][]uint64)
	for i := range n {
		want[int32(i%partitions)] = append(want[int32(i%partitions)], uint64(i))
	}
	got := readText(t, topic)
	for i := range int32(partitions) {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("partition %d: %d records, want %d: %s", i, len(got[i]), len(want[i]), firstDifference(got[i], want[i]))
		}
	}
}

func firstDifference(got, want []uint64) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("record %d is %d, want %d", i, got[i], want[i])
		}
	}
	return "one is longer"
}
