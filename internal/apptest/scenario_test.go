package apptest

import (
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/broker"
)

func TestTwoInstancesCountEveryWordOnce(t *testing.T) {
	for _, onDisk := range []bool{false, true} {
		t.Run(map[bool]string{false: "memory", true: "disk"}[onDisk], func(t *testing.T) {
			scenario(t, broker.Faults{}, func(b *bed) {
				b.feed(100)
				first, second := b.launch("first", options{onDisk: onDisk}), b.launch("second", options{onDisk: onDisk})
				b.running(first, second)
				b.feedFor(2 * time.Second)
				b.settle()
				first.stop()
				second.stop()
				b.mustBeExact()
				for _, i := range []*instance{first, second} {
					if s := i.app.Stats(); s.Commits == 0 || s.Unknown > 0 || s.Fenced > 0 || s.Lost > 0 {
						t.Errorf("%s: a clean run has stats %+v", i.name, s)
					}
				}
			})
		})
	}
}
