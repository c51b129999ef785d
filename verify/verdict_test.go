package verify

import "testing"

// clean is a report in which everything is as exactly-once promises.
func clean() Report {
	return Report{Guarantee: ExactlyOnceV2, Words: 100, Evidence: Evidence{Fenced: 1, Aborts: 2}}
}

func TestOutcomeOfAnExactlyOnceRun(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(r *Report)
		want  Outcome
	}{
		{"kept", func(*Report) {}, OutcomeKept},
		{"nothing was aborted, fenced or retried", func(r *Report) { r.Evidence = Evidence{WorkerKills: 9, BrokerKills: 1} }, OutcomeInconclusive},
		{"word lost in the sink", func(r *Report) { r.Sink.Final.Lost = 1 }, OutcomeBroken},
		{"word lost in the changelog", func(r *Report) { r.Changelog.Final.Lost = 1 }, OutcomeBroken},
		{"word twice in the sink", func(r *Report) { r.Sink.Final.Twice = 1 }, OutcomeBroken},
		{"word twice in the changelog", func(r *Report) { r.Changelog.Final.Twice = 1 }, OutcomeBroken},
		{"update emitted again", func(r *Report) { r.Sink.Repeated = 1 }, OutcomeBroken},
		{"update missing", func(r *Report) { r.Sink.Skipped = 1 }, OutcomeBroken},
		{"word on two partitions", func(r *Report) { r.Sink.Moved = 1 }, OutcomeBroken},
		{"word in two stores", func(r *Report) { r.Changelog.Shared = 1 }, OutcomeBroken},
		{"store ahead of its changelog", func(r *Report) { r.Stores.Different = []StoreDiff{{}} }, OutcomeBroken},
		{"line lost", func(r *Report) { r.Lines.Lost = 1 }, OutcomeBroken},
		{"line twice", func(r *Report) { r.Lines.Twice = 1 }, OutcomeBroken},
		{"input unread", func(r *Report) { r.Offsets.Behind = []PartitionProgress{{}} }, OutcomeBroken},
		{"commit past the end", func(r *Report) { r.Offsets.Ahead = []PartitionProgress{{}} }, OutcomeBroken},
		{"record hidden from read_uncommitted", func(r *Report) { r.Isolation.Hidden = 1 }, OutcomeBroken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := clean()
			tt.spoil(&r)
			if got := r.Outcome(); got != tt.want {
				t.Errorf("Outcome() = %q (%q), want %q", got, r.Broken(), tt.want)
			}
		})
	}
}

func TestAtLeastOncePromisesOnlyThatNothingIsLost(t *testing.T) {
	r := clean()
	r.Guarantee = AtLeastOnce
	r.Sink.Final.Twice, r.Sink.Repeated, r.Changelog.Final.Twice, r.Lines.Twice = 5, 6, 7, 1
	if got := r.Outcome(); got != OutcomeKept {
		t.Errorf("duplicates under at_least_once: Outcome() = %q (%q), want kept", got, r.Broken())
	}
	if got := r.Twice(); got != 7 {
		t.Errorf("Twice() = %d, want 7, the most that is seen anywhere", got)
	}
	r.Sink.Final.Lost = 1
	if got := r.Outcome(); got != OutcomeBroken {
		t.Errorf("a loss under at_least_once: Outcome() = %q, want broken", got)
	}
}
