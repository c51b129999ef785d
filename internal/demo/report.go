package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/hanbeon/hanbeon/verify"
)

// Result is what a run found out.
type Result struct {
	verify.Report
	Outcome verify.Outcome `json:"outcome"`
	// Broken lists what is not as promised.
	Broken []string `json:"broken,omitempty"`
	Lost   int64    `json:"lost"`  // occurrences of words
	Twice  int64    `json:"twice"` // occurrences of words

	Source     string      `json:"source"`
	TextLines  int         `json:"text_lines"` // of the whole text
	Fed        int         `json:"fed_lines"`  // of them
	Seed       int64       `json:"seed"`
	Brokers    string      `json:"brokers"`
	Workers    int         `json:"workers"`
	Partitions int         `json:"partitions"`
	Stats      WorkerStats `json:"stats"`
	FeedMs     int64       `json:"feed_ms"`
	DrainMs    int64       `json:"drain_ms"`
	ProofMs    int64       `json:"proof_ms"`
}

// mark shows whether something is as it should be.
func mark(good bool) string {
	if good {
		return "ok "
	}
	return "BAD"
}

// print writes the proof and the verdict for people.
func (r Result) print(out io.Writer) {
	exact := r.Guarantee == verify.ExactlyOnceV2
	row := func(good bool, name, format string, args ...any) {
		fmt.Fprintf(out, "  %s  %-16s  %s\n", mark(good), name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "\nProof: %s and %s (%s distinct), counted again in plain Go\n",
		counted(int64(r.Fed), "line"), counted(r.Words, "word"), number(int64(r.Distinct)))
	row(r.Lines.ExactlyOnce(), "input topic", "%s: %s lost, %s twice",
		counted(r.Lines.Records, "line"), number(r.Lines.Lost), number(r.Lines.Twice))
	row(r.Sink.Final.Lost == 0 && (!exact || r.Sink.ExactlyOnce()), "sink topic", "%s at read_committed: %s lost, %s counted twice",
		counted(r.Sink.Updates, "update"), counted(r.Sink.Final.Lost, "word"), number(r.Sink.Final.Twice))
	row(!exact || r.Sink.Repeated+r.Sink.Skipped+r.Sink.Moved == 0, "every update", "1, 2, … n of each word: %s again, %s missing",
		number(r.Sink.Repeated), number(r.Sink.Skipped))
	row(r.Changelog.Final.Lost == 0 && (!exact || r.Changelog.ExactlyOnce()), "changelog", "%s for %s: %s lost, %s counted twice",
		counted(r.Changelog.Changes, "change"), counted(int64(r.Changelog.Words), "word"),
		counted(r.Changelog.Final.Lost, "word"), number(r.Changelog.Final.Twice))
	row(!exact || r.Stores.Equal(), "stores on disk", "%s: %d differ from their changelog",
		counted(int64(r.Stores.Stores), "store"), len(r.Stores.Different))
	row(r.Offsets.AtEnd(), "input offsets", "%s: %d not committed at their end",
		counted(int64(r.Offsets.Partitions), "partition"), len(r.Offsets.Behind)+len(r.Offsets.Ahead))
	for _, p := range append(r.Offsets.Behind, r.Offsets.Ahead...) {
		fmt.Fprintf(out, "       %s\n", p)
	}
	for _, e := range r.Sink.Final.Examples {
		fmt.Fprintf(out, "       %q stands %s times in the text, the sink says %s\n", e.Word, number(e.Want), number(e.Got))
	}
	r.printEvidence(out)
	r.printVerdict(out)
}

func (r Result) printEvidence(out io.Writer) {
	e := r.Evidence
	if r.Isolation.Aborted > 0 {
		fmt.Fprintf(out, "\nA read_uncommitted reader would have seen %s more: work that was thrown away and done again.\n",
			counted(r.Isolation.Aborted, "update"))
	} else {
		fmt.Fprintf(out, "\nA read_uncommitted reader would have seen the same: no update was thrown away.\n")
	}
	fmt.Fprintf(out, "What happened: %s of workers, %s of the broker, %s (%d fenced),\n  %s aborted, %s, %s sent again, %s.\n",
		counted(int64(e.WorkerKills), "kill"), counted(int64(e.BrokerKills), "kill"),
		counted(int64(e.Zombies), "zombie"), e.ZombiesFenced,
		counted(e.Aborts, "transaction"), counted(e.Fenced, "fencing"), batches(e.Retries), counted(e.Rebalances, "rebalance"))
}

func (r Result) printVerdict(out io.Writer) {
	fmt.Fprintf(out, "\n%s lost, %s counted twice.\n", counted(r.Lost, "word"), counted(r.Twice, "word"))
	switch {
	case r.Outcome == verify.OutcomeBroken:
		fmt.Fprintf(out, "VERDICT: %s was promised and NOT kept: %s.\n", r.Guarantee, strings.Join(r.Broken, ", "))
	case r.Outcome == verify.OutcomeInconclusive:
		fmt.Fprintf(out, "VERDICT: nothing was aborted, fenced or retried in this run, so it proves nothing. Try a longer --duration.\n")
	case r.Guarantee == verify.AtLeastOnce && r.Twice > 0:
		fmt.Fprintf(out, "VERDICT: at_least_once was kept: nothing is lost, and %s counted twice, as it allows. exactly_once_v2 does not.\n",
			were(r.Twice, "word"))
	case r.Guarantee == verify.AtLeastOnce:
		fmt.Fprintf(out, "VERDICT: at_least_once was kept. That nothing was counted twice this time is luck, not a promise.\n")
	default:
		fmt.Fprintf(out, "VERDICT: exactly-once was kept.\n")
	}
}

func were(n int64, noun string) string {
	if n == 1 {
		return counted(n, noun) + " was"
	}
	return counted(n, noun) + " were"
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return number(n) + " batches"
}
