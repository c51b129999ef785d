package verify

// Guarantee is a processing guarantee, by its Kafka Streams name.
type Guarantee string

// The guarantees that a run can be made under.
const (
	AtLeastOnce   Guarantee = "at_least_once"
	ExactlyOnceV2 Guarantee = "exactly_once_v2"
)

// Evidence counts what happened during a run that could have broken the
// promise. Without it a clean result says nothing.
type Evidence struct {
	WorkerKills   int   `json:"worker_kills"`
	BrokerKills   int   `json:"broker_kills"`
	Zombies       int   `json:"zombies"`        // stopped past the session timeout, then continued
	ZombiesFenced int   `json:"zombies_fenced"` // of those, the ones that were seen to be refused
	Fenced        int64 `json:"fenced"`         // refusals that workers reported, zombies' included
	Aborts        int64 `json:"aborts"`         // transactions that workers aborted
	AbortedSeen   int64 `json:"aborted_seen"`   // records in the sink topic that only read_uncommitted shows
	Retries       int64 `json:"retries"`        // batches sent again by workers or by the feeder
	Rebalances    int64 `json:"rebalances"`
}

// Conclusive reports whether anything was aborted, fenced or retried. A run in
// which nothing was proves nothing.
func (e Evidence) Conclusive() bool {
	return e.Fenced > 0 || e.Aborts > 0 || e.AbortedSeen > 0 || e.Retries > 0
}

// Outcome is the verdict on a run.
type Outcome string

// The possible outcomes.
const (
	// OutcomeKept: the guarantee was kept under faults that tested it.
	OutcomeKept Outcome = "kept"
	// OutcomeBroken: words were lost or counted twice against the guarantee.
	OutcomeBroken Outcome = "broken"
	// OutcomeInconclusive: the result is clean, but nothing was aborted, fenced
	// or retried, so it proves nothing.
	OutcomeInconclusive Outcome = "inconclusive"
)

// Report is everything that was checked after a run.
type Report struct {
	Guarantee Guarantee       `json:"guarantee"`
	Words     int64           `json:"words"` // of the independent count
	Distinct  int             `json:"distinct_words"`
	Lines     LinesResult     `json:"lines"`
	Sink      SinkResult      `json:"sink"`
	Isolation IsolationResult `json:"isolation"`
	Changelog ChangelogResult `json:"changelog"`
	Stores    StoresResult    `json:"stores"`
	Offsets   OffsetsResult   `json:"offsets"`
	Evidence  Evidence        `json:"evidence"`
}

// Lost is the number of occurrences of words that are missing in the worst of
// the places where they must be.
func (r Report) Lost() int64 { return max(r.Sink.Final.Lost, r.Changelog.Final.Lost) }

// Twice is the number of occurrences of words that were counted again, in the
// worst of the places where it can be seen.
func (r Report) Twice() int64 {
	return max(r.Sink.Final.Twice, r.Sink.Repeated, r.Changelog.Final.Twice)
}

// Broken lists, in words, what is not as the guarantee promises. It is empty
// where the promise holds.
func (r Report) Broken() []string {
	var broken []string
	add := func(wrong bool, what string) {
		if wrong {
			broken = append(broken, what)
		}
	}
	add(r.Lines.Lost > 0, "input lines lost")
	add(r.Lost() > 0, "words lost")
	add(r.Isolation.Hidden > 0, "records visible at read_committed only")
	add(len(r.Offsets.Ahead) > 0, "offsets committed past the end of the input")
	add(len(r.Offsets.Behind) > 0, "input not read to its end")
	if r.Guarantee != ExactlyOnceV2 {
		return broken
	}
	add(r.Lines.Twice > 0 || r.Lines.Unknown > 0, "input lines twice")
	add(r.Twice() > 0, "words counted twice")
	add(r.Sink.Skipped > 0, "updates missing in the sink")
	add(r.Sink.Moved > 0 || r.Changelog.Shared > 0, "one word counted by two tasks")
	add(!r.Stores.Equal(), "a store differs from its changelog")
	return broken
}

// Outcome is the verdict: broken where anything promised does not hold,
// inconclusive where nothing put it to the test, kept otherwise.
func (r Report) Outcome() Outcome {
	switch {
	case len(r.Broken()) > 0:
		return OutcomeBroken
	case !r.Evidence.Conclusive():
		return OutcomeInconclusive
	default:
		return OutcomeKept
	}
}
