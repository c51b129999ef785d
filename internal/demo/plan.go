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
	// roundInterval is the mean time between two freezes, and between two broker
	// kills.
	roundInterval = 30 * time.Second
	// settleAfterFreeze is the least time between the end of a freeze and the
	// next broker kill. A broker that starts gives every member its whole session
	// timeout again: a kill during a freeze would keep the zombie's place.
	settleAfterFreeze = 2 * time.Second
)

// planFaults spreads faults over duration: a worker kill every few seconds, and
// in every round one freeze and then, where the broker is ours, one broker kill.
// Where duration is too short for a freeze, the plan takes longer than it. The
// same random source gives the same plan.
func planFaults(random *rand.Rand, duration time.Duration, withBroker bool) []fault {
	var plan []fault
	add := func(kind faultKind, from, span time.Duration) time.Duration {
		at := (from + time.Duration(random.Int64N(int64(span)))).Round(time.Millisecond)
		plan = append(plan, fault{At: at, Kind: kind})
		return at
	}
	begin := min(3*time.Second, duration/5)

	kills := max(1, int((duration-begin)/killInterval))
	slot := (duration - begin) / time.Duration(kills)
	for i := range kills {
		add(killWorker, begin+slot*time.Duration(i), slot-time.Millisecond)
	}
	rounds := max(1, int(duration/roundInterval))
	round := duration / time.Duration(rounds)
	for i := range rounds {
		start := begin + round*time.Duration(i)
		frozen := add(freezeWorker, start, max(time.Second, round/6))
		if withBroker {
			settled := frozen + sessionTimeout + freezeBeyond + settleAfterFreeze
			left := round*time.Duration(i) + round*9/10 - settled
			add(killBroker, settled, max(time.Second, left))
		}
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return plan
}
