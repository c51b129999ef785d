package streams_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
)

// countingCollector stands for a producer: it copies what it is given.
type countingCollector struct {
	buf  []byte
	sent int
}

func (c *countingCollector) Send(_ string, _ int32, key, value []byte, _ []task.Header, _ int64) error {
	if len(c.buf) > 1<<20 {
		c.buf = c.buf[:0]
	}
	c.buf = append(append(c.buf, key...), value...)
	c.sent++
	return nil
}

func (c *countingCollector) PartitionCount(string) int32 { return 4 }

// BenchmarkWordCount runs both tasks of the word count, each over its own input. A
// commit of the store follows every 10,000 records, about 100 ms at 100,000 a second.
func BenchmarkWordCount(b *testing.B) {
	const recordsPerCommit = 10_000
	random := rand.New(rand.NewPCG(1, 2))
	var words []string
	for range 10_000 {
		words = append(words, fmt.Sprintf("word%d", int(random.ExpFloat64()*2000)))
	}
	topology := build(b, wordCount()).Compiled().ForApplication("app")
	var lines, single []task.Record
	for i := range 1000 {
		lines = append(lines, task.Record{Value: []byte(strings.Join(words[i*10:i*10+10], " "))})
	}
	for _, w := range words {
		single = append(single, task.Record{Key: []byte(w), Value: []byte(w)})
	}
	stores := map[string]func(b *testing.B) store.Store{
		"memory": func(*testing.B) store.Store { return store.NewMemory() },
		"pebble": func(b *testing.B) store.Store {
			s, err := store.OpenPebble(b.TempDir(), store.PebbleOptions{})
			if err != nil {
				b.Fatal(err)
			}
			return s
		},
	}
	b.Run("split lines of 10 words", func(b *testing.B) { benchTask(b, topology.Subtopologies[0], "lines", lines, nil, 1000) })
	for _, name := range []string{"memory", "pebble"} {
		b.Run("count words in "+name, func(b *testing.B) {
			s := stores[name](b)
			defer s.Close()
			benchTask(b, topology.Subtopologies[1], "app-counts-repartition", single, s, recordsPerCommit)
		})
	}
}

func benchTask(b *testing.B, sub *task.Subtopology, topic string, records []task.Record, s store.Store, recordsPerCommit int) {
	collector := &countingCollector{}
	deps := task.Deps{Collector: collector}
	if s != nil {
		deps.Stores = map[string]task.KeyValueStore{"counts": s}
	}
	tk, err := task.New(sub, 0, deps)
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]task.Record, 0, recordsPerCommit)
	offset := int64(0)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += len(batch) {
		batch = batch[:0]
		for range min(recordsPerCommit, b.N-done) {
			r := records[int(offset)%len(records)]
			r.Offset, r.TimestampMs = offset, offset
			offset++
			batch = append(batch, r)
		}
		if err := tk.Enqueue(topic, batch); err != nil {
			b.Fatal(err)
		}
		if _, err := tk.Process(len(batch)); err != nil {
			b.Fatal(err)
		}
		if err := tk.Flush(); err != nil {
			b.Fatal(err)
		}
		if s != nil {
			if err := s.Commit(offset); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
