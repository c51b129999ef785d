// Package batch reads and writes Kafka record batches (magic 2), transaction
// markers and the records of Kafka's internal topics.
//
// The package is pure: no goroutine, clock, I/O, randomness, logging or lock.
// The codecs, whose pools need sync, are in the package compress below it.
package batch

// ProducerID identifies a producer to the brokers; -1 is none (KIP-98).
type ProducerID int64

// Epoch is a producer epoch; -1 is none. 32767 is kept for fencing and is
// never given to a client.
type Epoch int16

// Offset is a position in a partition's log.
type Offset int64

// What the fields of a batch hold when it has no producer.
const (
	NoProducerID ProducerID = -1
	NoEpoch      Epoch      = -1
	NoSequence   int32      = -1
)

// TopicPartition names one partition. Topic names are compared byte by byte.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Compare orders by topic, then partition, for use with slices.SortFunc.
func (tp TopicPartition) Compare(o TopicPartition) int {
	switch {
	case tp.Topic < o.Topic:
		return -1
	case tp.Topic > o.Topic:
		return 1
	}
	return int(tp.Partition) - int(o.Partition)
}
