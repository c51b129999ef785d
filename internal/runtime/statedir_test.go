package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

func TestInstanceIDSurvivesARestart(t *testing.T) {
	root := t.TempDir()
	first, err := openStateDir(vfs.OS{}, root, "app", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(first.instance) != 16 {
		t.Errorf("instance id %q", first.instance)
	}
	first.close()
	second, err := openStateDir(vfs.OS{}, root, "app", "")
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	if second.instance != first.instance {
		t.Errorf("instance id changed from %s to %s", first.instance, second.instance)
	}
	other, err := openStateDir(vfs.OS{}, root, "other", "given")
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if other.instance != "given" {
		t.Errorf("instance id %q, want the given one", other.instance)
	}
}

func TestSecondProcessOnTheStateDirectoryIsRefused(t *testing.T) {
	root := t.TempDir()
	first, err := openStateDir(vfs.OS{}, root, "app", "")
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()
	_, err = openStateDir(vfs.OS{}, root, "app", "")
	if !errors.Is(err, ErrStateDirInUse) || !strings.Contains(err.Error(), root) {
		t.Fatalf("got %v, want ErrStateDirInUse naming the directory", err)
	}
}

func TestEmptyInstanceFileIsNamed(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "app", "instance"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := openStateDir(vfs.OS{}, root, "app", "")
	if err == nil || !strings.Contains(err.Error(), filepath.Join("app", "instance")) {
		t.Fatalf("got %v, want an error that names the file", err)
	}
	again, err := openStateDir(vfs.OS{}, root, "app", "given")
	if err != nil {
		t.Fatalf("the lock was not released: %v", err)
	}
	again.close()
}

func TestStateDirectoryListsItsTasks(t *testing.T) {
	dir, err := openStateDir(vfs.OS{}, t.TempDir(), "app", "i")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.close()
	want := []task.ID{{Subtopology: 0, Partition: 10}, {Subtopology: 1, Partition: 2}}
	for _, id := range []task.ID{want[1], want[0]} {
		if err := dir.prepareTask(id); err != nil {
			t.Fatal(err)
		}
	}
	if got := dir.tasks(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPartitionTimeMetadata(t *testing.T) {
	for _, timeMs := range []int64{-1, 0, 1, 1764400000000} {
		if got := decodePartitionTime(encodePartitionTime(timeMs)); got != timeMs {
			t.Errorf("%d became %d", timeMs, got)
		}
	}
	// Kafka Streams' TopicPartitionMetadata.encode with time 1000, version 1 and 2.
	for _, metadata := range []string{"AQAAAAAAAAPo", "AgAAAAAAAAPo"} {
		if got := decodePartitionTime(metadata); got != 1000 {
			t.Errorf("%q: %d, want 1000", metadata, got)
		}
	}
	for _, metadata := range []string{"", "x", "AQ==", "hello world", "/////////////w=="} {
		if got := decodePartitionTime(metadata); got != -1 {
			t.Errorf("%q: %d, want -1", metadata, got)
		}
	}
}

func TestOptionsNameTheMistake(t *testing.T) {
	good := Options{
		Topology:      &task.Topology{Subtopologies: []*task.Subtopology{{}}},
		ApplicationID: "app", Brokers: []string{"b:1"}, StateDir: "/s", ExactlyOnce: true,
	}
	if _, err := good.withDefaults(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"topology":           func(o *Options) { o.Topology = nil },
		"ApplicationID":      func(o *Options) { o.ApplicationID = "a/b" },
		"brokers":            func(o *Options) { o.Brokers = nil },
		`"b:kafka"`:          func(o *Options) { o.Brokers = []string{"b:kafka"} },
		"StateDir":           func(o *Options) { o.StateDir = "" },
		"InstanceID":         func(o *Options) { o.InstanceID = "../x" },
		"TransactionTimeout": func(o *Options) { o.TransactionTimeout = o.CommitInterval + 1 },
		"CommitInterval":     func(o *Options) { o.CommitInterval = -1 },
		"Workers":            func(o *Options) { o.Workers = -1 },
		"DeadLetterTopic":    func(o *Options) { o.Poison = PoisonDeadLetter },
	} {
		o := good
		spoil(&o)
		if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
