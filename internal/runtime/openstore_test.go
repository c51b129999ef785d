package runtime

import (
	"log/slog"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// The lock on the state directory keeps other processes out, so whoever has the
// store open is another worker of this one, perhaps held up in a slow processor.
func TestStoreOfASlowWorkerIsWaitedFor(t *testing.T) {
	dir, err := openStateDir(vfs.OS{}, t.TempDir(), "app", "")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.close()
	sub := &task.Subtopology{
		Stores: []task.StoreSpec{{Name: "rows", Persistent: true}},
		Build:  func(*task.Assembly) error { return nil },
	}
	w := newWorker(&App{dir: dir, log: slog.New(slog.DiscardHandler)}, 1)
	begun := &activeTask{sub: sub, openSince: time.Now().Add(-time.Hour)}
	if err := dir.prepareTask(begun.id); err != nil {
		t.Fatal(err)
	}
	slow, err := store.OpenPebble(dir.storeDir(begun.id, "rows"), store.PebbleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.openTask(begun); err != nil || begun.stage != stageOpen {
		t.Fatalf("stage %d, %v; want to wait", begun.stage, err)
	}
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	begun.retryAt = time.Time{}
	if err := w.openTask(begun); err != nil || begun.stage != stageOffsets {
		t.Errorf("stage %d, %v; want an open store", begun.stage, err)
	}
	if err := begun.close(); err != nil {
		t.Error(err)
	}
}
