package task

import "iter"

// Collector takes what a task sends: sink, repartition and changelog records. The
// runtime's is the transactional producer, the test driver's is a list.
type Collector interface {
	// Send hands over one record. It copies key, value and headers' slice before it
	// returns; nil key and value are null. Partition -1 asks for the default
	// partitioner: DefaultPartition for a key, any spread for a null key.
	// An error means that the record was not taken; errors found later are
	// returned by a later Send or by the runtime's own flush.
	Send(topic string, partition int32, key, value []byte, headers []Header, timestampMs int64) error
	// PartitionCount gives the number of partitions of a topic that the task
	// sends to, or 0 where it is not known.
	PartitionCount(topic string) int32
}

// Entry is one row of a store.
type Entry struct {
	Key, Value  []byte
	TimestampMs int64
}

// KeyValueStore is the store as a task sees it. Every row carries the timestamp of
// the record that wrote it, as in Kafka's TimestampedKeyValueStore: in the
// changelog it is the record's timestamp, so a changelog holds plain values and
// Kafka Streams' changelogs can be read.
//
// A store belongs to its task's goroutine.
type KeyValueStore interface {
	// Get finds a row. The value is valid until the next call on the store and
	// must not be changed. It is never nil when ok.
	Get(key []byte) (value []byte, timestampMs int64, ok bool, err error)
	// Put writes a row and copies both slices. A nil value deletes.
	Put(key, value []byte, timestampMs int64) error
	// Delete removes a row; one that does not exist is no error.
	Delete(key []byte) error
	// Range yields the rows with from <= key < to in key order; nil bounds are
	// open. An entry's slices are valid until the next step. The store must not be
	// written during the loop. An error ends the sequence.
	Range(from, to []byte) iter.Seq2[Entry, error]
}

// ChangeTracker is a store that remembers which rows were written. With it, a row
// that changes many times goes to the changelog once per Flush, with its last value;
// without it, every write goes there at once. (Kafka Streams does the former with its
// record cache, which also holds back results; here results are never held back.)
type ChangeTracker interface {
	// TrackChanges begins to remember. From then on Changes must be called before
	// the written rows may be committed.
	TrackChanges()
	// Changes yields the rows written since they were last yielded, in the order of
	// their first write; a deleted row has a nil Value. Slices are valid until the
	// next step. A row at which the loop breaks off counts as not yielded.
	Changes() iter.Seq[Entry]
	// ChangedBytes is about the size of what Changes would yield.
	ChangedBytes() int
}

// Deps is what a task needs from outside.
type Deps struct {
	// Stores holds one store for each StoreSpec of the sub-topology, by Name.
	// The task writes the changelog itself, through the Collector.
	Stores    map[string]KeyValueStore
	Collector Collector
}
