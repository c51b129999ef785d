package streams

import "github.com/hanbeon/hanbeon/internal/task"

// MapValues changes each value. The key, and so the partition, stays.
func MapValues[K, V, V2 any](s *KStream[K, V], f func(value V) V2, name ...Named) *KStream[K, V2] {
	n := s.b.add(&node{name: string(one(s.b, "MapValues", name)), kind: task.NodeProcessor}, "KSTREAM-MAPVALUES", s.n)
	s.b.checkFunc(n, f == nil)
	n.compile = func(a *assembly) any {
		next := children[K, V2](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if next == nil {
				return nil
			}
			var mapped V2
			if !ctx.NullValue {
				mapped = f(value)
			}
			return next(key, mapped, ctx)
		})
	}
	return &KStream[K, V2]{b: s.b, n: n, key: s.key, keyChanged: s.keyChanged}
}

// FlatMapValues makes any number of records of each value, all with its key.
func FlatMapValues[K, V, V2 any](s *KStream[K, V], f func(value V) []V2, name ...Named) *KStream[K, V2] {
	n := s.b.add(&node{name: string(one(s.b, "FlatMapValues", name)), kind: task.NodeProcessor}, "KSTREAM-FLATMAPVALUES", s.n)
	s.b.checkFunc(n, f == nil)
	n.compile = func(a *assembly) any {
		next := children[K, V2](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if next == nil || ctx.NullValue {
				return nil
			}
			for _, v := range f(value) {
				if err := next(key, v, ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return &KStream[K, V2]{b: s.b, n: n, key: s.key, keyChanged: s.keyChanged}
}

// SelectKey gives each record a new key. Grouping after it needs a repartition
// topic, which GroupByKey adds by itself.
func SelectKey[K, V, K2 any](s *KStream[K, V], f func(key K, value V) K2, name ...Named) *KStream[K2, V] {
	n := s.b.add(&node{name: string(one(s.b, "SelectKey", name)), kind: task.NodeProcessor}, "KSTREAM-KEY-SELECT", s.n)
	s.b.checkFunc(n, f == nil)
	n.compile = func(a *assembly) any {
		next := children[K2, V](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if next == nil || ctx.NullValue {
				return nil
			}
			nullKey := ctx.NullKey
			ctx.NullKey = false
			err := next(f(key, value), value, ctx)
			ctx.NullKey = nullKey
			return err
		})
	}
	return &KStream[K2, V]{b: s.b, n: n, value: s.value, keyChanged: true}
}

// Map changes key and value of each record; see SelectKey for what a new key means.
func Map[K, V, K2, V2 any](s *KStream[K, V], f func(key K, value V) (K2, V2), name ...Named) *KStream[K2, V2] {
	n := s.b.add(&node{name: string(one(s.b, "Map", name)), kind: task.NodeProcessor}, "KSTREAM-MAP", s.n)
	s.b.checkFunc(n, f == nil)
	n.compile = func(a *assembly) any {
		next := children[K2, V2](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if next == nil || ctx.NullValue {
				return nil
			}
			nullKey := ctx.NullKey
			ctx.NullKey = false
			k, v := f(key, value)
			err := next(k, v, ctx)
			ctx.NullKey = nullKey
			return err
		})
	}
	return &KStream[K2, V2]{b: s.b, n: n, keyChanged: true}
}

// FlatMap makes any number of records of each record; see SelectKey for what a new
// key means.
func FlatMap[K, V, K2, V2 any](s *KStream[K, V], f func(key K, value V) []KeyValue[K2, V2], name ...Named) *KStream[K2, V2] {
	n := s.b.add(&node{name: string(one(s.b, "FlatMap", name)), kind: task.NodeProcessor}, "KSTREAM-FLATMAP", s.n)
	s.b.checkFunc(n, f == nil)
	n.compile = func(a *assembly) any {
		next := children[K2, V2](a, n)
		return handler[K, V](func(key K, value V, ctx *task.Context) error {
			if next == nil || ctx.NullValue {
				return nil
			}
			nullKey := ctx.NullKey
			ctx.NullKey = false
			for _, kv := range f(key, value) {
				if err := next(kv.Key, kv.Value, ctx); err != nil {
					return err
				}
			}
			ctx.NullKey = nullKey
			return nil
		})
	}
	return &KStream[K2, V2]{b: s.b, n: n, keyChanged: true}
}
