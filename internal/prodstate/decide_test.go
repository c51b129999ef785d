package prodstate

import (
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Tokens of a machine that was rebuilt must not equal those that a coordinator
// may still be answering.
func TestARebuiltMachineGivesOtherTokens(t *testing.T) {
	c := AppendBatch{Header: batch.Header{ProducerID: 1, Count: 1, Attributes: batch.AttrTransactional}}
	old := New(Options{})
	stale := old.Decide(0, c).Token
	rebuilt := New(Options{FirstToken: 1 << 32})
	if fresh := rebuilt.Decide(0, c).Token; fresh == stale {
		t.Fatalf("token %d was given twice", fresh)
	}
	c.Token = stale
	if d := rebuilt.Decide(0, c); d.Action != Reject || d.Code != 48 {
		t.Errorf("the stale token: %+v", d)
	}
}

func TestDecidingAndApplyingABatchAllocatesNothing(t *testing.T) {
	m := New(Options{})
	c := AppendBatch{Header: batch.Header{ProducerID: 1, Count: 1}}
	base := batch.Offset(0)
	write := func() {
		if d := m.DecideBatch(1, &c); d.Action != Append {
			t.Fatalf("%+v", d)
		}
		m.Apply(base, c.Header, nil)
		base++
		c.Header.BaseSequence++
	}
	write()
	if n := testing.AllocsPerRun(100, write); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestManyOpenTransactionsEndInAnyOrder(t *testing.T) {
	m := New(Options{})
	const n = 1000
	for i := range batch.Offset(n) {
		m.Apply(i, batch.Header{ProducerID: batch.ProducerID(i), Count: 1, Attributes: batch.AttrTransactional}, nil)
	}
	end := batch.Offset(n)
	for i := range batch.ProducerID(n) {
		pid := (i*7 + 3) % n
		h := batch.Header{ProducerID: pid, Attributes: batch.AttrControl | batch.AttrTransactional}
		ended := m.Apply(end, h, &Marker{Type: batch.ControlAbort})
		end++
		if ended == nil || ended.FirstOffset != batch.Offset(pid) {
			t.Fatalf("producer %d: %+v", pid, ended)
		}
	}
	if open := m.OpenTransactions(); len(open) != 0 {
		t.Errorf("%d are open", len(open))
	}
	if lso := m.LastStable(end); lso != end {
		t.Errorf("last stable offset %d of %d", lso, end)
	}
}

func BenchmarkDecideAndApply(b *testing.B) {
	m := New(Options{})
	for pid := range batch.ProducerID(1000) {
		m.Apply(0, batch.Header{ProducerID: pid, Count: 1}, nil)
	}
	c := AppendBatch{Header: batch.Header{ProducerID: 500, BaseSequence: 1, Count: 1}}
	b.ReportAllocs()
	for b.Loop() {
		m.DecideBatch(1, &c)
		m.Apply(1, c.Header, nil)
		c.Header.BaseSequence = (c.Header.BaseSequence + 1) & (1<<31 - 1)
	}
}
