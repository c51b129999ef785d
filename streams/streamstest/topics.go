package streamstest

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/streams/serde"
)

// Serdes are needed for types that serde.For does not know.
type Serdes[K, V any] struct {
	Key   serde.Serde[K]
	Value serde.Serde[V]
}

// serdesFor fills in what was left out.
func serdesFor[K, V any](d *Driver, what string, opts []Serdes[K, V]) Serdes[K, V] {
	d.tb.Helper()
	var s Serdes[K, V]
	if len(opts) > 0 {
		s = opts[0]
	}
	if s.Key == nil {
		s.Key = serdeFor[K](d, what+": key")
	}
	if s.Value == nil {
		s.Value = serdeFor[V](d, what+": value")
	}
	return s
}

func serdeFor[T any](d *Driver, what string) serde.Serde[T] {
	d.tb.Helper()
	s, ok := serde.For[T]()
	if !ok {
		d.tb.Fatalf("%s: no serde is known for type %s: pass streamstest.Serdes", what, reflect.TypeFor[T]())
	}
	return s
}

// Record is a record read from an output topic.
type Record[K, V any] struct {
	Key   K
	Value V
	// NullKey and NullValue tell null from a zero value.
	NullKey, NullValue bool
	TimestampMs        int64
	Headers            map[string]string
}

// InputTopic writes into a topic that the topology reads.
type InputTopic[K, V any] struct {
	d      *Driver
	topic  string
	serdes Serdes[K, V]
}

// Input opens an input topic.
func Input[K, V any](d *Driver, topic string, serdes ...Serdes[K, V]) *InputTopic[K, V] {
	d.tb.Helper()
	if d.sources[topic] == nil {
		d.tb.Fatalf("input topic %q: the topology reads %s", topic, strings.Join(d.topology.SourceTopics(), ", "))
	}
	return &InputTopic[K, V]{d: d, topic: topic, serdes: serdesFor(d, "input topic "+topic, serdes)}
}

// Pipe runs a record through the topology, with the driver's time.
func (i *InputTopic[K, V]) Pipe(key K, value V) {
	i.d.tb.Helper()
	i.PipeAt(i.d.nowMs, key, value)
}

// PipeAt runs a record with a timestamp in milliseconds through the topology.
func (i *InputTopic[K, V]) PipeAt(timestampMs int64, key K, value V) {
	i.d.tb.Helper()
	if err := i.TryPipeAt(timestampMs, key, value); err != nil {
		i.d.tb.Fatal(err)
	}
}

// PipeValue runs a record without a key through the topology.
func (i *InputTopic[K, V]) PipeValue(value V) {
	i.d.tb.Helper()
	i.must(i.d.pipe(i.topic, task.Record{TimestampMs: i.d.nowMs, Value: encode(i, i.serdes.Value, value)}))
}

// PipeTombstone runs a record without a value through the topology.
func (i *InputTopic[K, V]) PipeTombstone(key K) {
	i.d.tb.Helper()
	i.must(i.d.pipe(i.topic, task.Record{TimestampMs: i.d.nowMs, Key: encode(i, i.serdes.Key, key)}))
}

// TryPipeAt is PipeAt for a record that is expected to fail: it returns the error.
// The record is skipped, so that the test can go on.
func (i *InputTopic[K, V]) TryPipeAt(timestampMs int64, key K, value V) error {
	i.d.tb.Helper()
	return i.d.pipe(i.topic, task.Record{
		TimestampMs: timestampMs,
		Key:         encode(i, i.serdes.Key, key),
		Value:       encode(i, i.serdes.Value, value),
	})
}

// TryPipeBytes runs a record of any bytes, such as one that cannot be decoded.
func (i *InputTopic[K, V]) TryPipeBytes(key, value []byte) error {
	return i.d.pipe(i.topic, task.Record{TimestampMs: i.d.nowMs, Key: key, Value: value})
}

func (i *InputTopic[K, V]) must(err error) {
	i.d.tb.Helper()
	if err != nil {
		i.d.tb.Fatal(err)
	}
}

func encode[K, V, T any](i *InputTopic[K, V], s serde.Serde[T], v T) []byte {
	i.d.tb.Helper()
	if null, ok := s.(serde.NullSerde[T]); ok && null.IsNull(v) {
		return nil
	}
	data, err := s.Append([]byte{}, v)
	i.must(err)
	return data
}

// OutputTopic reads what the topology wrote to a topic. All readers of a topic share
// one position.
type OutputTopic[K, V any] struct {
	d      *Driver
	topic  string
	serdes Serdes[K, V]
}

// Output opens an output topic, or an internal one by its full name.
func Output[K, V any](d *Driver, topic string, serdes ...Serdes[K, V]) *OutputTopic[K, V] {
	d.tb.Helper()
	if !d.written[topic] {
		d.tb.Fatalf("output topic %q: the topology writes %s", topic, strings.Join(slices.Sorted(maps.Keys(d.written)), ", "))
	}
	return &OutputTopic[K, V]{d: d, topic: topic, serdes: serdesFor(d, "output topic "+topic, serdes)}
}

// Read takes the next record; false when there is none.
func (o *OutputTopic[K, V]) Read() (Record[K, V], bool) {
	o.d.tb.Helper()
	queue := o.d.outputs[o.topic]
	if len(queue) == 0 {
		return Record[K, V]{}, false
	}
	o.d.outputs[o.topic] = queue[1:]
	raw := queue[0].rec
	rec := Record[K, V]{NullKey: raw.Key == nil, NullValue: raw.Value == nil, TimestampMs: raw.TimestampMs}
	var err error
	if raw.Key != nil {
		rec.Key, err = o.serdes.Key.Decode(raw.Key)
	}
	if raw.Value != nil && err == nil {
		rec.Value, err = o.serdes.Value.Decode(raw.Value)
	}
	if err != nil {
		o.d.tb.Fatalf("output topic %s: %v", o.topic, err)
	}
	for _, h := range raw.Headers {
		if rec.Headers == nil {
			rec.Headers = map[string]string{}
		}
		rec.Headers[h.Key] = string(h.Value)
	}
	return rec, true
}

// ReadAll takes all records that are there.
func (o *OutputTopic[K, V]) ReadAll() []Record[K, V] {
	o.d.tb.Helper()
	var all []Record[K, V]
	for rec, ok := o.Read(); ok; rec, ok = o.Read() {
		all = append(all, rec)
	}
	return all
}

// Lines takes all records that are there, each as "key=value", with "null" for null:
// handy to compare.
func (o *OutputTopic[K, V]) Lines() []string {
	o.d.tb.Helper()
	var lines []string
	for _, rec := range o.ReadAll() {
		key, value := fmt.Sprint(rec.Key), fmt.Sprint(rec.Value)
		if rec.NullKey {
			key = "null"
		}
		if rec.NullValue {
			value = "null"
		}
		lines = append(lines, key+"="+value)
	}
	return lines
}

// StoreView reads a store of the topology.
type StoreView[K, V any] struct {
	d      *Driver
	name   string
	store  store.Store
	serdes Serdes[K, V]
}

// Store opens a store by its name.
func Store[K, V any](d *Driver, name string, serdes ...Serdes[K, V]) *StoreView[K, V] {
	d.tb.Helper()
	s := d.stores[name]
	if s == nil {
		d.tb.Fatalf("store %q: the topology has %s", name, strings.Join(slices.Sorted(maps.Keys(d.stores)), ", "))
	}
	return &StoreView[K, V]{d: d, name: name, store: s, serdes: serdesFor(d, "store "+name, serdes)}
}

// Get reads the row of a key.
func (s *StoreView[K, V]) Get(key K) (V, bool) {
	s.d.tb.Helper()
	var v V
	k, err := s.serdes.Key.Append(nil, key)
	if err == nil {
		var data []byte
		var ok bool
		if data, _, ok, err = s.store.Get(k); err == nil {
			if !ok {
				return v, false
			}
			v, err = s.serdes.Value.Decode(data)
		}
	}
	if err != nil {
		s.d.tb.Fatalf("store %s: %v", s.name, err)
	}
	return v, true
}

// All yields the rows in the order of the keys' bytes.
func (s *StoreView[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e, err := range s.store.Range(nil, nil) {
			var k K
			var v V
			if err == nil {
				k, err = s.serdes.Key.Decode(e.Key)
			}
			if err == nil {
				v, err = s.serdes.Value.Decode(e.Value)
			}
			if err != nil {
				s.d.tb.Fatalf("store %s: %v", s.name, err)
			}
			if !yield(k, v) {
				return
			}
		}
	}
}
