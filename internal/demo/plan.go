package demo

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// faultKind is what is done to a process.
type faultKind string

const (
	killWorker   faultKind = "kill worker"
	freezeWorker faultKind = "freeze worker"
	killBroker   faultKind = "kill broker"
)

// fault is one entry of a plan: what happens, and when, counted from the start
// of the feeding.
type fault struct {
	At   time.Duration
	Kind faultKind
}

const (
	// freezeBeyond is how much longer than the session timeout a worker is
	// frozen, so that the group has surely given its place away.
	freezeBeyond = 2500 * time.Millisecond
	// killInterval is the mean time between two worker kills.
	killInterval = 4 * time.Second
	// longFaultInterval is the mean time between two freezes, and between two
	// broker kills.
	longFaultInterval = 30 * time.Second
)

// planFaults spreads faults over duration: a worker kill every few seconds, and
// at least one freeze and, where the broker is ours, one broker kill. The same
// random source gives the same plan.
func planFaults(random *rand.Rand, duration time.Duration, withBroker bool) []fault {
	var plan []fault
	spread := func(kind faultKind, interval, from, to time.Duration) {
		span := to - from
		n := max(1, int(span/interval))
		for i := range n {
			slot := span / time.Duration(n)
			at := from + slot*time.Duration(i) + time.Duration(random.Int64N(int64(slot)))
			plan = append(plan, fault{At: at.Round(time.Millisecond), Kind: kind})
		}
	}
	begin := min(3*time.Second, duration/5)
	spread(killWorker, killInterval, begin, duration)
	// The freeze begins early enough for its end to come before the text does.
	spread(freezeWorker, longFaultInterval, begin, max(begin+time.Second, duration-sessionTimeout-2*freezeBeyond))
	if withBroker {
		spread(killBroker, longFaultInterval, duration/2, duration*9/10)
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return plan
}
