package prodstate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// The scripts in testdata drive a machine over a log that exists only as its end
// offset. Commands, with their arguments and defaults:
//
//	new [start=0] [skip-verification]       a new machine and log
//	batch pid= epoch= seq= [n=1] [txn] [tv2] [coordinator] [token=] [ts=now]
//	                                        decide, and append if so decided; "token=ok" answers
//	                                        Verify by asking again with the token
//	stored pid= epoch= seq= [n=1] [txn]     append without deciding, as a replay does
//	marker pid= epoch= commit|abort [coordinator=0] [tv2]
//	stored-marker …                         the same without deciding
//	empty-marker pid= epoch=                a control batch that compaction emptied
//	seek offset=                            move the log's end
//	clock ms= · expire after= · hw offset= · log-start offset=
//	lso [hw=log end] · state · open · restart [snapshot-only]
//	decide-only …                           like batch, but nothing is appended
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{}
		s.reset(Options{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type script struct {
	m     *Machine
	end   batch.Offset
	nowMs int64
}

func (s *script) reset(opts Options) {
	s.m, s.end, s.nowMs = New(opts), opts.LogStart, 1000
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		s.reset(Options{LogStart: batch.Offset(number(t, d, "start", 0)), SkipVerification: d.HasArg("skip-verification")})
		return "ok\n"
	case "batch", "decide-only":
		return s.batch(t, d)
	case "stored":
		h := s.header(t, d)
		s.m.Apply(s.end, h, nil)
		s.end += batch.Offset(h.Count)
		return fmt.Sprintf("offset %d\n", s.end-batch.Offset(h.Count))
	case "marker", "stored-marker":
		return s.marker(t, d)
	case "empty-marker":
		h := s.header(t, d)
		h.Attributes, h.Count = batch.AttrControl|batch.AttrTransactional, 0
		s.m.Apply(s.end, h, nil)
		s.end++
		return fmt.Sprintf("offset %d\n", s.end-1)
	case "seek":
		s.end = batch.Offset(number(t, d, "offset", 0))
		return "ok\n"
	case "clock":
		s.nowMs = number(t, d, "ms", 0)
		return "ok\n"
	case "expire":
		return fmt.Sprintf("%d expired\n", s.m.Expire(s.nowMs, number(t, d, "after", 0)))
	case "hw":
		s.m.AdvanceHighWatermark(batch.Offset(number(t, d, "offset", 0)))
		return "ok\n"
	case "log-start":
		s.m.SetLogStart(batch.Offset(number(t, d, "offset", 0)))
		return "ok\n"
	case "lso":
		return fmt.Sprintf("%d\n", s.m.LastStable(batch.Offset(number(t, d, "hw", int64(s.end)))))
	case "state":
		return s.state()
	case "open":
		var out strings.Builder
		for _, o := range s.m.OpenTransactions() {
			fmt.Fprintf(&out, "pid %d epoch %d since %d, last at %d ms\n", o.ProducerID, o.Epoch, o.FirstOffset, o.LastTimestampMs)
		}
		return orNone(out.String())
	case "restart":
		m, err := Restore(s.m.Snapshot(), Options{LogStart: s.m.logStart, FirstToken: s.m.nextToken})
		if err != nil {
			t.Fatal(err)
		}
		s.m = m
		s.m.AdvanceHighWatermark(s.end)
		return s.state()
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "none\n"
	}
	return s
}

func number(t *testing.T, d *datadriven.TestData, name string, otherwise int64) int64 {
	t.Helper()
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) == 1 {
			n, err := strconv.ParseInt(a.Vals[0], 10, 64)
			if err != nil {
				d.Fatalf(t, "%s: %v", name, err)
			}
			return n
		}
	}
	return otherwise
}

func (s *script) header(t *testing.T, d *datadriven.TestData) batch.Header {
	n := number(t, d, "n", 1)
	h := batch.Header{
		ProducerID:      batch.ProducerID(number(t, d, "pid", -1)),
		Epoch:           batch.Epoch(number(t, d, "epoch", -1)),
		BaseSequence:    int32(number(t, d, "seq", -1)),
		Count:           int32(n),
		LastOffsetDelta: int32(n - 1),
		MaxTimestampMs:  number(t, d, "ts", s.nowMs),
	}
	if d.HasArg("txn") {
		h.Attributes |= batch.AttrTransactional
	}
	return h
}

func (s *script) batch(t *testing.T, d *datadriven.TestData) string {
	c := AppendBatch{Header: s.header(t, d), TV2: d.HasArg("tv2"), Coordinator: d.HasArg("coordinator")}
	verified := false
	for _, a := range d.CmdArgs {
		verified = verified || a.Key == "token" && a.Vals[0] == "ok"
	}
	if !verified {
		c.Token = Token(number(t, d, "token", 0))
	}
	decision := s.m.Decide(s.nowMs, c)
	if decision.Action == Verify && verified {
		c.Token = decision.Token
		decision = s.m.Decide(s.nowMs, c)
	}
	if decision.Action == Append && d.Cmd == "batch" {
		s.m.Apply(s.end, c.Header, nil)
		s.end += batch.Offset(c.Header.Count)
		return fmt.Sprintf("append at %d\n", s.end-batch.Offset(c.Header.Count))
	}
	return describe(decision)
}

func describe(d Decision) string {
	switch d.Action {
	case Duplicate:
		return fmt.Sprintf("duplicate of %d-%d at %d ms\n", d.BaseOffset, d.LastOffset, d.TimestampMs)
	case Verify:
		return fmt.Sprintf("verify token=%d\n", d.Token)
	case Reject:
		return fmt.Sprintf("reject %d: %s\n", d.Code, d.Message)
	}
	return d.Action.String() + "\n"
}

func (s *script) marker(t *testing.T, d *datadriven.TestData) string {
	h := s.header(t, d)
	h.Attributes = batch.AttrControl | batch.AttrTransactional
	marker := Marker{CoordinatorEpoch: int32(number(t, d, "coordinator", 0)), TV2: d.HasArg("tv2")}
	if d.HasArg("commit") {
		marker.Type = batch.ControlCommit
	}
	if d.Cmd == "marker" {
		decision := s.m.Decide(s.nowMs, AppendMarker{
			ProducerID: h.ProducerID, Epoch: h.Epoch, CoordinatorEpoch: marker.CoordinatorEpoch, TV2: marker.TV2,
		})
		if decision.Action != Append {
			return describe(decision)
		}
	}
	ended := s.m.Apply(s.end, h, &marker)
	s.end++
	if ended == nil {
		return fmt.Sprintf("append at %d\n", s.end-1)
	}
	return fmt.Sprintf("append at %d; ended %d-%d aborted=%t lso=%d\n",
		s.end-1, ended.FirstOffset, ended.LastOffset, ended.Aborted, ended.LastStableOffset)
}

func (s *script) state() string {
	var out strings.Builder
	for _, p := range s.m.Describe() {
		fmt.Fprintf(&out, "pid %d epoch %d last-seq %d last-offset %d coordinator %d txn %d at %d ms",
			p.ProducerID, p.Epoch, p.LastSequence, p.LastDataOffset, p.CoordinatorEpoch, p.TxnStartOffset, p.LastTimestampMs)
		e := s.m.producers[p.ProducerID]
		for _, b := range e.batches[:e.count] {
			fmt.Fprintf(&out, " [%d-%d@%d]", b.baseSequence(), b.lastSequence, b.firstOffset())
		}
		out.WriteByte('\n')
	}
	return orNone(out.String())
}
