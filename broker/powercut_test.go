package broker

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// The power cut: one run of a few transactions is stopped at every write and
// every sync, the disk as it would be then is opened by a second broker, and
// the whole promise is checked there. A broken protection (Faults) must turn
// the same check red.

// facts are what the client was told before the cut.
type facts struct {
	mu sync.Mutex
	// txns[i] is what transaction i is known to be.
	txns []txnFacts
}

type txnFacts struct {
	commit      bool    // what the client asks for
	produced    [2]bool // its batch in partition 0, 1 was acknowledged
	ended       bool    // EndTxn was answered
	offsetAfter int64
}

func (f *facts) set(change func(*facts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *facts) copy() []txnFacts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.txns)
}

// scriptedTransactions is the life of the client: transaction i writes "i" to
// both partitions and offset i+1 to the group; every third one is aborted.
func scriptedTransactions(c *client, f *facts, n int) {
	p := c.init("app")
	for i := range n {
		commit := i%3 != 2
		f.set(func(f *facts) { f.txns = append(f.txns, txnFacts{commit: commit, offsetAfter: int64(i + 1)}) })
		c.mustProduce(p, "in", 0, 0, fmt.Sprint(i))
		f.set(func(f *facts) { f.txns[i].produced[0] = true })
		c.mustProduce(p, "in", 1, 0, fmt.Sprint(i), fmt.Sprint(i)+"+")
		f.set(func(f *facts) { f.txns[i].produced[1] = true })
		wantCode(c.t, "offsets", c.sendOffsets(p, "g", "in", 0, int64(i+1)), nil)
		p = c.end(p, commit)
		f.set(func(f *facts) { f.txns[i].ended = true })
	}
}

// probe is a testing.TB whose failures are findings. Its owner runs on a
// goroutine of its own, which Fatalf ends.
type probe struct {
	testing.TB
	found []string
}

func (p *probe) Helper() {}

func (p *probe) Fatalf(format string, args ...any) {
	p.found = append(p.found, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// checkPromise opens the disk after the cut and returns what is wrong.
func checkPromise(t testing.TB, fs *vfs.Mem, known []txnFacts, faults Faults) []string {
	p := &probe{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.found = append(p.found, promiseBroken(p, fs, known, faults)...)
	}()
	<-done
	return p.found
}

func promiseBroken(t testing.TB, fs *vfs.Mem, known []txnFacts, faults Faults) (wrong []string) {
	cfg := testConfig(fs)
	cfg.Faults = faults
	b, err := Open(context.Background(), cfg)
	if err != nil {
		return []string{fmt.Sprintf("the broker does not start: %v", err)}
	}
	defer b.Crash()
	nc, err := b.Dial(context.Background())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer nc.Close()
	c := &client{t: t, nc: nc}
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }

	// The log holds what was acknowledged, before any recovery of the client.
	for partition := range 2 {
		raw := c.read("in", int32(partition), false)
		for i, k := range known {
			if k.produced[partition] && !slices.Contains(raw, fmt.Sprint(i)) {
				bad("transaction %d: its acknowledged batch in partition %d is lost", i, partition)
			}
		}
	}
	// A restarted client: its init ends what the cut left open.
	p, code := c.tryInit("app")
	if code != 0 {
		bad("init after the cut: %v", kerr.ErrorForCode(code))
		return wrong
	}
	first, second := c.read("in", 0, true), c.read("in", 1, true)
	offset, code := c.committed("g", "in", 0)
	if code != 0 {
		bad("offset fetch: %v", kerr.ErrorForCode(code))
	}
	wantOffset := int64(-1)
	for i, k := range known {
		inFirst, inSecond := count(first, fmt.Sprint(i)), count(second, fmt.Sprint(i))
		switch {
		case inFirst != inSecond:
			bad("transaction %d is torn: %d times in partition 0, %d times in partition 1", i, inFirst, inSecond)
		case inFirst > 1:
			bad("transaction %d is there %d times", i, inFirst)
		case k.ended && k.commit && inFirst == 0:
			bad("transaction %d: its commit was acknowledged and is lost", i)
		case !k.commit && inFirst > 0:
			bad("transaction %d was aborted and is visible", i)
		}
		if count(second, fmt.Sprint(i)+"+") != inSecond {
			bad("transaction %d: a batch is torn", i)
		}
		if inFirst > 0 {
			wantOffset = k.offsetAfter
		}
	}
	if offset != wantOffset {
		bad("committed offset is %d, the visible records say %d", offset, wantOffset)
	}
	// And work goes on, under the same id.
	if r := c.produce(p, "in", 0, 0, "after"); r.ErrorCode != 0 {
		bad("produce after the cut: %v", kerr.ErrorForCode(r.ErrorCode))
		return wrong
	}
	if resp := call[*kmsg.EndTxnResponse](c, p.endRequest(true)); resp.ErrorCode != 0 {
		bad("commit after the cut: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	if got := c.read("in", 0, true); count(got, "after") != 1 {
		bad("a transaction committed after the cut is not visible")
	}
	return wrong
}

func count(list []string, v string) (n int) {
	for _, s := range list {
		if s == v {
			n++
		}
	}
	return n
}

// cutEverywhere runs the script once and checks a cut before every mutating
// operation, with the unsynced bytes dropped, kept and torn.
func cutEverywhere(t *testing.T, transactions int, faults Faults, wrongMax int) (cuts int, wrong []string) {
	mem := vfs.NewMem()
	var f facts
	var mu sync.Mutex
	armed := false
	fs := &vfs.Faulty{FS: mem, Hook: func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !armed || len(wrong) >= wrongMax {
			return nil
		}
		if op.Kind == vfs.OpSync {
			// Only what is durable may have been acknowledged here. Let a
			// client that was told too early hear of it.
			for range 2000 {
				runtime.Gosched()
			}
		}
		for name, policy := range map[string]vfs.CrashPolicy{
			"dropped": vfs.DropUnsynced, "kept": vfs.KeepUnsynced, "torn": vfs.Torn(uint64(op.N)),
		} {
			cuts++
			for _, w := range checkPromise(t, mem.CrashClone(policy), f.copy(), faults) {
				wrong = append(wrong, fmt.Sprintf("cut before %v, unsynced bytes %s: %s", op, name, w))
			}
		}
		return nil
	}}
	cfg := testConfig(fs)
	cfg.Faults = faults
	b := openBroker(t, cfg)
	c := dial(t, b)
	c.createTopic("in", 2)
	// The internal topics are made by their first use; their birth is not
	// part of the transaction's life.
	c.init("other")
	c.committed("g", "in", 0)
	mu.Lock()
	armed = true
	mu.Unlock()
	scriptedTransactions(c, &f, transactions)
	if err := b.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	return cuts, wrong
}

func TestPowerCutAtEveryWriteAndSync(t *testing.T) {
	n := 6
	if testing.Short() {
		n = 3
	}
	cuts, wrong := cutEverywhere(t, n, Faults{}, 20)
	t.Logf("%d power cuts", cuts)
	for _, w := range wrong {
		t.Error(w)
	}
	if cuts < 30*n {
		t.Errorf("only %d cuts: the script does not reach the disk as it should", cuts)
	}
}
