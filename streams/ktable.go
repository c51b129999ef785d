package streams

import (
	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/streams/serde"
)

// KTable is a table: each record is the new value of its key's row, and a record
// without a value deletes it (Kafka's KTable).
type KTable[K, V any] struct {
	b     *Builder
	n     *node
	key   serde.Serde[K]
	value serde.Serde[V]
}

// Table reads a topic as a table, into a store with this name. Records without a key
// are left out.
func Table[K, V any](b *Builder, topic, storeName string, opts ...Consumed[K, V]) *KTable[K, V] {
	return Stream(b, topic, opts...).ToTable(storeName)
}

// ToTable makes a table of a stream, in a store with this name. If the key was
// changed before, the records first travel through a repartition topic.
func (s *KStream[K, V]) ToTable(storeName string, opts ...Materialized[K, V]) *KTable[K, V] {
	b := s.b
	o := one(b, "ToTable "+storeName, opts)
	if storeName == "" {
		storeName = b.nextName("KSTREAM-TOTABLE-STATE-STORE")
	}
	name := b.nextName("KSTREAM-TOTABLE")
	if s.keyChanged {
		s = s.through(Repartitioned[K, V]{Name: storeName, Key: o.Key, Value: o.Value}, true)
	}
	n := b.add(&node{name: name, kind: task.NodeProcessor}, "", s.n)
	b.addStore(n, storeName, o.InMemory, o.NoChangelog)
	keys, values := codecFor(b, n, "key", o.Key, s.key), codecFor(b, n, "value", o.Value, s.value)
	n.compile = func(a *assembly) any {
		h := &tableUpdater[K, V]{
			row:  row[K, V]{n: n, store: a.Store(storeName), keys: keys, values: values},
			next: tableChildren[K, V](a, n),
		}
		return handler[K, V](h.process)
	}
	return &KTable[K, V]{b: b, n: n, key: keys.serde, value: values.serde}
}

// tableUpdater keeps the newest value of each key.
type tableUpdater[K, V any] struct {
	row  row[K, V]
	next tableHandler[K, V]
}

func (h *tableUpdater[K, V]) process(key K, value V, ctx *task.Context) error {
	if ctx.NullKey {
		return nil
	}
	old, _, found, err := h.row.get(key)
	if err != nil || h.row.key == nil {
		return err
	}
	c := change[V]{New: value, Old: old, HasOld: found}
	if ctx.NullValue {
		if !found {
			return nil
		}
		err = h.row.store.Put(h.row.key, nil, ctx.TimestampMs)
	} else {
		c.HasNew, err = h.row.put(value, ctx.TimestampMs)
	}
	if err != nil || h.next == nil || !c.HasNew && !c.HasOld {
		return err
	}
	nullValue := ctx.NullValue
	ctx.NullValue = false
	err = h.next(key, c, ctx)
	ctx.NullValue = nullValue
	return err
}

// Filter keeps the rows for which the function is true. A row that stops to match
// is deleted from the result; one that never matched leaves no trace (Kafka Streams
// sends a tombstone for it unless the table is stored).
func (t *KTable[K, V]) Filter(keep func(key K, value V) bool, name ...Named) *KTable[K, V] {
	return t.filter("Filter", keep, true, name)
}

// FilterNot drops the rows for which the function is true.
func (t *KTable[K, V]) FilterNot(drop func(key K, value V) bool, name ...Named) *KTable[K, V] {
	return t.filter("FilterNot", drop, false, name)
}

func (t *KTable[K, V]) filter(op string, match func(K, V) bool, keep bool, name []Named) *KTable[K, V] {
	n := t.b.add(&node{name: string(one(t.b, op, name)), kind: task.NodeProcessor, readsOld: true}, "KTABLE-FILTER", t.n)
	t.b.checkFunc(n, match == nil)
	n.compile = func(a *assembly) any {
		next := tableChildren[K, V](a, n)
		return tableHandler[K, V](func(key K, c change[V], ctx *task.Context) error {
			if next == nil {
				return nil
			}
			c.HasNew = c.HasNew && match(key, c.New) == keep
			c.HasOld = c.HasOld && match(key, c.Old) == keep
			if !c.HasNew && !c.HasOld {
				return nil
			}
			return next(key, c, ctx)
		})
	}
	return &KTable[K, V]{b: t.b, n: n, key: t.key, value: t.value}
}

// MapTable changes each value of a table.
func MapTable[K, V, V2 any](t *KTable[K, V], f func(value V) V2, name ...Named) *KTable[K, V2] {
	n := t.b.add(&node{name: string(one(t.b, "MapTable", name)), kind: task.NodeProcessor, passesOld: true}, "KTABLE-MAPVALUES", t.n)
	t.b.checkFunc(n, f == nil)
	n.compile = func(a *assembly) any {
		next := tableChildren[K, V2](a, n)
		mapOld := n.needsOld()
		return tableHandler[K, V](func(key K, c change[V], ctx *task.Context) error {
			if next == nil {
				return nil
			}
			mapped := change[V2]{HasNew: c.HasNew, HasOld: c.HasOld}
			if c.HasNew {
				mapped.New = f(c.New)
			}
			if c.HasOld && mapOld {
				mapped.Old = f(c.Old)
			}
			return next(key, mapped, ctx)
		})
	}
	return &KTable[K, V2]{b: t.b, n: n, key: t.key}
}

// ToStream is the stream of the table's updates; a deleted row is a record without a
// value.
func (t *KTable[K, V]) ToStream(name ...Named) *KStream[K, V] {
	n := t.b.add(&node{name: string(one(t.b, "ToStream", name)), kind: task.NodeProcessor}, "KTABLE-TOSTREAM", t.n)
	n.compile = func(a *assembly) any {
		next := children[K, V](a, n)
		return tableHandler[K, V](func(key K, c change[V], ctx *task.Context) error {
			if next == nil {
				return nil
			}
			ctx.NullValue = !c.HasNew
			err := next(key, c.New, ctx)
			ctx.NullValue = false
			return err
		})
	}
	return &KStream[K, V]{b: t.b, n: n, key: t.key, value: t.value}
}
