package streams

import (
	"fmt"
	"reflect"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/streams/serde"
)

// KGroupedStream is a stream whose records are grouped by key, to be aggregated into
// tables (Kafka's KGroupedStream). Records without key or value are left out.
type KGroupedStream[K, V any] struct {
	stream  *KStream[K, V]
	options Grouped[K, V]
	// arranged is the stream with every key in its partition. All tables of the
	// group share its repartition topic.
	arranged *KStream[K, V]
}

// GroupByKey groups the records by their key. If the key was changed before, they
// first travel through a repartition topic.
func (s *KStream[K, V]) GroupByKey(opts ...Grouped[K, V]) *KGroupedStream[K, V] {
	return &KGroupedStream[K, V]{stream: s, options: one(s.b, "GroupByKey", opts)}
}

// GroupBy groups the records by a new key, through a repartition topic.
func GroupBy[K, V, K2 any](s *KStream[K, V], f func(key K, value V) K2, opts ...Grouped[K2, V]) *KGroupedStream[K2, V] {
	return SelectKey(s, f).GroupByKey(opts...)
}

// arrange gives the stream to aggregate, for a table with this store.
func (g *KGroupedStream[K, V]) arrange(storeName string) *KStream[K, V] {
	if g.arranged != nil {
		return g.arranged
	}
	o := g.options
	if o.Name == "" {
		o.Name = storeName
	}
	s := *g.stream
	if o.Key != nil {
		s.key = o.Key
	}
	if o.Value != nil {
		s.value = o.Value
	}
	g.arranged = &s
	if s.keyChanged {
		g.arranged = s.through(Repartitioned[K, V]{Name: o.Name}, true)
	}
	return g.arranged
}

// Count counts the records of each key. The table's store has this name, or one made
// from the operator's number where it is empty; naming it keeps its topics the same
// when the topology changes.
func Count[K, V any](g *KGroupedStream[K, V], storeName string, opts ...Materialized[K, int64]) *KTable[K, int64] {
	t := aggregate(g, "Count", "KSTREAM-AGGREGATE", storeName, opts, func(_ K, _ V, count int64, _ bool) int64 { return count + 1 })
	t.n.ignoresValue = true
	return t
}

// Reduce joins the values of each key: the first value stays as it is, and the
// function joins what there is with each further one. See Count for the name.
func (g *KGroupedStream[K, V]) Reduce(storeName string, join func(reduced, value V) V, opts ...Materialized[K, V]) *KTable[K, V] {
	o := one(g.stream.b, "Reduce "+storeName, opts)
	for _, inherited := range []serde.Serde[V]{g.options.Value, g.stream.value} {
		if o.Value == nil {
			o.Value = inherited
		}
	}
	opts = []Materialized[K, V]{o}
	t := aggregate(g, "Reduce", "KSTREAM-REDUCE", storeName, opts, func(_ K, value, reduced V, found bool) V {
		if !found {
			return value
		}
		return join(reduced, value)
	})
	g.stream.b.checkFunc(t.n, join == nil)
	return t
}

// Aggregate folds the values of each key into an A: begin makes the first one, and
// fold adds a record to it. See Count for the name.
func Aggregate[K, V, A any](g *KGroupedStream[K, V], storeName string, begin func() A, fold func(key K, value V, aggregate A) A, opts ...Materialized[K, A]) *KTable[K, A] {
	t := aggregate(g, "Aggregate", "KSTREAM-AGGREGATE", storeName, opts, func(key K, value V, a A, found bool) A {
		if !found {
			a = begin()
		}
		return fold(key, value, a)
	})
	g.stream.b.checkFunc(t.n, begin == nil || fold == nil)
	return t
}

// aggregate adds the node of an aggregation. Step gets the key's aggregate, if found.
func aggregate[K, V, A any](g *KGroupedStream[K, V], op, role, storeName string, opts []Materialized[K, A], step func(key K, value V, a A, found bool) A) *KTable[K, A] {
	b := g.stream.b
	o := one(b, op+" "+storeName, opts)
	if storeName == "" {
		storeName = b.nextName(role + "-STATE-STORE")
	}
	name := b.nextName(role)
	s := g.arrange(storeName)
	n := b.add(&node{name: name, kind: task.NodeProcessor}, role, s.n)
	b.addStore(n, storeName, o.InMemory, o.NoChangelog)
	keys, values := codecFor(b, n, "key", o.Key, s.key), codecFor(b, n, "aggregate", o.Value)
	n.compile = func(a *assembly) any {
		h := &aggregator[K, V, A]{
			row:  row[K, A]{n: n, store: a.Store(storeName), keys: keys, values: values},
			step: step, next: tableChildren[K, A](a, n),
		}
		// A step may change an aggregate that holds pointers in place, so whoever
		// needs the old one gets its own copy.
		h.copyOld = h.next != nil && n.needsOld() && holdsPointers(reflect.TypeFor[A]())
		return handler[K, V](h.process)
	}
	return &KTable[K, A]{b: b, n: n, key: keys.serde, value: values.serde}
}

// row reads and writes the rows of one store in one task.
type row[K, V any] struct {
	n                *node
	store            task.KeyValueStore
	keys             codec[K]
	values           codec[V]
	keyBuf, valueBuf []byte
	key, stored      []byte // of the last get
}

// get reads the row of a key. It leaves r.key nil for a key that is written as null
// (see serde.Nullable), which no table has.
func (r *row[K, V]) get(key K) (v V, timestampMs int64, found bool, err error) {
	if r.key, r.keyBuf, err = r.keys.encode(r.keyBuf, key); err != nil {
		return v, 0, false, atNode(task.StageProcess, r.n, fmt.Errorf("encode key: %w", err))
	}
	if r.key == nil {
		return v, 0, false, nil
	}
	r.stored, timestampMs, found, err = r.store.Get(r.key)
	if err != nil || !found {
		return v, 0, false, err
	}
	v, err = r.decode()
	return v, timestampMs, true, err
}

// decode reads the stored bytes of the last get; no call of the store may lie between.
func (r *row[K, V]) decode() (V, error) {
	v, err := r.values.serde.Decode(r.stored)
	if err != nil {
		err = atNode(task.StageStore, r.n, fmt.Errorf("a row of store %s cannot be decoded; was its value type changed? %w", r.n.store.Name, err))
	}
	return v, err
}

// put writes the row of the last get; ok is false when the value is null, which
// deletes it.
func (r *row[K, V]) put(v V, timestampMs int64) (ok bool, err error) {
	data, buf, err := r.values.encode(r.valueBuf, v)
	r.valueBuf = buf
	if err != nil {
		return false, atNode(task.StageProcess, r.n, fmt.Errorf("encode value: %w", err))
	}
	return data != nil, r.store.Put(r.key, data, timestampMs)
}

// aggregator is the processor of Count, Reduce and Aggregate in one task.
type aggregator[K, V, A any] struct {
	row     row[K, A]
	step    func(key K, value V, a A, found bool) A
	next    tableHandler[K, A]
	copyOld bool
}

func (h *aggregator[K, V, A]) process(key K, value V, ctx *task.Context) error {
	if ctx.NullKey || ctx.NullValue {
		return nil
	}
	old, oldMs, found, err := h.row.get(key)
	if err != nil || h.row.key == nil {
		return err
	}
	c := change[A]{Old: old, HasOld: found}
	if h.copyOld && found {
		if c.Old, err = h.row.decode(); err != nil {
			return err
		}
	}
	c.New = h.step(key, value, old, found)
	timestampMs := ctx.TimestampMs
	if found {
		timestampMs = max(timestampMs, oldMs)
	}
	if c.HasNew, err = h.row.put(c.New, timestampMs); err != nil || h.next == nil {
		return err
	}
	if !c.HasNew && !c.HasOld {
		return nil
	}
	recordMs := ctx.TimestampMs
	ctx.TimestampMs = timestampMs
	err = h.next(key, c, ctx)
	ctx.TimestampMs = recordMs
	return err
}

// holdsPointers says whether a copy of a value shares memory with the value.
func holdsPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return true
	case reflect.Array:
		return holdsPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsPointers(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
