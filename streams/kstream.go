// Package streams builds stream processing topologies and runs them exactly once.
//
// A topology is described with a Builder: Stream and Table read topics, operators
// derive further streams and tables, and To writes a topic. An operator that keeps
// the types is a method (lines.Filter), one that changes them is a function
// (streams.MapValues), because Go's methods cannot have type parameters.
//
// # Serdes
//
// Keys and values are written and read by a serde, see package serde. A type that
// serde.For knows, such as string or int64, needs none. For others name one in the
// operator's options: Consumed, Produced, Grouped, Repartitioned or Materialized.
// Operators that keep a type hand its serde on, so that it is named once:
//
//	orders := streams.Stream(b, "orders", streams.Consumed[string, Order]{Value: serde.JSON[Order]()})
//
// Build reports the types for which there is none.
//
// # Records without key or value
//
// Kafka's records may have a null key or value, Go's string and int64 have none. A
// null key reaches functions as the zero value, and is written as null again unless
// an operator made a new key. A record with a null value (a tombstone) passes Filter,
// Peek, MapValues, Merge, Repartition and To without its functions being called; all
// other operators drop it, and grouping drops null keys too, as in Kafka Streams. To
// handle null values yourself, read pointers with serde.Nullable.
package streams

import (
	"fmt"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/streams/serde"
)

// KStream is a stream of records: each stands for itself (Kafka's KStream).
type KStream[K, V any] struct {
	b     *Builder
	n     *node
	key   serde.Serde[K] // nil: not given
	value serde.Serde[V]
	// keyChanged: records may lie in another partition than their key's.
	keyChanged bool
}

// Stream reads a topic.
func Stream[K, V any](b *Builder, topic string, opts ...Consumed[K, V]) *KStream[K, V] {
	o := one(b, "Stream "+topic, opts)
	n := source[K, V](b, topic, o)
	return &KStream[K, V]{b: b, n: n, key: o.Key, value: o.Value}
}

// source adds a node that reads a topic of the user.
func source[K, V any](b *Builder, topic string, o Consumed[K, V]) *node {
	n := b.add(&node{name: o.Name, kind: task.NodeSource, topic: topic}, "KSTREAM-SOURCE")
	b.checkTopicName(n, "topic", topic)
	if other, taken := b.sources[topic]; taken {
		b.fail(n, "topic %q is already read by %s: use that stream twice instead", topic, other.name)
	}
	b.sources[topic] = n
	setSource(n, codecFor(b, n, "key", o.Key), codecFor(b, n, "value", o.Value))
	return n
}

// setSource makes a node decode records.
func setSource[K, V any](n *node, keys codec[K], values codec[V]) {
	n.compile = func(a *assembly) any {
		next := children[K, V](a, n)
		// Of a repartition topic, which only this program writes, values need not
		// be decoded when nobody looks at them.
		valuesUsed := !n.repartition
		for _, c := range n.children {
			valuesUsed = valuesUsed || !c.ignoresValue
		}
		return task.Handler(func(rec *task.Record, ctx *task.Context) error {
			if next == nil {
				return nil
			}
			key, nullKey, err := keys.decode(rec.Key)
			if err != nil {
				return atNode(task.StageDecode, n, fmt.Errorf("key: %w", err))
			}
			var value V
			nullValue := rec.Value == nil && values.null == nil
			if valuesUsed {
				value, nullValue, err = values.decode(rec.Value)
				if err != nil {
					return atNode(task.StageDecode, n, fmt.Errorf("value: %w", err))
				}
			}
			ctx.NullKey, ctx.NullValue = nullKey, nullValue
			return next(key, value, ctx)
		})
	}
}

// same is the stream after an operator that keeps key, value and serdes.
func (s *KStream[K, V]) same(n *node) *KStream[K, V] {
	return &KStream[K, V]{b: s.b, n: n, key: s.key, value: s.value, keyChanged: s.keyChanged}
}

// Filter keeps the records for which the function is true.
func (s *KStream[K, V]) Filter(keep func(key K, value V) bool, name ...Named) *KStream[K, V] {
	return s.filter("Filter", keep, true, name)
}

// FilterNot drops the records for which the function is true.
func (s *KStream[K, V]) FilterNot(drop func(key K, value V) bool, name ...Named) *KStream[K, V] {
	return s.filter("FilterNot", drop, false, name)
}

func (s *KStream[K, V]) filter(op string, match func(K, V) bool, keep bool, name []Named) *KStream[K, V] {
	n := s.b.add(&node{name: string(one(s.b, op, name)), kind: task.NodeProcessor}, "KSTREAM-FILTER", s.n)
	s.b.checkFunc(n, match == nil)
	n.compile = func(a *assembly) any {
		next := children[K, V](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if next == nil || !ctx.NullValue && match(key, value) != keep {
				return nil
			}
			return next(key, value, ctx)
		})
	}
	return s.same(n)
}

// Peek calls a function for each record and passes the record on.
func (s *KStream[K, V]) Peek(look func(key K, value V), name ...Named) *KStream[K, V] {
	n := s.b.add(&node{name: string(one(s.b, "Peek", name)), kind: task.NodeProcessor}, "KSTREAM-PEEK", s.n)
	s.b.checkFunc(n, look == nil)
	n.compile = func(a *assembly) any {
		next := children[K, V](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if !ctx.NullValue {
				look(key, value)
			}
			if next == nil {
				return nil
			}
			return next(key, value, ctx)
		})
	}
	return s.same(n)
}

// ForEach calls a function for each record and ends there. What the function does
// outside Kafka is not covered by exactly-once: it is repeated after a failure.
func (s *KStream[K, V]) ForEach(do func(key K, value V), name ...Named) {
	n := s.b.add(&node{name: string(one(s.b, "ForEach", name)), kind: task.NodeProcessor}, "KSTREAM-FOREACH", s.n)
	s.b.checkFunc(n, do == nil)
	n.compile = func(*assembly) any {
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if !ctx.NullValue {
				do(key, value)
			}
			return nil
		})
	}
}

// Merge joins two streams into one; order holds within each of them only.
func (s *KStream[K, V]) Merge(other *KStream[K, V], name ...Named) *KStream[K, V] {
	n := s.b.add(&node{name: string(one(s.b, "Merge", name)), kind: task.NodeProcessor}, "KSTREAM-MERGE", s.n, other.n)
	if other.b != s.b {
		s.b.fail(n, "the streams come from two builders: use one")
	}
	n.compile = func(a *assembly) any {
		next := children[K, V](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if next == nil {
				return nil
			}
			return next(key, value, ctx)
		})
	}
	merged := s.same(n)
	merged.keyChanged = s.keyChanged || other.keyChanged
	return merged
}

// Branch splits a stream: a record goes to the branch of the first function that is
// true for it, or to the last branch, which is for the rest. The result has one
// branch more than there are functions. Records without a value go to every branch,
// since nothing tells which of them has the key.
func (s *KStream[K, V]) Branch(tests ...func(key K, value V) bool) []*KStream[K, V] {
	n := s.b.add(&node{kind: task.NodeProcessor}, "KSTREAM-BRANCH", s.n)
	var branches []*KStream[K, V]
	for i := range len(tests) + 1 {
		branch := s.b.add(&node{name: fmt.Sprintf("%s-%d", n.name, i), kind: task.NodeProcessor}, "", n)
		branch.compile = func(a *assembly) any { return children[K, V](a, branch) }
		branches = append(branches, s.same(branch))
		if i < len(tests) {
			s.b.checkFunc(n, tests[i] == nil)
		}
	}
	n.compile = func(a *assembly) any {
		next := make([]handler[K, V], len(n.children))
		for i, c := range n.children {
			next[i] = a.handler(c).(handler[K, V])
		}
		return branchHandler(tests, next)
	}
	return branches
}

func branchHandler[K, V any](tests []func(K, V) bool, next []handler[K, V]) handler[K, V] {
	to := func(i int, key K, value V, ctx *task.Context) error {
		if next[i] == nil {
			return nil
		}
		return next[i](key, value, ctx)
	}
	return func(key K, value V, ctx *task.Context) error {
		if ctx.NullValue {
			for i := range next {
				if err := to(i, key, value, ctx); err != nil {
					return err
				}
			}
			return nil
		}
		for i, test := range tests {
			if test(key, value) {
				return to(i, key, value, ctx)
			}
		}
		return to(len(tests), key, value, ctx)
	}
}

// To writes the stream to a topic.
func (s *KStream[K, V]) To(topic string, opts ...Produced[K, V]) {
	o := one(s.b, "To "+topic, opts)
	n := s.b.add(&node{name: o.Name, kind: task.NodeSink, topic: topic}, "KSTREAM-SINK", s.n)
	s.b.checkTopicName(n, "topic", topic)
	keys, values := codecFor(s.b, n, "key", o.Key, s.key), codecFor(s.b, n, "value", o.Value, s.value)
	setSink(n, keys, values, o.Partitioner, false)
}

// setSink makes a node encode and send records.
func setSink[K, V any](n *node, keys codec[K], values codec[V], partitioner func(K, V, int32) int32, dropNullKeys bool) {
	n.compile = func(a *assembly) any {
		out := a.outputs[n]
		var keyBuf, valueBuf []byte
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			var k, v []byte
			var err error
			if !ctx.NullKey {
				if k, keyBuf, err = keys.encode(keyBuf, key); err != nil {
					return atNode(task.StageProcess, n, fmt.Errorf("encode key: %w", err))
				}
			}
			if k == nil && dropNullKeys {
				return nil
			}
			if !ctx.NullValue {
				if v, valueBuf, err = values.encode(valueBuf, value); err != nil {
					return atNode(task.StageProcess, n, fmt.Errorf("encode value: %w", err))
				}
			}
			partition := int32(-1)
			if partitioner != nil {
				if partition, err = choose(partitioner, key, value, out); err != nil {
					return atNode(task.StageProcess, n, err)
				}
			}
			return out.Send(partition, k, v, ctx)
		})
	}
}

func choose[K, V any](partitioner func(K, V, int32) int32, key K, value V, out *task.Output) (int32, error) {
	count := out.PartitionCount()
	if count <= 0 {
		return 0, fmt.Errorf("topic %s: its partition count is not known: does it exist?", out.Topic())
	}
	partition := partitioner(key, value, count)
	if partition < 0 || partition >= count {
		return 0, fmt.Errorf("topic %s: the partitioner chose %d of %d partitions", out.Topic(), partition, count)
	}
	return partition, nil
}

// Repartition sends the stream through an internal topic, so that records lie in the
// partition of their key, or spread over another number of partitions.
func (s *KStream[K, V]) Repartition(opts ...Repartitioned[K, V]) *KStream[K, V] {
	o := one(s.b, "Repartition", opts)
	if o.Name == "" {
		o.Name = s.b.nextName("KSTREAM-REPARTITION")
	}
	return s.through(o, false)
}

// through adds the sink and the source of a repartition topic.
func (s *KStream[K, V]) through(o Repartitioned[K, V], dropNullKeys bool) *KStream[K, V] {
	b := s.b
	topic := o.Name + "-repartition"
	sink := b.add(&node{kind: task.NodeSink, topic: topic, repartition: true}, "KSTREAM-SINK", s.n)
	// Kafka has a filter for null keys here, which our sink does itself; its number
	// is left out so that later names are the same.
	b.counter++
	src := b.add(&node{kind: task.NodeSource, topic: topic, repartition: true, partitions: o.Partitions}, "KSTREAM-SOURCE")
	b.checkTopicName(sink, "topic", topic)
	if other, taken := b.sources[topic]; taken {
		b.fail(src, "repartition topic %q already belongs to %s: give it another name", topic, other.name)
	}
	b.sources[topic] = src
	if o.Partitions < 0 {
		b.fail(src, "%d partitions: give 1 or more, or 0 for as many as upstream", o.Partitions)
	}
	keys, values := codecFor(b, sink, "key", o.Key, s.key), codecFor(b, sink, "value", o.Value, s.value)
	setSink(sink, keys, values, nil, dropNullKeys)
	setSource(src, keys, values)
	return &KStream[K, V]{b: b, n: src, key: keys.serde, value: values.serde}
}
