package txn

import (
	"fmt"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// initWant is what a row of §3.3 says.
type initWant struct {
	code  int16
	pid   batch.ProducerID
	epoch batch.Epoch
	last  batch.Epoch
	fresh bool // pid is a new producer id
	fence bool
}

// initRow reads §3.3's table from top to bottom; md is the state before.
func initRow(md metadata, c Init) initWant {
	given := c.ProducerID != -1
	exhausted := md.epoch >= 32766
	isCurrent := c.Epoch == md.epoch
	switch {
	// pid given, and current epoch ≠ −1, pid ≠ current, and not (pid =
	// previousPid with given epoch ≥ 32766) | 90
	case given && c.ProducerID != md.producerID && !(c.ProducerID == md.previousID && c.Epoch >= 32766):
		return initWant{code: 90}
	// PrepareCommit / PrepareAbort | 51; client retries
	case md.state == PrepareCommit || md.state == PrepareAbort:
		return initWant{code: 51}
	// Ongoing | fence: start abort at epoch+1 (never revealed), reply 51
	case md.state == Ongoing:
		return initWant{code: 51, fence: true}
	// Empty/Complete*, epoch ≥ 32766, and no epoch given or it equals current
	// | new pid, epoch 0, previousPid = old, lastEpoch = old if one was given
	case exhausted && !given:
		return initWant{fresh: true, epoch: 0, last: -1}
	case exhausted && isCurrent:
		return initWant{fresh: true, epoch: 0, last: md.epoch}
	// …, no pid given | epoch+1, lastEpoch −1
	case !given:
		return initWant{pid: md.producerID, epoch: md.epoch + 1, last: -1}
	// …, given = current (or current = −1) | epoch+1, lastEpoch = old
	case isCurrent:
		return initWant{pid: md.producerID, epoch: md.epoch + 1, last: md.epoch}
	// …, given = lastEpoch | retry: return current pair, no bump
	// (Epoch 32767 is reserved for fencing; clients never get it.)
	case c.Epoch == md.lastEpoch && md.epoch == 32767:
		return initWant{fresh: true, epoch: 0, last: c.Epoch}
	case c.Epoch == md.lastEpoch:
		return initWant{pid: md.producerID, epoch: md.epoch, last: md.lastEpoch}
	// …, otherwise | 90
	default:
		return initWant{code: 90}
	}
}

func TestInitProducerIdFollowsTheTable(t *testing.T) {
	epochs := []batch.Epoch{0, 1, 4, 5, 32765, 32766, 32767}
	type pair struct {
		pid   batch.ProducerID
		epoch batch.Epoch
	}
	pairs := []pair{{-1, -1}}
	for _, pid := range []batch.ProducerID{5, 6, 7} {
		for _, e := range epochs {
			pairs = append(pairs, pair{pid, e})
		}
	}
	for _, state := range allStates {
		for _, at := range epochs {
			for _, last := range []batch.Epoch{-1, 4, 32766} {
				for _, previous := range []batch.ProducerID{6, 7} {
					for _, p := range pairs {
						md := stateAt(state, at)
						md.lastEpoch, md.previousID = last, previous
						c := Init{TransactionalID: "a", TimeoutMs: 1234, ProducerID: p.pid, Epoch: p.epoch, Version: 5}
						name := fmt.Sprintf("%s ← %d/%d", formatMetadata(md), p.pid, p.epoch)
						checkInit(t, name, md, c, initRow(md, c))
					}
				}
			}
		}
	}
}

func checkInit(t *testing.T, name string, md metadata, c Init, want initWant) {
	t.Helper()
	b := newBench(t)
	b.seed("a", md)
	c.Token = b.token()
	if want.fresh {
		want.pid = b.nextID
	}
	eff := b.do(c)
	r := onlyReply(t, eff)
	now := b.md("a")
	switch {
	case r.Code != want.code:
		t.Errorf("%s: code %d, want %d", name, r.Code, want.code)
	case want.fence:
		if now.state != PrepareAbort || now.epoch != min(md.epoch, 32766)+1 || now.lastEpoch != md.epoch ||
			len(eff.Markers) != 1 || eff.Markers[0].Epoch != now.epoch || eff.Markers[0].Commit || !eff.Markers[0].TV2 ||
			(now.nextID == 1000) != (md.epoch >= 32766) {
			t.Errorf("%s: fenced by\n%s", name, formatEffects(eff))
		}
	case want.code != 0:
		if len(eff.Records) > 0 || r.ProducerID != -1 || r.Epoch != -1 {
			t.Errorf("%s: refused with\n%s", name, formatEffects(eff))
		}
	case r.ProducerID != want.pid || r.Epoch != want.epoch || now.lastEpoch != want.last ||
		now.state != Empty || now.producerID != want.pid || now.epoch != want.epoch ||
		now.startMs != -1 || len(now.partitions) != 0 || now.timeoutMs != 1234:
		t.Errorf("%s: granted\n%swant %+v", name, formatEffects(eff), want)
	}
}

func TestInitProducerIdForAnUnknownIdStartsAtEpochZero(t *testing.T) {
	for _, p := range [][2]int64{{-1, -1}, {7, 5}, {7, 0}, {7, 32766}} {
		b := newBench(t)
		r := onlyReply(t, b.do(Init{TransactionalID: "a", TimeoutMs: 1, ProducerID: batch.ProducerID(p[0]), Epoch: batch.Epoch(p[1])}))
		if r.Code != 0 || r.ProducerID != 1000 || r.Epoch != 0 || b.md("a").lastEpoch != -1 {
			t.Errorf("given %v: %+v", p, r)
		}
	}
}

// addRow reads §3.4's order of checks; md is at 7/5 with t-0 and t-1, and the
// request is for t-0 and t-9, or for t-0 alone.
func addRow(state State, c AddPartitions) (code int16, writes bool) {
	one := len(c.Partitions) == 1
	switch {
	case c.ProducerID != 7:
		return 49, false
	case c.Epoch != 5:
		return 90, false
	case state == PrepareCommit || state == PrepareAbort:
		return 51, false
	case c.VerifyOnly:
		return 0, false
	case state == Ongoing && one:
		return 0, false
	}
	return 0, true
}

func TestAddPartitionsFollowsTheOrderOfChecks(t *testing.T) {
	requests := [][]batch.TopicPartition{tps("t-0"), tps("t-9", "t-0")}
	for _, state := range allStates {
		for _, pid := range []batch.ProducerID{6, 7} {
			for _, epoch := range []batch.Epoch{4, 5, 6} {
				for _, partitions := range requests {
					for flags := range 4 {
						c := AddPartitions{TransactionalID: "a", ProducerID: pid, Epoch: epoch, Partitions: partitions,
							VerifyOnly: flags&1 != 0, TV2: flags&2 != 0}
						checkAdd(t, fmt.Sprintf("%v %+v", state, c), state, c)
					}
				}
			}
		}
	}
}

func checkAdd(t *testing.T, name string, state State, c AddPartitions) {
	t.Helper()
	b := newBench(t)
	md := stateAt(state, 5)
	b.seed("a", md)
	c.Token = b.token()
	eff := b.do(c)
	r := onlyReply(t, eff)
	code, writes := addRow(state, c)
	if r.Code != code || (len(eff.Records) == 1) != writes || len(eff.Markers) != 0 || len(r.Partitions) != len(c.Partitions) {
		t.Errorf("%s:\n%swant code %d, a record %v", name, formatEffects(eff), code, writes)
		return
	}
	for _, p := range r.Partitions {
		want := code
		if code == 0 && c.VerifyOnly && !(state == Ongoing && p.Partition == 0) {
			want = 120
		}
		if p.Code != want {
			t.Errorf("%s: %s, want %d for %v", name, formatEffects(eff), want, p)
		}
	}
	if !writes {
		return
	}
	now := b.md("a")
	wantStart, wantTV := md.startMs, int16(0)
	if state != Ongoing {
		wantStart = b.nowMs
	}
	if c.TV2 {
		wantTV = 2
	}
	if now.state != Ongoing || now.startMs != wantStart || now.clientVersion != wantTV || !now.sameProducer(md) ||
		!equalTPs(now.partitions, union(md.partitions, c.Partitions)) {
		t.Errorf("%s: now %s", name, formatMetadata(now))
	}
}

func TestAddPartitionsOfAnUnknownIdIs49(t *testing.T) {
	for _, verify := range []bool{false, true} {
		b := newBench(t)
		r := onlyReply(t, b.do(AddPartitions{TransactionalID: "a", Partitions: tps("t-0"), VerifyOnly: verify}))
		if r.Code != 49 || r.Partitions[0].Code != 49 {
			t.Errorf("verify=%v: %+v", verify, r)
		}
	}
	b := newBench(t)
	for _, v := range []int16{0, 4, 5} {
		if r := onlyReply(t, b.do(EndTxn{TransactionalID: "a", Version: v})); r.Code != 49 {
			t.Errorf("EndTxn v%d: %+v", v, r)
		}
	}
}

func TestWireCodeOfAFencedProducer(t *testing.T) {
	for _, c := range []struct{ key, first90 int16 }{{22, 4}, {24, 2}, {25, 2}, {26, 2}} {
		for v := range int16(6) {
			want := int16(90)
			if v < c.first90 {
				want = 47
			}
			if got := WireCode(c.key, v, 90); got != want {
				t.Errorf("api %d v%d: %d, want %d", c.key, v, got, want)
			}
			if got := WireCode(c.key, v, 51); got != 51 {
				t.Errorf("api %d v%d: 51 became %d", c.key, v, got)
			}
		}
	}
}
