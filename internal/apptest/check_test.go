package apptest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/verify"
)

// mustBeExact fails the test for everything that is not exactly once.
func (b *bed) mustBeExact() {
	b.t.Helper()
	for _, w := range b.violations() {
		b.t.Error(w)
	}
	if b.t.Failed() {
		b.t.Log(b.situation())
	}
}

// mustBeBroken is for negative controls: words must be lost or counted twice.
func (b *bed) mustBeBroken() {
	b.t.Helper()
	wrong := b.violations()
	if len(wrong) == 0 {
		b.t.Fatalf("the protection is off and nothing was lost or counted twice: the control proves nothing\n%s", b.situation())
	}
	b.t.Logf("as it should be, the checkers see it: %s", wrong[0])
}

// violations compares everything that the application left with an independent
// count of the lines that were fed.
func (b *bed) violations() (wrong []string) {
	want := verify.CountWords(slices.Values(append(slices.Clone(b.deleted), b.lines...)))
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	input := slices.Clone(b.deleted)
	for _, r := range b.read(topicLines, true) {
		input = append(input, string(r.Value))
	}
	if d := verify.Compare(want, verify.CountWords(slices.Values(input))); !d.Equal() {
		bad("the input is not what was fed: %+v", d)
	}
	sink := verify.NewSinkChecker()
	for _, r := range b.read(topicCounts, true) {
		sink.Add(verify.Update{Partition: r.Partition, Offset: r.Offset, Word: string(r.Key), Count: int64(binary.BigEndian.Uint64(r.Value))})
	}
	if r := sink.Result(want); !r.ExactlyOnce() {
		bad("sink: %+v, first repeated %+v, first skipped %+v", r, r.FirstRepeated, r.FirstSkipped)
	}
	changes, stores := verify.NewChangelogChecker(), verify.NewStoreChecker(b.stores())
	for _, r := range b.read(changelog, true) {
		c := verify.Change{Partition: r.Partition, Offset: r.Offset, Word: string(r.Key), Deleted: r.Value == nil}
		if !c.Deleted {
			c.Count = int64(binary.BigEndian.Uint64(r.Value))
		}
		changes.Add(c)
		stores.Add(c)
	}
	if r := changes.Result(want); !r.ExactlyOnce() {
		bad("changelog: %+v", r)
	}
	if r := stores.Result(); !r.Equal() {
		bad("stores on disk: %+v", r)
	}
	if r := verify.CheckOffsets(b.progress()); !r.AtEnd() {
		bad("committed offsets: %+v", r)
	}
	return wrong
}

// lost is the number of words that the sink's last counts lack.
func (b *bed) lost() int64 {
	sink := verify.NewSinkChecker()
	for _, r := range b.read(topicCounts, true) {
		sink.Add(verify.Update{Partition: r.Partition, Offset: r.Offset, Word: string(r.Key), Count: int64(binary.BigEndian.Uint64(r.Value))})
	}
	return sink.Result(verify.CountWords(slices.Values(b.lines))).Final.Lost
}

// read returns every record of a topic. Every transaction must have ended.
func (b *bed) read(topic string, committed bool) (records []*kgo.Record) {
	b.t.Helper()
	ends, err := b.admin.ListEndOffsets(context.Background(), topic)
	if err != nil {
		b.t.Fatalf("read %s: list end offsets: %v", topic, err)
	}
	open := make(map[int32]int64)
	from := map[string]map[int32]kgo.Offset{topic: {}}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			open[end.Partition] = end.Offset
			from[topic][end.Partition] = kgo.NewOffset().AtStart()
		}
	})
	if len(open) == 0 {
		return nil
	}
	opts := []kgo.Opt{kgo.ConsumePartitions(from), kgo.KeepControlRecords(), kgo.FetchMaxWait(100 * time.Millisecond)}
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl := b.newClient(opts...)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for len(open) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			b.t.Fatalf("read %s: the ends %v are not reached: is a transaction open?", topic, open)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if r.Offset >= open[r.Partition]-1 {
				delete(open, r.Partition)
			}
		})
	}
	return records
}

// stores reads the stores that the ended instances have left on disk.
func (b *bed) stores() (all []verify.StoreContent) {
	b.t.Helper()
	seen := make(map[string]bool)
	for _, i := range b.instances {
		if !i.hasEnded() || seen[i.stateDir] {
			continue
		}
		seen[i.stateDir] = true
		entries, err := os.ReadDir(filepath.Join(i.stateDir, appID))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			b.t.Fatalf("list the state of %s: %v", i.name, err)
		}
		for _, entry := range entries {
			id, err := task.ParseID(entry.Name())
			if err != nil {
				continue // the lock, or the instance id
			}
			if content, ok := b.readStore(i.name, storeDir(i.stateDir, entry.Name())); ok {
				content.Partition = id.Partition
				all = append(all, content)
			}
		}
	}
	return all
}

func (b *bed) readStore(owner, dir string) (content verify.StoreContent, ok bool) {
	b.t.Helper()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return content, false
	}
	s, err := store.OpenPebble(dir, store.PebbleOptions{})
	if err != nil {
		b.t.Fatalf("open a store of %s: %v", owner, err)
	}
	defer s.Close()
	offset, ok := s.Offset()
	content = verify.StoreContent{Owner: owner, Offset: offset, Counts: make(verify.Counts)}
	for row, err := range s.Range(nil, nil) {
		if err != nil {
			b.t.Fatalf("read %s: %v", dir, err)
		}
		content.Counts[string(row.Key)] = int64(binary.BigEndian.Uint64(row.Value))
	}
	return content, ok
}
