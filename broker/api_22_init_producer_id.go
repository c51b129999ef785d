package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// InitProducerId, key 22, versions 0 to 5 (KIP-98, KIP-360). Version 6
// (two-phase commit, KIP-939) is not offered.

func (b *Broker) initProducerID(r *request) reply {
	req := r.Request.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	pid, epoch := batch.ProducerID(req.ProducerID), batch.Epoch(req.ProducerEpoch)
	if req.Version < 3 {
		pid, epoch = batch.NoProducerID, batch.NoEpoch
	}
	switch {
	case (pid == batch.NoProducerID) != (epoch == batch.NoEpoch),
		req.TransactionalID != nil && *req.TransactionalID == "":
		resp.ErrorCode = kerr.InvalidRequest.Code
		return reply{resp: resp}
	case req.TransactionalID == nil:
		id, ok := b.ids.next()
		if !ok {
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			return reply{resp: resp}
		}
		resp.ProducerID, resp.ProducerEpoch = int64(id), 0
		return reply{resp: resp}
	}
	a, ok := b.txnCall(*req.TransactionalID, func(t txn.Token) txn.Command {
		return txn.Init{
			Token: t, TransactionalID: *req.TransactionalID, TimeoutMs: req.TransactionTimeoutMillis,
			ProducerID: pid, Epoch: epoch, Version: req.Version,
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
