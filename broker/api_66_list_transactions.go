package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// ListTransactions, key 66, versions 0 to 2.

func (b *Broker) listTransactions(r *request) reply {
	req := r.Request.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	f := txn.Filter{States: req.StateFilters, MinDurationMs: -1}
	for _, pid := range req.ProducerIDFilters {
		f.ProducerIDs = append(f.ProducerIDs, batch.ProducerID(pid))
	}
	if req.Version >= 1 {
		f.MinDurationMs = req.DurationFilterMillis
	}
	if req.Version >= 2 && req.TransactionalIDPattern != nil {
		f.IDPattern = *req.TransactionalIDPattern
	}
	now := time.Now().UnixMilli()
	// What does not depend on a partition is asked of an empty machine, so
	// that it is answered even before the internal topic exists.
	_, resp.UnknownStateFilters, resp.ErrorCode = txn.New(txn.Config{}).List(now, f)
	if resp.ErrorCode != 0 {
		return reply{resp: resp}
	}
	lsn, err := b.query(topicTransactions, func(p *shard.Partition, done func(bool, seglog.LSN)) {
		p.QueryTxn(func(m *txn.Machine) {
			listed, _, _ := m.List(now, f)
			for _, l := range listed {
				s := kmsg.NewListTransactionsResponseTransactionState()
				s.TransactionalID, s.ProducerID, s.TransactionState = l.TransactionalID, int64(l.ProducerID), l.State.String()
				resp.TransactionStates = append(resp.TransactionStates, s)
			}
		}, done)
	})
	if err != nil {
		resp.ErrorCode, resp.TransactionStates = kerr.CoordinatorNotAvailable.Code, nil
	}
	return reply{resp: resp, lsn: lsn}
}
