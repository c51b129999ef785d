package demo

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestDefaultPlanHasEveryKindOfFaultOftenEnough(t *testing.T) {
	for seed := range uint64(200) {
		plan := planFaults(rand.New(rand.NewPCG(seed, 0)), 30*time.Second, true)
		count := make(map[faultKind]int)
		var last time.Duration
		for _, f := range plan {
			count[f.Kind]++
			if f.At < last || f.At < 0 || f.At >= 30*time.Second {
				t.Fatalf("seed %d: fault at %v after one at %v", seed, f.At, last)
			}
			last = f.At
			if end := f.At + sessionTimeout + freezeBeyond; f.Kind == freezeWorker && end > 30*time.Second {
				t.Errorf("seed %d: the zombie comes back at %v, after the text has been fed", seed, end)
			}
		}
		if count[killWorker] < 5 || count[freezeWorker] < 1 || count[killBroker] < 1 {
			t.Errorf("seed %d: %v, want at least 5 worker kills, 1 freeze, 1 broker kill", seed, count)
		}
	}
}

func TestBrokerIsNotKilledDuringAFreeze(t *testing.T) {
	for seed := range uint64(200) {
		duration := durationMin + time.Duration(seed)*time.Second
		var frozenUntil time.Duration
		for _, f := range planFaults(rand.New(rand.NewPCG(seed, 0)), duration, true) {
			switch {
			case f.Kind == freezeWorker:
				frozenUntil = f.At + sessionTimeout + freezeBeyond
			case f.Kind == killBroker && f.At < frozenUntil+settleAfterFreeze:
				t.Errorf("duration %v: the broker is killed at %v, a worker is frozen until %v", duration, f.At, frozenUntil)
			}
		}
	}
}

func TestPlanIsMadeByItsSeed(t *testing.T) {
	plan := func(seed uint64) []fault {
		return planFaults(rand.New(rand.NewPCG(seed, 0)), time.Minute, true)
	}
	same, other := true, true
	for i, f := range plan(1) {
		same = same && f == plan(1)[i]
		other = other && f == plan(2)[i]
	}
	if !same || other {
		t.Errorf("one seed gave the same plan: %v; two seeds did: %v", same, other)
	}
}

func TestPlanWithoutOurOwnBrokerDoesNotKillIt(t *testing.T) {
	for _, f := range planFaults(rand.New(rand.NewPCG(1, 0)), 2*time.Minute, false) {
		if f.Kind == killBroker {
			t.Fatalf("the plan kills a broker that is not ours at %v", f.At)
		}
	}
}

func TestShortestPlanIsWhole(t *testing.T) {
	plan := planFaults(rand.New(rand.NewPCG(1, 0)), durationMin, true)
	count := make(map[faultKind]int)
	for _, f := range plan {
		count[f.Kind]++
	}
	if count[killWorker] == 0 || count[freezeWorker] == 0 || count[killBroker] == 0 {
		t.Errorf("plan of %v: %v, want one of each kind", durationMin, count)
	}
}
