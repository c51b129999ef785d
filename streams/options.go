package streams

import "github.com/hanbeon/hanbeon/streams/serde"

// The options of the operators. Every field may be left out; a call takes at most one.
// A serde left out is the one of the stream before, else that of serde.For.

// Named gives an operator a name in Topology.Describe and in errors. Without it an
// operator is called after what it is and when it was added, as in Kafka Streams:
// KSTREAM-FILTER-0000000003.
type Named string

// Consumed says how a topic is read. Every field may be left out; see Serdes.
type Consumed[K, V any] struct {
	Name  string
	Key   serde.Serde[K]
	Value serde.Serde[V]
}

// Produced says how a topic is written. Every field may be left out; see Serdes.
type Produced[K, V any] struct {
	Name  string
	Key   serde.Serde[K]
	Value serde.Serde[V]
	// Partitioner chooses among the partitions 0 to partitions-1. Left out, it is
	// the one of the Java producer: the murmur2 hash of the key's bytes.
	Partitioner func(key K, value V, partitions int32) int32
}

// Grouped says how records travel to their group, if a repartition topic is needed.
// Every field may be left out; see Serdes.
type Grouped[K, V any] struct {
	// Name is the middle of the topic's name, <application>-<Name>-repartition.
	// Left out, it is the name of the first store of the group.
	Name  string
	Key   serde.Serde[K]
	Value serde.Serde[V]
}

// Repartitioned says how a stream is sent through a repartition topic. Every field may be left out; see Serdes.
type Repartitioned[K, V any] struct {
	// Name is the middle of the topic's name, <application>-<Name>-repartition.
	Name  string
	Key   serde.Serde[K]
	Value serde.Serde[V]
	// Partitions of the topic; 0 takes the largest number of the topics upstream.
	Partitions int32
}

// Materialized says how a table is stored. Every field may be left out; see Serdes.
type Materialized[K, V any] struct {
	Key   serde.Serde[K]
	Value serde.Serde[V]
	// InMemory keeps the store in memory instead of on disk.
	InMemory bool
	// NoChangelog leaves out the changelog topic: the store's contents are lost
	// with its directory, and do not follow a task to another instance. A crash
	// may take the newest changes of such a store although their input is
	// committed: it is not exactly-once.
	NoChangelog bool
}

// KeyValue is a pair, as FlatMap returns it.
type KeyValue[K, V any] struct {
	Key   K
	Value V
}
