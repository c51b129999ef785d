package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// DescribeTransactions, key 65, version 0; ListTransactions, key 66, versions
// 0 to 2; DescribeProducers, key 61, version 0.

func (b *Broker) describeTransactions(r *request) reply {
	req := r.Request.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	var last seglog.LSN
	for _, id := range req.TransactionalIDs {
		out := kmsg.NewDescribeTransactionsResponseTransactionState()
		out.TransactionalID = id // the rest stays 0 where there is an error, as in Kafka
		p, err := b.coordinator(topicTransactions, id)
		if err != nil {
			out.ErrorCode = coordinatorCode(err)
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

func (b *Broker) describeProducers(r *request) reply {
	req := r.Request.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	var last seglog.LSN
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, n := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = n
			p := b.partition(t.Topic, n)
			switch {
			case checkTopicName(t.Topic) != "":
				rp.ErrorCode = kerr.InvalidTopicException.Code
			case p == nil:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				a, ok := await(b, func(done func([]prodstate.ActiveProducer, seglog.LSN)) { p.DescribeProducers(done) })
				if !ok {
					return hangup
				}
				for _, ap := range a.value {
					rp.ActiveProducers = append(rp.ActiveProducers, activeProducer(ap))
				}
				last = max(last, a.lsn)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp, lsn: last}
}

func activeProducer(ap prodstate.ActiveProducer) kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	out := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
	out.ProducerID, out.ProducerEpoch = int64(ap.ProducerID), int32(ap.Epoch)
	out.LastSequence, out.LastTimestamp = ap.LastSequence, ap.LastTimestampMs
	out.CoordinatorEpoch, out.CurrentTxnStartOffset = ap.CoordinatorEpoch, int64(ap.TxnStartOffset)
	return out
}
