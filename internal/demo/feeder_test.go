package demo

import (
	"testing"
	"time"
)

// A text of a few lines must not be fed before the last fault either: the end of
// the feeding ends the faults, and would leave a frozen worker frozen.
func TestSomeOfEveryTextWaitsForTheLastFault(t *testing.T) {
	for _, tt := range []struct{ lines, held int }{{1, 1}, {2, 1}, {19, 1}, {100, 5}, {700_000, 35_000}} {
		f := &feeder{text: text{Lines: make([]string, tt.lines)}, duration: time.Second}
		if got, want := f.due(time.Minute, false), tt.lines-tt.held; got != want {
			t.Errorf("%d of %d lines are due before the last fault, want %d", got, tt.lines, want)
		}
		if got := f.due(time.Minute, true); got != tt.lines {
			t.Errorf("%d of %d lines are due after the last fault", got, tt.lines)
		}
	}
}
