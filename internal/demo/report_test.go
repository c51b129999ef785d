package demo

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/verify"
)

// resultOf makes a result with the verdict that its report deserves.
func resultOf(report verify.Report) Result {
	return Result{
		Report: report, Outcome: report.Outcome(), Broken: report.Broken(), Lost: report.Lost(), Twice: report.Twice(),
	}
}

func TestVerdictSaysWhatTheRunShowed(t *testing.T) {
	tested := verify.Evidence{Aborts: 1}
	tests := []struct {
		name   string
		report verify.Report
		want   []string
	}{
		{"kept", verify.Report{Guarantee: verify.ExactlyOnceV2, Evidence: tested},
			[]string{"0 words lost, 0 words counted twice.", "VERDICT: exactly-once was kept."}},
		{"broken", verify.Report{Guarantee: verify.ExactlyOnceV2, Evidence: tested, Sink: verify.SinkResult{
			Final: verify.Diff{Lost: 1, Examples: []verify.WordDiff{{Word: "be", Want: 2, Got: 1}}}}},
			[]string{"BAD", `"be" stands 2 times in the text, the sink says 1`, "1 word lost", "VERDICT: exactly_once_v2 was promised and NOT kept: words lost."}},
		{"proves nothing", verify.Report{Guarantee: verify.ExactlyOnceV2},
			[]string{"VERDICT: nothing was aborted, fenced or retried in this run, so it proves nothing."}},
		{"duplicates allowed", verify.Report{Guarantee: verify.AtLeastOnce, Evidence: tested, Sink: verify.SinkResult{Final: verify.Diff{Twice: 3}}},
			[]string{"3 words counted twice.", "3 words were counted twice, as it allows"}},
		{"no duplicates by luck", verify.Report{Guarantee: verify.AtLeastOnce, Evidence: tested},
			[]string{"is luck, not a promise"}},
		{"unread input", verify.Report{Guarantee: verify.ExactlyOnceV2, Evidence: tested, Offsets: verify.OffsetsResult{
			Behind: []verify.PartitionProgress{{Topic: "lines", Partition: 2, Committed: 3, End: 5, Unread: 2}}}},
			[]string{"lines-2: committed 3, end 5, 2 records unread", "input not read to its end"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			resultOf(tt.report).print(&out)
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
			if wellFormed := !strings.Contains(out.String(), "%!"); !wellFormed {
				t.Errorf("a verb has no argument:\n%s", out.String())
			}
			if strings.Contains(out.String(), "BAD") != (len(tt.report.Broken()) > 0) {
				t.Errorf("BAD does not go with what is broken (%q):\n%s", tt.report.Broken(), out.String())
			}
		})
	}
}
