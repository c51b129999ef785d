package txn

import (
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// decideAdd is TransactionCoordinator.handleAddPartitionsToTransaction and
// handleVerifyPartitionsInTransaction.
func (m *Machine) decideAdd(eff *Effects, nowMs int64, c AddPartitions) {
	partitions := sortedUnique(slices.Clone(c.Partitions))
	e := m.entries[c.TransactionalID]
	switch {
	case c.TransactionalID == "":
		eff.answerAdd(c.Token, codeInvalidRequest, partitions, nil)
	case e == nil || e.md.producerID != c.ProducerID:
		eff.answerAdd(c.Token, codeInvalidProducerMapping, partitions, nil)
	case e.md.epoch != c.Epoch:
		eff.answerAdd(c.Token, codeProducerFenced, partitions, nil)
	case e.md.state.prepared() && c.Wait && len(e.stalled) == 0:
		e.waiting = append(e.waiting, parkedAdd{cmd: c, sinceMs: nowMs})
		m.wake(nowMs + m.cfg.MaxWaitMs)
	case e.md.state.prepared():
		eff.answerAdd(c.Token, codeConcurrentTransactions, partitions, nil)
	case c.VerifyOnly:
		eff.answerAdd(c.Token, codeNone, partitions, &e.md)
	case e.md.state == Ongoing && containsAll(e.md.partitions, partitions):
		eff.answerAdd(c.Token, codeNone, partitions, nil)
	default:
		var version int16
		if c.TV2 {
			version = 2
		}
		m.write(eff, e.id, e.md, e.md.add(partitions, version, nowMs))
		eff.answerAdd(c.Token, codeNone, partitions, nil)
	}
}

// answerAdd answers with one code for all partitions; if verify is set, with 120
// for those that are not part of its transaction.
func (eff *Effects) answerAdd(t Token, code int16, partitions []batch.TopicPartition, verify *metadata) {
	r := Reply{Token: t, Code: code, ProducerID: batch.NoProducerID, Epoch: batch.NoEpoch}
	r.Partitions = make([]PartitionResult, len(partitions))
	for i, tp := range partitions {
		r.Partitions[i] = PartitionResult{TopicPartition: tp, Code: code}
		if verify != nil && !containsAll(verify.partitions, partitions[i:i+1]) {
			r.Partitions[i].Code = codeTransactionAbortable
		}
	}
	eff.Replies = append(eff.Replies, r)
}
