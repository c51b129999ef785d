package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// EndTxn, key 26, versions 0 to 5 (5 is transaction.version 2: the answer
// carries the producer id and epoch for the next transaction).
//
// Different from Kafka: the answer comes after the markers have been written
// in every partition, not before. From then on a late batch of the ended
// transaction is refused everywhere; in Kafka it is still accepted between
// the answer and the marker.

func (b *Broker) endTxn(r *request) reply {
	req := r.Request.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	a, ok := b.txnCall(req.TransactionalID, func(t txn.Token) txn.Command {
		return txn.EndTxn{
			Token: t, TransactionalID: req.TransactionalID, ProducerID: batch.ProducerID(req.ProducerID),
			Epoch: batch.Epoch(req.ProducerEpoch), Commit: req.Commit, Version: req.Version,
		}
	})
	if !ok {
		return hangup
	}
	if resp.ErrorCode = txn.WireCode(req.Key(), req.Version, a.value.Code); resp.ErrorCode == 0 {
		resp.ProducerID, resp.ProducerEpoch = int64(a.value.ProducerID), int16(a.value.Epoch)
	}
	return reply{resp: resp, lsn: a.lsn}
}
