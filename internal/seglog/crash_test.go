package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// The power-cut test: a scripted workload runs over a file system that can
// crash before any mutating operation. At every such point, whatever the
// policy of the crash, the recovered store must equal the script's history up
// to some operation, and that operation must not lie before one that was
// reported durable.

var errPowerCut = errors.New("the power is cut")

// histOp is one operation of the script, in LSN order.
type histOp struct {
	log     LogID
	raw     []byte      // an append
	start   int64       // a SetStart, if raw is nil and abort is too
	aborted *AbortedTxn // an AppendAborted
}

// model is what a store must hold after some operations.
type model struct {
	batches map[LogID][][]byte
	start   map[LogID]int64
	aborted map[LogID][]AbortedTxn
}

func newModel() *model {
	return &model{batches: map[LogID][][]byte{}, start: map[LogID]int64{}, aborted: map[LogID][]AbortedTxn{}}
}

func (m *model) apply(op histOp) {
	switch {
	case op.raw != nil:
		m.batches[op.log] = append(m.batches[op.log], op.raw)
	case op.aborted != nil:
		m.aborted[op.log] = append(m.aborted[op.log], *op.aborted)
	default:
		m.start[op.log] = op.start
	}
}

func lastOffset(raw []byte) int64 { h, _ := parseHeader(raw); return h.last }

func (m *model) end(id LogID) int64 {
	if b := m.batches[id]; len(b) > 0 {
		return lastOffset(b[len(b)-1]) + 1
	}
	return 0
}

// snapshot is the producer snapshot the script writes at the end of a log: a
// digest of everything before, so that a wrong one is recognised.
func (m *model) snapshot(id LogID, off int64) []byte {
	crc := uint32(0)
	for _, b := range m.batches[id] {
		if lastOffset(b) < off {
			crc = crc32.Update(crc, castagnoli, b)
		}
	}
	return fmt.Appendf(nil, "state of log %d at %d: %08x", id, off, crc)
}

// compare tells how a store differs from the model.
func (m *model) compare(s *Store, logs []LogSpec) error {
	for _, spec := range logs {
		l, id := s.Log(spec.ID), spec.ID
		if int64(l.End()) != m.end(id) || int64(l.Start()) != m.start[id] || l.DurableEnd() != l.End() {
			return fmt.Errorf("log %d is [%d, %d), durable to %d; want [%d, %d)", id, l.Start(), l.End(), l.DurableEnd(), m.start[id], m.end(id))
		}
		got, err := contents(l)
		if err != nil {
			return fmt.Errorf("log %d: %w", id, err)
		}
		want := slices.DeleteFunc(slices.Clone(m.batches[id]), func(b []byte) bool { return lastOffset(b) < m.start[id] })
		if !slices.EqualFunc(got, want, bytes.Equal) {
			return fmt.Errorf("log %d has %d batches, want %d, or they differ", id, len(got), len(want))
		}
		if err := m.compareAborted(l); err != nil {
			return err
		}
		for _, off := range l.ProducerSnapshots() {
			data, err := l.ReadProducerSnapshot(off)
			if err != nil || off > l.End() || !bytes.Equal(data, m.snapshot(id, int64(off))) {
				return fmt.Errorf("log %d: snapshot at %d holds %q, want %q, %v", id, off, data, m.snapshot(id, int64(off)), err)
			}
		}
	}
	return nil
}

func (m *model) compareAborted(l *Log) error {
	// What ended below the start may be gone, with its segment or without.
	got, err := l.AbortedIn(l.Start(), math.MaxInt64)
	if err != nil {
		return err
	}
	want := slices.DeleteFunc(slices.Clone(m.aborted[l.spec.ID]), func(t AbortedTxn) bool { return t.LastOffset < l.Start() })
	if !slices.Equal(got, want) {
		return fmt.Errorf("log %d: aborted %v, want %v", l.spec.ID, got, want)
	}
	return nil
}

// life is one run of the script.
type life struct {
	s     *Store
	m     *model
	ops   []histOp
	acked *atomic.Uint64 // operations reported durable

	mu    sync.Mutex
	specs []LogSpec // the owner's record of its logs
}

func (f *life) do(op histOp, run func() error) error {
	f.mu.Lock()
	f.ops = append(f.ops, op)
	f.mu.Unlock()
	if err := run(); err != nil {
		return err
	}
	f.m.apply(op)
	return nil
}

func (f *life) setSpecs(specs []LogSpec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = specs
}

func (f *life) append(id LogID, n, payload int) error {
	l := f.s.Log(id)
	raw, h := makeBatch(int64(l.End()), n, int64(len(f.ops)), payload)
	return f.do(histOp{log: id, raw: raw}, func() error {
		_, rolled, err := l.Append(raw, h)
		if err == nil && rolled {
			err = l.WriteProducerSnapshot(h.BaseOffset, f.m.snapshot(id, int64(h.BaseOffset)))
		}
		return err
	})
}

func (f *life) abort(id LogID) error {
	l := f.s.Log(id)
	t := AbortedTxn{ProducerID: 5, FirstOffset: max(l.End()-4, 0), LastOffset: l.End() - 1, LastStableOffset: l.End() - 1}
	return f.do(histOp{log: id, aborted: &t}, func() error { return l.AppendAborted(t) })
}

func (f *life) setStart(id LogID, off batch.Offset) error {
	l := f.s.Log(id)
	return f.do(histOp{log: id, start: int64(off)}, func() error { _, err := l.SetStart(off); return err })
}

func (f *life) wait() error { return f.s.Wait(context.Background(), f.s.AppendedLSN()) }

// script is the workload; it ends with the first error.
func (f *life) script(rounds int) error {
	for i := range rounds {
		steps := []func() error{
			func() error { return f.append(1, 1+i%4, 120) },
			func() error { return f.append(7, 2, 90+i) },
			func() error { return f.append(1, 3, 300) },
		}
		if f.s.Log(2) != nil {
			steps = append(steps, func() error { return f.append(2, 1, 70) })
		}
		if f.s.Log(9) != nil {
			steps = append(steps, func() error { return f.append(9, 1, 1500) })
		}
		switch i % 6 {
		case 1:
			steps = append(steps, func() error { return f.abort(1) })
		case 2:
			steps = append(steps, f.wait)
		case 3:
			steps = append(steps, func() error { return f.setStart(1, f.s.Log(1).End()-5) })
		case 4:
			steps = append(steps, f.s.Checkpoint, func() error {
				l := f.s.Log(7)
				return l.WriteProducerSnapshot(l.End(), f.m.snapshot(7, int64(l.End())))
			})
		}
		if i >= 11 && i%4 == 3 { // the index of a segment that a checkpoint knows already
			steps = append(steps, func() error { return f.abort(9) })
		}
		switch i {
		case 4: // a log comes, with the owner's record first
			spec := LogSpec{ID: 9, Topic: "late", Partition: 0, SegmentBytes: 1 << 20}
			f.setSpecs(append(slices.Clone(f.specs), spec))
			steps = append(steps, func() error { _, err := f.s.Create(spec); return err })
		case 8: // one goes, and another takes its name
			steps = append(steps, func() error {
				f.setSpecs(slices.DeleteFunc(slices.Clone(f.specs), func(s LogSpec) bool { return s.ID == 2 }))
				return f.s.Delete(2)
			}, func() error {
				spec := LogSpec{ID: 10, Topic: "a", Partition: 1}
				f.setSpecs(append(slices.Clone(f.specs), spec))
				_, err := f.s.Create(spec)
				return err
			}, func() error { return f.append(10, 2, 40) })
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		if i%2 == 0 {
			if err := f.wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// crashSite is everything known at the moment of a power cut.
type crashSite struct {
	op    vfs.Op
	mem   map[string]*vfs.Mem
	acked uint64
	specs []LogSpec
}

func crashPolicies(seed uint64) map[string]vfs.CrashPolicy {
	return map[string]vfs.CrashPolicy{
		"drop": vfs.DropUnsynced, "keep": vfs.KeepUnsynced,
		"torn1": vfs.Torn(2 * seed), "torn2": vfs.Torn(2*seed + 1),
	}
}

// runUntil runs the script and cuts the power before operation k; site is nil
// if the script has fewer.
func runUntil(t *testing.T, k int64, tweak func(*Options)) (*life, *crashSite) {
	t.Helper()
	mem := vfs.NewMem()
	must(t, mem.MkdirAll(testDir))
	must(t, mem.SyncDir("/"))
	fsys := &vfs.Faulty{FS: mem}
	f := &life{m: newModel(), acked: &atomic.Uint64{}, specs: specs}
	var site *crashSite
	var dead atomic.Bool
	var once sync.Mutex
	fsys.Hook = func(op vfs.Op) error {
		once.Lock()
		defer once.Unlock()
		if op.N == k {
			site = &crashSite{op: op, mem: map[string]*vfs.Mem{}, acked: f.acked.Load()}
			for name, p := range crashPolicies(uint64(k)) {
				site.mem[name] = mem.CrashClone(p)
			}
			f.mu.Lock()
			site.specs = f.specs
			f.mu.Unlock()
			dead.Store(true)
		}
		if dead.Load() {
			return errPowerCut
		}
		return nil
	}
	opts := small(fsys)
	opts.OnDurable = func(lsn LSN) { f.acked.Store(uint64(lsn)) }
	if tweak != nil {
		tweak(&opts)
	}
	s, err := Open(opts, specs)
	if err == nil {
		f.s = s
		err = f.script(20)
		if err == nil {
			err = s.Close()
		} else {
			s.Crash()
		}
	}
	if err != nil && !errors.Is(err, errPowerCut) {
		t.Fatalf("cut at %d: script failed by itself: %v", k, err)
	}
	once.Lock()
	defer once.Unlock()
	return f, site
}

// recovered opens a crashed directory and finds the operation up to which it
// matches the history. The caller closes the store.
func recovered(fsys vfs.FS, logs []LogSpec, ops []histOp, acked uint64) (*Store, int, *model, error) {
	s, err := Open(small(fsys), logs)
	if err != nil {
		return nil, 0, nil, err
	}
	var all []error
	for n := len(ops); n >= int(acked); n-- {
		m := newModel()
		for _, op := range ops[:n] {
			m.apply(op)
		}
		if err = m.compare(s, logs); err == nil {
			return s, n, m, nil
		}
		all = append(all, fmt.Errorf("after %d: %w", n, err))
	}
	s.Crash()
	return nil, 0, nil, fmt.Errorf("the store is no prefix of the history with the %d acknowledged of %d operations: %w", acked, len(ops), errors.Join(all...))
}

// checkSite recovers every clone of a crash, lives on, crashes and recovers again.
func checkSite(f *life, site *crashSite, thorough bool) error {
	for name, mem := range site.mem {
		if thorough {
			if err := crashInRecovery(mem, f, site); err != nil {
				return fmt.Errorf("%s, %v, then cut in recovery: %w", name, site.op, err)
			}
		}
		s, n, m, err := recovered(mem, site.specs, f.ops, site.acked)
		if err != nil {
			return fmt.Errorf("%s, cut before %v: %w", name, site.op, err)
		}
		second := &life{s: s, m: m, ops: slices.Clone(f.ops[:n]), acked: &atomic.Uint64{}, specs: site.specs}
		for i := range 6 {
			id := site.specs[i%len(site.specs)].ID
			if err := errors.Join(second.append(id, 2, 500+i), second.append(1, 1, 33)); err != nil {
				return err
			}
			if i == 3 {
				if err := second.wait(); err != nil {
					return err
				}
				second.acked.Store(uint64(len(second.ops)))
			}
		}
		for _, p := range []vfs.CrashPolicy{vfs.DropUnsynced, vfs.Torn(uint64(site.op.N))} {
			again, _, _, err := recovered(mem.CrashClone(p), site.specs, second.ops, second.acked.Load())
			if err != nil {
				return fmt.Errorf("%s, cut before %v, second life: %w", name, site.op, err)
			}
			again.Crash()
		}
		s.Crash()
	}
	return nil
}

// crashInRecovery cuts the power before every operation of a recovery.
func crashInRecovery(mem *vfs.Mem, f *life, site *crashSite) error {
	for k := int64(1); ; k++ {
		base := mem.CrashClone(vfs.KeepUnsynced)
		var cut *vfs.Mem
		fsys := &vfs.Faulty{FS: base, Hook: func(op vfs.Op) error {
			if op.N == k {
				cut = base.CrashClone(vfs.Torn(uint64(k)))
			}
			if op.N >= k {
				return errPowerCut
			}
			return nil
		}}
		s, err := Open(small(fsys), site.specs)
		if err == nil {
			s.Crash()
			return nil // the recovery has fewer operations
		}
		if !errors.Is(err, errPowerCut) {
			return err
		}
		again, _, _, err := recovered(cut, site.specs, f.ops, site.acked)
		if err != nil {
			return fmt.Errorf("recovery operation %d: %w", k, err)
		}
		again.Crash()
	}
}

func TestAPowerCutAtAnyOperationLeavesAPrefixWithEverythingAcknowledged(t *testing.T) {
	step := int64(2)
	if testing.Short() {
		step = 9
	}
	sites := 0
	for k := int64(1); ; k += step {
		f, site := runUntil(t, k, nil)
		if site == nil {
			break
		}
		sites++
		if err := checkSite(f, site, k%29 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if sites < 20 {
		t.Fatalf("only %d crash sites: the script proves nothing", sites)
	}
	t.Logf("%d crash sites", sites)
}

// The negative controls: with the guarantee broken on purpose, the same test
// must find it out.
func TestThePowerCutTestSeesABrokenGuarantee(t *testing.T) {
	for name, tweak := range map[string]func(*Options){
		"acknowledge before sync": func(o *Options) { o.Failpoints.AckBeforeSync = true },
		"checkpoint before sync":  func(o *Options) { o.Failpoints.CheckpointBeforeSync = true },
		"mode none":               func(o *Options) { o.Mode = ModeNone },
	} {
		t.Run(name, func(t *testing.T) {
			for k := int64(1); ; k++ {
				f, site := runUntil(t, k, tweak)
				if site == nil {
					t.Fatal("no crash site found anything: the test is blind")
				}
				if err := checkSite(f, site, false); err != nil {
					t.Logf("as it must: %v", err)
					return
				}
			}
		})
	}
}
