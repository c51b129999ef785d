package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// DescribeTransactions, key 65, version 0.

func (b *Broker) describeTransactions(r *request) reply {
	req := r.Request.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	var last seglog.LSN
	for _, id := range req.TransactionalIDs {
		out := kmsg.NewDescribeTransactionsResponseTransactionState()
		out.TransactionalID = id // the rest stays 0 where there is an error, as in Kafka
		p, err := b.coordinator(topicTransactions, id)
		if err != nil {
			out.ErrorCode = coordinatorMissing
			resp.TransactionStates = append(resp.TransactionStates, out)
			continue
		}
		var d txn.Description
		a, ok := await(b, func(done func(bool, seglog.LSN)) {
			p.QueryTxn(func(m *txn.Machine) { d, out.ErrorCode = m.Describe(id) }, done)
		})
		switch {
		case !ok:
			return hangup
		case !a.value:
			out.ErrorCode = kerr.NotCoordinator.Code
		case out.ErrorCode == 0:
			describeTransaction(d, &out)
		}
		last = max(last, a.lsn)
		resp.TransactionStates = append(resp.TransactionStates, out)
	}
	return reply{resp: resp, lsn: last}
}

func describeTransaction(d txn.Description, out *kmsg.DescribeTransactionsResponseTransactionState) {
	out.State, out.TimeoutMillis, out.StartTimestamp = d.State.String(), d.TimeoutMs, d.StartMs
	out.ProducerID, out.ProducerEpoch = int64(d.ProducerID), int16(d.Epoch)
	for _, tp := range d.Partitions { // sorted by topic
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			t.Topic = tp.Topic
			out.Topics = append(out.Topics, t)
		}
		t := &out.Topics[len(out.Topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
}
