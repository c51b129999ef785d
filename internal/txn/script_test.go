package txn

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// TestScripts runs the scenarios in testdata/scripts, which are meant to be read. Time
// is shown in milliseconds since the script's start. Commands:
//
//	init id= [timeout=60000] [pid= epoch=] [2pc] [keep-prepared]
//	add|verify id= pid= epoch= tps=(t-0,…) [tv1] [wait]
//	end id= pid= epoch= commit|abort [v=5]
//	written id= pid= epoch= tps=(t-0,…) [code=0]
//	written-all [code=0]      answers all markers that are under way
//	advance ms=               moves the clock
//	tick                      and tells the next deadline
//	restart [keep=]           replays the log's first keep records, and resumes
//	seed id= state= pid= epoch= [last= previous= next= tps= tv= timeout=]
//	early-commit ms=          sets Config.EarlyCommitMs
//	ids none|some             whether producer ids can be had
//	describe id=, list [state=] [pid=] [longer=] [pattern=]
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{bench: newBench(t)}
		s.nowMs = 0
		s.stepped = func(eff Effects) { s.underWay = append(s.underWay, eff.Markers...) }
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	*bench
	underWay []MarkerBatch
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.tb = t
	switch d.Cmd {
	case "init":
		c := Init{Token: s.token(), TimeoutMs: 60_000, ProducerID: batch.NoProducerID, Epoch: batch.NoEpoch, Version: 5,
			Enable2PC: d.HasArg("2pc"), KeepPrepared: d.HasArg("keep-prepared")}
		s.scan(d, "id", &c.TransactionalID)
		s.scan(d, "timeout", &c.TimeoutMs)
		s.scan(d, "pid", &c.ProducerID)
		s.scan(d, "epoch", &c.Epoch)
		return formatEffects(s.do(c))
	case "add", "verify":
		c := AddPartitions{Token: s.token(), VerifyOnly: d.Cmd == "verify", TV2: !d.HasArg("tv1"), Wait: d.HasArg("wait"), Partitions: s.scanTPs(d)}
		s.scan(d, "id", &c.TransactionalID)
		s.scan(d, "pid", &c.ProducerID)
		s.scan(d, "epoch", &c.Epoch)
		return formatEffects(s.do(c))
	case "end":
		c := EndTxn{Token: s.token(), Commit: d.HasArg("commit"), Version: 5}
		if c.Commit == d.HasArg("abort") {
			d.Fatalf(t, "commit or abort?")
		}
		s.scan(d, "id", &c.TransactionalID)
		s.scan(d, "pid", &c.ProducerID)
		s.scan(d, "epoch", &c.Epoch)
		s.scan(d, "v", &c.Version)
		return formatEffects(s.do(c))
	case "written":
		mk := MarkerBatch{Partitions: s.scanTPs(d)}
		var code int16
		s.scan(d, "id", &mk.TransactionalID)
		s.scan(d, "pid", &mk.ProducerID)
		s.scan(d, "epoch", &mk.Epoch)
		s.scan(d, "code", &code)
		return formatEffects(s.do(written(mk, code)))
	case "written-all":
		var code int16
		s.scan(d, "code", &code)
		batches, out := s.underWay, ""
		s.underWay = nil
		for _, mk := range batches {
			out += formatEffects(s.do(written(mk, code)))
		}
		return out
	}
	return s.runOther(t, d)
}

func (s *script) runOther(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "advance":
		var ms int64
		s.scan(d, "ms", &ms)
		s.nowMs += ms
		return fmt.Sprintf("now %d\n", s.nowMs)
	case "tick":
		eff := s.do(Tick{})
		return formatEffects(eff) + fmt.Sprintf("next %d\n", eff.DeadlineMs)
	case "restart":
		keep := len(s.log)
		s.scan(d, "keep", &keep)
		s.underWay = nil
		return formatEffects(s.restart(keep))
	case "early-commit":
		s.scan(d, "ms", &s.m.cfg.EarlyCommitMs)
		return ""
	case "ids":
		s.noIDs = d.HasArg("none")
		return ""
	case "seed":
		return s.runSeed(t, d)
	case "describe":
		var id string
		s.scan(d, "id", &id)
		desc, code := s.m.Describe(id)
		if code != 0 {
			return fmt.Sprintf("code %d\n", code)
		}
		return fmt.Sprintf("%v %d/%d timeout=%d start=%d [%s] stalled=[%s]\n", desc.State, desc.ProducerID, desc.Epoch,
			desc.TimeoutMs, desc.StartMs, formatTPs(desc.Partitions), formatResults(desc.Stalled))
	case "list":
		return s.runList(t, d)
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return ""
}

func (s *script) runSeed(t *testing.T, d *datadriven.TestData) string {
	var id, state string
	md := newMetadata(0, 60_000, s.nowMs)
	s.scan(d, "id", &id)
	s.scan(d, "state", &state)
	s.scan(d, "pid", &md.producerID)
	md.previousID = md.producerID
	s.scan(d, "epoch", &md.epoch)
	s.scan(d, "last", &md.lastEpoch)
	s.scan(d, "previous", &md.previousID)
	s.scan(d, "next", &md.nextID)
	s.scan(d, "tv", &md.clientVersion)
	s.scan(d, "timeout", &md.timeoutMs)
	md.partitions = s.scanTPs(d)
	var ok bool
	if md.state, ok = StateNamed(state); !ok {
		d.Fatalf(t, "unknown state %q", state)
	}
	if md.state != Empty {
		md.startMs = s.nowMs
	}
	s.seed(id, md)
	return formatMetadata(md) + "\n"
}

func (s *script) runList(_ *testing.T, d *datadriven.TestData) string {
	f := Filter{MinDurationMs: -1}
	var state string
	pid := batch.NoProducerID
	s.scan(d, "state", &state)
	s.scan(d, "pid", &pid)
	s.scan(d, "longer", &f.MinDurationMs)
	s.scan(d, "pattern", &f.IDPattern)
	if state != "" {
		f.States = []string{state}
	}
	if pid != batch.NoProducerID {
		f.ProducerIDs = []batch.ProducerID{pid}
	}
	listed, unknown, code := s.m.List(s.nowMs, f)
	if code != 0 {
		return fmt.Sprintf("code %d\n", code)
	}
	out := ""
	for _, l := range listed {
		out += fmt.Sprintf("%s %d %v\n", l.TransactionalID, l.ProducerID, l.State)
	}
	for _, name := range unknown {
		out += fmt.Sprintf("unknown state %s\n", name)
	}
	if out == "" {
		return "none\n"
	}
	return out
}

// scan reads an argument if the script gives it.
func (s *script) scan(d *datadriven.TestData, key string, to any) {
	arg, ok := d.Arg(key)
	if !ok {
		return
	}
	if _, err := fmt.Sscan(arg.Vals[0], to); err != nil {
		s.tb.Fatalf("%s: %s: %v", d.Pos, key, err)
	}
}

func (s *script) scanTPs(d *datadriven.TestData) []batch.TopicPartition {
	arg, ok := d.Arg("tps")
	if !ok {
		return nil
	}
	return tps(arg.Vals...)
}
