package txn

import (
	"fmt"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Record is one record of `__transaction_state`. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// valueVersion is written: flexible, transaction.version 1 and above.
const valueVersion = 1

func encodeKey(id string) []byte { return batch.TxnKey(id) }

func encodeValue(md metadata) []byte {
	return batch.MarshalTxnValue(batch.TxnState{
		ProducerID:               md.producerID,
		Epoch:                    md.epoch,
		TimeoutMs:                md.timeoutMs,
		Status:                   batch.TxnStatus(md.state),
		Partitions:               md.partitions,
		LastUpdateMs:             md.updateMs,
		StartMs:                  md.startMs,
		PreviousProducerID:       md.previousID,
		NextProducerID:           md.nextID,
		ClientTransactionVersion: md.clientVersion,
		NextEpoch:                batch.NoEpoch,
		LastEpoch:                md.lastEpoch,
	}, valueVersion)
}

// decodeKey returns the transactional id of a record.
func decodeKey(key []byte) (string, error) {
	id, err := batch.ParseTxnKey(key)
	if err == nil && id == "" {
		err = fmt.Errorf("%w: transaction state record with an empty transactional id", batch.ErrCorrupt)
	}
	return id, err
}

// decodeValue reads versions 0 and 1, and refuses what no coordinator can have
// written.
func decodeValue(value []byte) (metadata, error) {
	s, err := batch.UnmarshalTxnValue(value)
	if err != nil {
		return metadata{}, err
	}
	md := metadata{
		producerID:    s.ProducerID,
		previousID:    s.PreviousProducerID,
		nextID:        s.NextProducerID,
		epoch:         s.Epoch,
		lastEpoch:     s.LastEpoch,
		timeoutMs:     s.TimeoutMs,
		state:         State(s.Status),
		startMs:       s.StartMs,
		updateMs:      s.LastUpdateMs,
		clientVersion: s.ClientTransactionVersion,
	}
	switch {
	case !md.state.persistent():
		return metadata{}, fmt.Errorf("%w: transaction in state %v, which is never stored", batch.ErrCorrupt, md.state)
	case md.producerID < 0 || md.epoch < 0:
		return metadata{}, fmt.Errorf("%w: transaction of producer id %d, epoch %d", batch.ErrCorrupt, md.producerID, md.epoch)
	case md.state.resting(): // only an open transaction has partitions
		return md, nil
	}
	for _, tp := range s.Partitions {
		if tp.Partition < 0 {
			return metadata{}, fmt.Errorf("%w: transaction with partition %d of topic %q", batch.ErrCorrupt, tp.Partition, tp.Topic)
		}
	}
	md.partitions = s.Partitions
	return md, nil
}
