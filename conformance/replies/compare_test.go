//go:build conformance

package replies_test

import (
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/broker"
)

// The comparison itself must see what it is there for.

func TestControlNoGenerationCheckIsSeen(t *testing.T) {
	kafka, ours := startPeers(t, broker.Faults{NoGenerationCheck: true})
	seen := 0
	for _, sc := range offsetScenarios {
		if sc.name != "TxnOffsetCommit: who may commit" {
			continue
		}
		k, o := runOn(kafka, sc), runOn(ours, sc)
		for i, st := range k().steps {
			seen += len(unexpected(st, o().steps[i]))
		}
	}
	if seen == 0 {
		t.Error("a broker that takes offsets of any generation is not told from Kafka")
	}
}

func TestComparisonSeesDifferences(t *testing.T) {
	kafka := []line{{"Topics", "1 entries"}, {"Topics[t].ErrorCode", "0"}, {"Gone", "1"}}
	ours := []line{{"Topics", "1 entries"}, {"Topics[t].ErrorCode", "3"}, {"New", "2"}}
	announced := []difference{
		{"Topics[t].ErrorCode", "0", "3", "reason"}, {"Gone", "1", absent, "reason"}, {"New", absent, "2", "reason"},
	}
	if bad := unexpected(step{lines: kafka}, step{lines: ours}); len(bad) != 3 {
		t.Errorf("%q, want 3 differences", bad)
	}
	if bad := unexpected(step{lines: kafka, known: announced}, step{lines: ours}); len(bad) != 0 {
		t.Errorf("announced differences are reported: %q", bad)
	}
	bad := unexpected(step{lines: kafka, known: announced[:1]}, step{lines: kafka})
	if len(bad) != 1 || !strings.Contains(bad[0], "remove the exception") {
		t.Errorf("%q, want the announced difference that is gone", bad)
	}
	wrong := []difference{{"Topics[t].ErrorCode", "0", "5", "reason"}}
	if bad := unexpected(step{lines: kafka[:2], known: wrong}, step{lines: ours[:2]}); len(bad) != 2 {
		t.Errorf("%q, want the difference, and the announced one that is not there", bad)
	}
}
