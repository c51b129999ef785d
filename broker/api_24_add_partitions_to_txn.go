package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// AddPartitionsToTxn, key 24, versions 0 to 5. Clients use 0 to 3, with one
// transaction; 4 and 5 carry several and serve brokers (KIP-890), which a
// single node does not need. They are answered for tools that use them.

func (b *Broker) addPartitionsToTxn(r *request) reply {
	req := r.Request.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version >= 4 {
		return b.addManyToTxn(req, resp)
	}
	var want []batch.TopicPartition
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			want = append(want, batch.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	codes, lsn, ok := b.addToTxn(req.TransactionalID, req.ProducerID, req.ProducerEpoch, want, false, false)
	if !ok {
		return hangup
	}
	for _, t := range req.Topics {
		rt := kmsg.NewAddPartitionsToTxnResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			rp.Partition = p
			rp.ErrorCode = txn.WireCode(req.Key(), req.Version, codes[batch.TopicPartition{Topic: t.Topic, Partition: p}])
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply{resp: resp, lsn: lsn}
}

func (b *Broker) addManyToTxn(req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) reply {
	var last seglog.LSN
	for _, x := range req.Transactions {
		var want []batch.TopicPartition
		for _, t := range x.Topics {
			for _, p := range t.Partitions {
				want = append(want, batch.TopicPartition{Topic: t.Topic, Partition: p})
			}
		}
		codes, lsn, ok := b.addToTxn(x.TransactionalID, x.ProducerID, x.ProducerEpoch, want, x.VerifyOnly, true)
		if !ok {
			return hangup
		}
		last = max(last, lsn)
		rx := kmsg.NewAddPartitionsToTxnResponseTransaction()
		rx.TransactionalID = x.TransactionalID
		for _, t := range x.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				rp.Partition, rp.ErrorCode = p, codes[batch.TopicPartition{Topic: t.Topic, Partition: p}]
				rt.Partitions = append(rt.Partitions, rp)
			}
			rx.Topics = append(rx.Topics, rt)
		}
		resp.Transactions = append(resp.Transactions, rx)
	}
	return reply{resp: resp, lsn: last}
}

// addToTxn adds (or verifies) partitions and returns a code for each. If one
// of them does not exist, or is internal, none is added.
func (b *Broker) addToTxn(id string, pid int64, epoch int16, want []batch.TopicPartition, verify, tv2 bool) (map[batch.TopicPartition]int16, seglog.LSN, bool) {
	codes := make(map[batch.TopicPartition]int16, len(want))
	missing := false
	for _, tp := range want {
		switch {
		case isInternal(tp.Topic):
			codes[tp], missing = kerr.TopicAuthorizationFailed.Code, true
		case b.topics.partition(tp) == nil:
			codes[tp], missing = kerr.UnknownTopicOrPartition.Code, true
		}
	}
	if missing {
		for _, tp := range want {
			if codes[tp] == 0 {
				codes[tp] = kerr.OperationNotAttempted.Code
			}
		}
		return codes, 0, true
	}
	a, ok := b.txnCall(id, func(t txn.Token) txn.Command {
		return txn.AddPartitions{
			Token: t, TransactionalID: id, ProducerID: batch.ProducerID(pid), Epoch: batch.Epoch(epoch),
			Partitions: want, VerifyOnly: verify, TV2: tv2,
		}
	})
	if !ok {
		return nil, 0, false
	}
	for _, tp := range want {
		codes[tp] = a.value.Code
	}
	for _, r := range a.value.Partitions {
		codes[r.TopicPartition] = r.Code
	}
	return codes, a.lsn, true
}
