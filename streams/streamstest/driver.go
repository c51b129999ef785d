// Package streamstest runs a topology in a test, without a broker: records go in,
// results come out, at once and in a fixed order, under a clock that the test holds.
//
// Every topic has one partition. Repartition topics, and topics that one part of the
// topology writes and another reads, are passed on inside. Like Kafka Streams'
// TopologyTestDriver, but typed.
package streamstest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/streams"
)

// Options of a driver; every field may be left out.
type Options struct {
	// ApplicationID is the prefix of internal topics, "test" if empty.
	ApplicationID string
	// StartTime is what the driver's clock shows first, 1970 if zero.
	StartTime time.Time
}

// Driver runs one topology. It belongs to one goroutine.
type Driver struct {
	tb       testing.TB
	topology *task.Topology
	tasks    []*task.Task
	stores   map[string]store.Store
	sources  map[string]*task.Task
	offsets  map[string]int64 // next offset of a source topic

	nowMs   int64
	pending []sent // to source topics, not delivered yet
	outputs map[string][]sent
	written map[string]bool // topics that the topology writes
}

// sent is a record of an output topic.
type sent struct {
	topic string
	rec   task.Record
}

// New starts a topology; it ends with the test. A mistake in the test, such as an
// unknown topic, and a record that fails, end the test with Fatal.
func New(tb testing.TB, topology *streams.Topology, opts ...Options) *Driver {
	tb.Helper()
	o := Options{ApplicationID: "test", StartTime: time.UnixMilli(0)}
	if len(opts) > 0 {
		if opts[0].ApplicationID != "" {
			o.ApplicationID = opts[0].ApplicationID
		}
		if !opts[0].StartTime.IsZero() {
			o.StartTime = opts[0].StartTime
		}
	}
	d := &Driver{
		tb: tb, topology: topology.Compiled().ForApplication(o.ApplicationID),
		stores: map[string]store.Store{}, sources: map[string]*task.Task{}, offsets: map[string]int64{},
		nowMs: o.StartTime.UnixMilli(), outputs: map[string][]sent{}, written: map[string]bool{},
	}
	for _, sub := range d.topology.Subtopologies {
		d.start(sub)
	}
	tb.Cleanup(d.close)
	return d
}

func (d *Driver) start(sub *task.Subtopology) {
	d.tb.Helper()
	stores := map[string]task.KeyValueStore{}
	for _, spec := range sub.Stores {
		s := store.NewMemory()
		d.stores[spec.Name], stores[spec.Name] = s, s
		if spec.ChangelogTopic != "" {
			d.written[spec.ChangelogTopic] = true
		}
	}
	t, err := task.New(sub, 0, task.Deps{Stores: stores, Collector: collector{d}})
	if err != nil {
		d.tb.Fatal(err)
	}
	d.tasks = append(d.tasks, t)
	for _, src := range sub.Sources {
		d.sources[src.Topic] = t
	}
	for _, sink := range sub.Sinks {
		d.written[sink.Topic] = true
	}
}

func (d *Driver) close() {
	for _, s := range d.stores {
		if err := s.Close(); err != nil {
			d.tb.Error(err)
		}
	}
}

// Now is what the driver's clock shows. Records piped without a timestamp get it.
func (d *Driver) Now() time.Time { return time.UnixMilli(d.nowMs).UTC() }

// Advance moves the driver's clock forward.
func (d *Driver) Advance(by time.Duration) {
	d.tb.Helper()
	if by < 0 {
		d.tb.Fatalf("Advance by %v: the clock does not go back", by)
	}
	d.nowMs += by.Milliseconds()
}

// pipe runs one record through the whole topology.
func (d *Driver) pipe(topic string, rec task.Record) error {
	if err := d.enqueue(topic, rec); err != nil {
		return err
	}
	return d.run()
}

func (d *Driver) enqueue(topic string, rec task.Record) error {
	rec.Offset = d.offsets[topic]
	d.offsets[topic]++
	return d.sources[topic].Enqueue(topic, []task.Record{rec})
}

// run processes until nothing is buffered, and commits.
func (d *Driver) run() error {
	for busy := true; busy; {
		busy = false
		for _, t := range d.tasks {
			n, err := t.Process(1 << 20)
			if err != nil {
				t.Skip() // so that a test can go on after an expected failure
				return err
			}
			if err := t.Flush(); err != nil {
				return err
			}
			busy = busy || n > 0
		}
		pending := d.pending
		d.pending = nil
		for _, s := range pending {
			if err := d.enqueue(s.topic, s.rec); err != nil {
				return err
			}
			busy = true
		}
	}
	for _, s := range d.stores {
		if err := s.Commit(0); err != nil {
			return err
		}
	}
	return nil
}

// collector takes the records that tasks send.
type collector struct{ d *Driver }

func (c collector) Send(topic string, partition int32, key, value []byte, headers []task.Header, timestampMs int64) error {
	if partition > 0 {
		return fmt.Errorf("partition %d of topic %s: in the test driver every topic has one partition", partition, topic)
	}
	s := sent{topic: topic, rec: task.Record{
		TimestampMs: timestampMs, Key: bytes.Clone(key), Value: bytes.Clone(value), Headers: slices.Clone(headers),
	}}
	c.d.outputs[topic] = append(c.d.outputs[topic], s)
	if c.d.sources[topic] != nil {
		c.d.pending = append(c.d.pending, s)
	}
	return nil
}

func (c collector) PartitionCount(string) int32 { return 1 }
