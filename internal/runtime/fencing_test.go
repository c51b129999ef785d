package runtime

import (
	"testing"
	"time"
)

func TestFencing(t *testing.T) {
	const timeout = 10 * time.Second
	start := time.Unix(0, 0)
	for name, test := range map[string]struct {
		every   time.Duration
		commits bool
		want    int // the fencing that is one too many, 0 for none
	}{
		"a twin that works between":       {time.Second, true, fencedMax + 1},
		"a twin, and no commit":           {time.Second, false, fencedMax},
		"transactions that take too long": {timeout, true, 0},
		"never a commit":                  {timeout, false, fencedMax},
	} {
		t.Run(name, func(t *testing.T) {
			var f fencing
			got := 0
			for n := 1; n <= 50 && got == 0; n++ {
				if f.note(start.Add(time.Duration(n)*test.every), timeout) {
					got = n
				}
				if test.commits {
					f.inARow = 0
				}
			}
			if got != test.want {
				t.Errorf("gave up at fencing %d, want %d", got, test.want)
			}
		})
	}
}
