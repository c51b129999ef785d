package demo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/verify"
)

// readStores reads every store that the workers have left on disk. A worker that
// has given a task away still has the store of it, as it was then.
func readStores(all []*worker) ([]verify.StoreContent, error) {
	var contents []verify.StoreContent
	for _, w := range all {
		dir := filepath.Join(w.config.StateDir, w.config.Application)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing the state of %s: %w", w.name, err)
		}
		for _, entry := range entries {
			id, err := task.ParseID(entry.Name())
			if err != nil {
				continue // the lock, or the instance id
			}
			content, err := readStore(w.name, filepath.Join(dir, entry.Name(), countsStore), id.Partition)
			if err != nil {
				return nil, err
			}
			if content != nil {
				contents = append(contents, *content)
			}
		}
	}
	return contents, nil
}

// readStore reads one store; nil where the task has none, or has never committed.
func readStore(owner, dir string, partition int32) (content *verify.StoreContent, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	s, err := store.OpenPebble(dir, store.PebbleOptions{})
	if err != nil {
		return nil, fmt.Errorf("opening a store of %s: %w", owner, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	offset, committed := s.Offset()
	if !committed {
		return nil, nil
	}
	content = &verify.StoreContent{Owner: owner, Partition: partition, Offset: offset, Counts: make(verify.Counts)}
	for row, err := range s.Range(nil, nil) {
		if err != nil {
			return nil, fmt.Errorf("reading %s of %s: %w", dir, owner, err)
		}
		if len(row.Value) != 8 {
			return nil, fmt.Errorf("reading %s of %s: the count of %q has %d bytes, want 8", dir, owner, row.Key, len(row.Value))
		}
		content.Counts[string(row.Key)] = int64(binary.BigEndian.Uint64(row.Value))
	}
	return content, nil
}
