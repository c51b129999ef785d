package txn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// The tables of the broker specification, as they stand there. The tests walk
// through every cell, and through every pair of epochs and producer ids that a
// cell can stand for.

// transitionTable is §3.2 without the two states that are never persisted.
const transitionTable = `
| Empty          | Empty, CompleteCommit, CompleteAbort |
| Ongoing        | Ongoing, Empty, CompleteCommit, CompleteAbort |
| PrepareCommit  | Ongoing |
| PrepareAbort   | Ongoing; TV2 also Empty, CompleteCommit, CompleteAbort |
| CompleteCommit | PrepareCommit |
| CompleteAbort  | PrepareAbort |
`

// endTableV1 is the sentence of §3.5 for v0–4 as a table.
const endTableV1 = `
| Empty          | 48           | 48            |
| Ongoing        | PrepareAbort | PrepareCommit |
| PrepareAbort   | 51           | 48            |
| PrepareCommit  | 48           | 51            |
| CompleteAbort  | 0            | 48            |
| CompleteCommit | 48           | 0             |
`

// endTableV2 is §3.5 for v5+.
// | State | Abort Retry | Abort Cur | Commit Retry | Commit Cur |
const endTableV2 = `
| Empty          | 90 | abort + bump | 90 | 48 |
| Ongoing        | 90 | PrepareAbort + bump | 90 | PrepareCommit + bump |
| PrepareAbort   | 51 | 90 | 48 | 90 |
| PrepareCommit  | 48 | 90 | 51 | 90 |
| CompleteAbort  | 0 (return current pair) | abort + bump | 48 | 48 |
| CompleteCommit | 48 | abort + bump | 0 (return current pair) | 48 |
`

// markerTable is §3.6, with 3 as a deleted partition and the group
// coordinator's 14 to 16 as what they become.
const markerTable = `
| drop  | 0, 3, 35, 43 |
| retry | 6, 7, 14, 15, 16, 19, 20, 56 |
| stop  | 47, 52 |
| bug   | 2, 10, 18, 21 |
`

// rows splits a table into rows of trimmed cells.
func rows(table string) [][]string {
	var out [][]string
	for line := range strings.Lines(strings.TrimSpace(table)) {
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		out = append(out, cells)
	}
	return out
}

var allStates = []State{Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort}

func TestOnlyListedTransitionsAreLegal(t *testing.T) {
	for _, row := range rows(transitionTable) {
		to, ok := StateNamed(row[0])
		if !ok {
			t.Fatalf("no state %q", row[0])
		}
		v1, v2, _ := strings.Cut(row[1], "; TV2 also")
		for _, from := range allStates {
			for _, version := range []int16{0, 2} {
				legal := strings.Contains(", "+v1+",", ", "+from.String()+",") ||
					version == 2 && strings.Contains(v2+",", " "+from.String()+",")
				old := stateAt(from, 5)
				next := successor(old, to, version)
				if err := checkTransition(old, next); (err == nil) != legal {
					t.Errorf("%v after %v at version %d: legal %v, want %v (%v)", to, from, version, err == nil, legal, err)
				}
			}
		}
	}
}

// stateAt is a plausible metadata in a state at producer 7.
func stateAt(s State, epoch batch.Epoch) metadata {
	md := newMetadata(7, 60_000, 1000)
	md.previousID, md.epoch, md.state, md.startMs = 7, epoch, s, 500
	switch s {
	case Empty:
		md.startMs = -1
	case Ongoing, PrepareCommit, PrepareAbort:
		md.partitions = tps("t-0", "t-1")
	}
	return md
}

// successor steps to a state by the transition that leads there, whatever the
// state before.
func successor(md metadata, to State, version int16) metadata {
	switch to {
	case Empty:
		return md.initialise(md.producerID, md.epoch+1, md.epoch, 60_000, 2000)
	case Ongoing:
		return md.add(tps("t-2"), version, 2000)
	case PrepareCommit, PrepareAbort:
		return md.prepare(to == PrepareCommit, version, batch.NoProducerID, 2000)
	}
	next := md.complete(2000)
	next.state = to
	return next
}

func TestEndTxnVersion1FollowsTheTable(t *testing.T) {
	for _, row := range rows(endTableV1) {
		state, _ := StateNamed(row[0])
		for i, commit := range []bool{false, true} {
			for _, version := range []int16{0, 1, 2, 3, 4} {
				for epoch := batch.Epoch(3); epoch <= 7; epoch++ {
					for _, pid := range []batch.ProducerID{6, 7} {
						want := row[1+i]
						switch {
						case pid != 7:
							want = "49"
						case epoch != 5:
							want = "90"
						}
						name := fmt.Sprintf("%v v%d commit=%v %d/%d", state, version, commit, pid, epoch)
						checkEnd(t, name, stateAt(state, 5), EndTxn{ProducerID: pid, Epoch: epoch, Commit: commit, Version: version}, want)
					}
				}
			}
		}
	}
}

func TestEndTxnVersion2FollowsTheTable(t *testing.T) {
	requests := []batch.Epoch{-1, 0, 1, 4, 5, 6, 7, 32765, 32766}
	stored := []batch.Epoch{0, 1, 5, 6, 32765, 32766}
	for _, row := range rows(endTableV2) {
		state, _ := StateNamed(row[0])
		for _, at := range stored {
			for _, previous := range []batch.ProducerID{7, 6} {
				for _, pid := range []batch.ProducerID{5, 6, 7} {
					for _, epoch := range requests {
						for _, commit := range []bool{false, true} {
							md := stateAt(state, at)
							md.previousID = previous
							c := EndTxn{ProducerID: pid, Epoch: epoch, Commit: commit, Version: 5}
							name := fmt.Sprintf("%v at 7/%d (before: %d) commit=%v %d/%d", state, at, previous, commit, pid, epoch)
							checkEnd(t, name, md, c, endCellV2(row, md, c))
						}
					}
				}
			}
		}
	}
}

// endCellV2 finds the cell by §3.5's definitions of Retry and Cur.
func endCellV2(row []string, md metadata, c EndTxn) string {
	overflow := md.previousID != md.producerID && md.previousID == c.ProducerID && c.Epoch == 32766 && md.epoch == 0
	cell := 0
	switch {
	case c.ProducerID != md.producerID && !overflow:
		return "49"
	case overflow || c.Epoch >= 0 && md.epoch == c.Epoch+1:
		cell = 1
	case c.Epoch == md.epoch:
		cell = 2
	default:
		return "90"
	}
	if c.Commit {
		cell += 2
	}
	return row[cell]
}

// checkEnd decides c at md and compares all that comes of it with a cell.
func checkEnd(t *testing.T, name string, md metadata, c EndTxn, want string) {
	t.Helper()
	b := newBench(t)
	b.seed("a", md)
	c.TransactionalID, c.Token = "a", b.token()
	eff := b.do(c)
	var code int16
	bump := strings.Contains(want, "bump")
	pair := [2]int64{-1, -1}
	switch {
	case want == "abort + bump":
		wantEpoch, wantPID := md.epoch+1, md.producerID
		if md.epoch >= 32766 {
			wantEpoch, wantPID = 0, 1000
		}
		if now := b.md("a"); len(eff.Records) != 2 || len(eff.Markers) != 0 || now.state != CompleteAbort ||
			now.epoch != wantEpoch || now.producerID != wantPID {
			t.Errorf("%s: %s want %s", name, formatEffects(eff), want)
		}
		pair = [2]int64{int64(wantPID), int64(wantEpoch)}
	case strings.HasPrefix(want, "Prepare"):
		checkDecided(t, name, b, md, eff, strings.HasPrefix(want, "PrepareCommit"), bump)
		return
	case want == "0 (return current pair)":
		pair = [2]int64{int64(md.producerID), int64(md.epoch)}
	default:
		if _, err := fmt.Sscan(want, &code); err != nil {
			t.Fatalf("%s: cell %q: %v", name, want, err)
		}
	}
	r := onlyReply(t, eff)
	if r.Code != code || int64(r.ProducerID) != pair[0] || int64(r.Epoch) != pair[1] {
		t.Errorf("%s: %s want %s", name, formatEffects(eff), want)
	}
	if !bump && (len(eff.Records) > 0 || len(eff.Markers) > 0) {
		t.Errorf("%s: %s want nothing but a reply", name, formatEffects(eff))
	}
}

// checkDecided follows a decided transaction to its end.
func checkDecided(t *testing.T, name string, b *bench, md metadata, eff Effects, commit, bump bool) {
	t.Helper()
	wantMarker, wantPID, wantEpoch := md.epoch, md.producerID, md.epoch
	if bump {
		wantMarker, wantEpoch = md.epoch+1, md.epoch+1
		if md.epoch >= 32766 {
			wantPID, wantEpoch = 1000, 0
		}
	}
	if len(eff.Replies) != 0 || len(eff.Records) != 1 || len(eff.Markers) != 1 {
		t.Errorf("%s: %s want Prepare and markers only", name, formatEffects(eff))
		return
	}
	mk := eff.Markers[0]
	if mk.Epoch != wantMarker || mk.Commit != commit || mk.TV2 != bump || !equalTPs(mk.Partitions, md.partitions) {
		t.Errorf("%s: %s", name, formatEffects(eff))
	}
	r := onlyReply(t, b.do(written(mk, 0)))
	if !bump {
		wantPID, wantEpoch = -1, -1
	}
	if r.Code != 0 || r.ProducerID != wantPID || r.Epoch != wantEpoch {
		t.Errorf("%s: answered %+v", name, r)
	}
	if got := b.md("a").state; (got == CompleteCommit) != commit || !got.resting() {
		t.Errorf("%s: ended as %v", name, got)
	}
}

func TestEveryMarkerCodeIsTakenAsTheTableSays(t *testing.T) {
	want := map[int16]string{}
	for _, row := range rows(markerTable) {
		for cell := range strings.SplitSeq(row[1], ", ") {
			var code int16
			if _, err := fmt.Sscan(cell, &code); err != nil {
				t.Fatal(err)
			}
			want[code] = row[0]
		}
	}
	for code := int16(-1); code <= 140; code++ {
		b := newBench(t)
		b.seed("a", stateAt(PrepareCommit, 5))
		eff := b.m.Decide(b.nowMs, MarkersWritten{TransactionalID: "a", ProducerID: 7, Epoch: 5,
			Partitions: []PartitionResult{{parseTP("t-0"), code}, {parseTP("t-1"), 0}}})
		later := b.m.Decide(b.nowMs+b.m.cfg.MarkerRetryMs, Tick{})
		got := "?"
		switch {
		case eff.Fatal != nil:
			got = "bug"
		case len(eff.Records) == 1:
			got = "drop"
		case len(eff.Stalled) == 1 && len(later.Markers) == 0:
			got = "stop"
		case len(later.Markers) == 1 && equalTPs(later.Markers[0].Partitions, tps("t-0")):
			got = "retry"
		}
		w := want[code]
		if w == "" {
			w = "bug" // a code that no marker can get
		}
		if got != w {
			t.Errorf("code %d: %s, want %s", code, got, w)
		}
	}
}
