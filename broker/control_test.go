package broker

import (
	"testing"

	"github.com/hanbeon/hanbeon/internal/shard"
)

// Negative controls: each protection switched off must be noticed by the
// check that guards it.

func TestControlAckBeforeSyncIsSeen(t *testing.T) {
	cuts, wrong := cutEverywhere(t, 3, Faults{AckBeforeSync: true}, 1)
	if len(wrong) == 0 {
		t.Fatalf("acknowledging before the sync went unnoticed in %d power cuts", cuts)
	}
	t.Logf("seen: %s", wrong[0])
}

func TestControlMarkersBeforePrepareIsSeen(t *testing.T) {
	cuts, wrong := cutEverywhere(t, 3, Faults{Faults: shard.Faults{MarkersBeforePrepare: true}}, 1)
	if len(wrong) == 0 {
		t.Fatalf("markers without a durable decision went unnoticed in %d power cuts", cuts)
	}
	t.Logf("seen: %s", wrong[0])
}
