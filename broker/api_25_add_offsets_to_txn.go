package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// AddOffsetsToTxn, key 25, versions 0 to 4: adds the group's partition of
// __consumer_offsets to the transaction.

func (b *Broker) addOffsetsToTxn(r *request) reply {
	req := r.Request.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	p, err := b.coordinator(topicOffsets, req.Group)
	if err != nil {
		resp.ErrorCode = coordinatorMissing
		return reply{resp: resp}
	}
	a, ok := b.txnCall(req.TransactionalID, func(t txn.Token) txn.Command {
		return txn.AddPartitions{
			Token: t, TransactionalID: req.TransactionalID, ProducerID: batch.ProducerID(req.ProducerID),
			Epoch: batch.Epoch(req.ProducerEpoch), Partitions: []batch.TopicPartition{p.TP},
		}
	})
	if !ok {
		return hangup
	}
	code := a.value.Code
	if code == 0 && len(a.value.Partitions) > 0 {
		code = a.value.Partitions[0].Code
	}
	resp.ErrorCode = txn.WireCode(req.Key(), req.Version, code)
	return reply{resp: resp, lsn: a.lsn}
}
