package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Record is one record of `__transaction_state`. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// Errors of Apply.
var (
	// ErrUnknownVersion is a record of a key or value version that this program
	// does not know. The record may be skipped, as Kafka does: a newer program
	// wrote it.
	ErrUnknownVersion = errors.New("unknown version of a transaction state record")
	// ErrCorruptRecord is a record that cannot be read although its version is
	// known.
	ErrCorruptRecord = errors.New("corrupt transaction state record")
)

// tagLastEpoch is the tagged field in which the value keeps lastProducerEpoch
// (int16). Kafka's own tags of TransactionLogValue are small numbers; its
// readers skip this one.
const tagLastEpoch = 10_000

const (
	keyVersion        = 0
	valueVersion      = 1 // flexible: transaction.version 1 and above
	valueVersionFirst = 0
)

func encodeKey(id string) []byte {
	k := kmsg.NewTxnMetadataKey()
	k.Version = keyVersion
	k.TransactionalID = id
	return k.AppendTo(nil)
}

// encodeValue writes version 1. Partitions are null exactly in state Empty:
// Kafka's reader takes null there and nowhere else.
func encodeValue(md metadata) []byte {
	v := kmsg.NewTxnMetadataValue()
	v.Version = valueVersion
	v.ProducerID = int64(md.producerID)
	v.ProducerEpoch = int16(md.epoch)
	v.TimeoutMillis = md.timeoutMs
	v.State = kmsg.TransactionState(md.state)
	v.LastUpdateTimestamp = md.updateMs
	v.StartTimestamp = md.startMs
	v.PreviousProducerID = int64(md.previousID)
	v.NextProducerID = int64(md.nextID)
	v.ClientTransactionVersion = md.clientVersion
	if md.lastEpoch != batch.NoEpoch {
		v.UnknownTags.Set(tagLastEpoch, binary.BigEndian.AppendUint16(nil, uint16(md.lastEpoch)))
	}
	if md.state != Empty {
		v.Topics = groupByTopic(md.partitions)
	}
	return v.AppendTo(nil)
}

// groupByTopic returns a slice that is never nil.
func groupByTopic(tps []batch.TopicPartition) []kmsg.TxnMetadataValueTopic {
	topics := make([]kmsg.TxnMetadataValueTopic, 0, 1)
	for _, tp := range tps {
		if n := len(topics); n == 0 || topics[n-1].Topic != tp.Topic {
			t := kmsg.NewTxnMetadataValueTopic()
			t.Topic = tp.Topic
			topics = append(topics, t)
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	return topics
}

// decodeKey returns the transactional id of a record.
func decodeKey(key []byte) (string, error) {
	if len(key) < 2 {
		return "", fmt.Errorf("%w: key of %d bytes", ErrCorruptRecord, len(key))
	}
	if version := int16(binary.BigEndian.Uint16(key)); version != keyVersion {
		return "", fmt.Errorf("%w: key version %d", ErrUnknownVersion, version)
	}
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return "", fmt.Errorf("%w: key: %w", ErrCorruptRecord, err)
	}
	if k.TransactionalID == "" {
		return "", fmt.Errorf("%w: empty transactional id", ErrCorruptRecord)
	}
	return k.TransactionalID, nil
}

// decodeValue reads versions 0 and 1.
func decodeValue(value []byte) (metadata, error) {
	if len(value) < 2 {
		return metadata{}, fmt.Errorf("%w: value of %d bytes", ErrCorruptRecord, len(value))
	}
	if version := int16(binary.BigEndian.Uint16(value)); version < valueVersionFirst || version > valueVersion {
		return metadata{}, fmt.Errorf("%w: value version %d", ErrUnknownVersion, version)
	}
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(value); err != nil {
		return metadata{}, fmt.Errorf("%w: value: %w", ErrCorruptRecord, err)
	}
	md := metadata{
		producerID:    batch.ProducerID(v.ProducerID),
		previousID:    batch.ProducerID(v.PreviousProducerID),
		nextID:        batch.ProducerID(v.NextProducerID),
		epoch:         batch.Epoch(v.ProducerEpoch),
		lastEpoch:     batch.NoEpoch,
		timeoutMs:     v.TimeoutMillis,
		state:         State(v.State),
		startMs:       v.StartTimestamp,
		updateMs:      v.LastUpdateTimestamp,
		clientVersion: v.ClientTransactionVersion,
	}
	if !md.state.persistent() {
		return metadata{}, fmt.Errorf("%w: state %v", ErrCorruptRecord, md.state)
	}
	if md.producerID < 0 || md.epoch < 0 {
		return metadata{}, fmt.Errorf("%w: producer id %d, epoch %d", ErrCorruptRecord, md.producerID, md.epoch)
	}
	if err := decodeLastEpoch(&v, &md); err != nil {
		return metadata{}, err
	}
	return md, decodePartitions(&v, &md)
}

func decodeLastEpoch(v *kmsg.TxnMetadataValue, md *metadata) (err error) {
	v.UnknownTags.Each(func(tag uint32, val []byte) {
		if tag != tagLastEpoch {
			return
		}
		if len(val) != 2 {
			err = fmt.Errorf("%w: last epoch of %d bytes", ErrCorruptRecord, len(val))
			return
		}
		md.lastEpoch = batch.Epoch(binary.BigEndian.Uint16(val))
	})
	return err
}

// decodePartitions fills md.partitions, which only an open transaction has.
func decodePartitions(v *kmsg.TxnMetadataValue, md *metadata) error {
	if md.state.resting() {
		return nil
	}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if p < 0 {
				return fmt.Errorf("%w: partition %d of topic %q", ErrCorruptRecord, p, t.Topic)
			}
			md.partitions = append(md.partitions, batch.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	md.partitions = sortedUnique(md.partitions)
	return nil
}
