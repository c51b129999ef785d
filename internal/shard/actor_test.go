package shard

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/prodstate"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// broken is a partition in which every assertion fails: it has no machines.
func broken() *Partition {
	p := &Partition{env: &Env{Logger: slog.New(slog.DiscardHandler)}, replies: map[uint64]func(any, seglog.LSN){}}
	p.actor.wg = &p.env.wg
	p.actor.failed = p.fail
	return p
}

// A client whose request met a failed assertion is told, once: it would wait
// for ever, and with it whoever waits for its connection.
func TestAFailedAssertionAnswersTheCommandThatMetIt(t *testing.T) {
	storage, notCoordinator := kerr.KafkaStorageError.Code, kerr.NotCoordinator.Code
	for name, try := range map[string]func(p *Partition, answer func(code int16)){
		"produce": func(p *Partition, answer func(int16)) {
			p.Produce(&Produce{Header: batch.Header{ProducerID: 1}}, func(r ProduceResult) { answer(r.Code - storage) })
		},
		"an answer that panics": func(p *Partition, answer func(int16)) {
			p.prod = prodstate.New(prodstate.Options{})
			p.DescribeProducers(func([]prodstate.ActiveProducer, seglog.LSN) { answer(0); panic("in the answer") })
		},
		"marker": func(p *Partition, answer func(int16)) {
			p.WriteMarker(Marker{}, func(code int16, _ seglog.LSN) { answer(code - storage) })
		},
		"delete records": func(p *Partition, answer func(int16)) {
			p.DeleteRecords(0, func(_ batch.Offset, code int16, _ seglog.LSN) { answer(code - storage) })
		},
		"describe producers": func(p *Partition, answer func(int16)) {
			p.DescribeProducers(func([]prodstate.ActiveProducer, seglog.LSN) { answer(0) })
		},
		"save":          func(p *Partition, answer func(int16)) { p.unsavedBytes = 1; p.Save(func() { answer(0) }) },
		"topic deleted": func(p *Partition, answer func(int16)) { p.TopicDeleted("t", nil, func(seglog.LSN) { answer(0) }) },
		"query": func(p *Partition, answer func(int16)) {
			p.QueryTxn(func(m *txn.Machine) { m.Len() }, func(ok bool, _ seglog.LSN) {
				if !ok {
					answer(0)
				}
			})
		},
		"transaction": func(p *Partition, answer func(int16)) {
			p.Txn(func(t txn.Token) txn.Command { return txn.EndTxn{Token: t} },
				func(r txn.Reply, _ seglog.LSN) { answer(r.Code - notCoordinator) })
		},
		"group": func(p *Partition, answer func(int16)) {
			p.Group(func(t group.Token) group.Command { return group.GroupOffsetFetch{Token: t} },
				func(r group.Reply, _ seglog.LSN) { answer(int16(r.Token)) })
		},
		"transactional offsets": func(p *Partition, answer func(int16)) {
			p.TxnOffsetCommit(&kmsg.TxnOffsetCommitRequest{}, func(r group.Reply, _ seglog.LSN) { answer(int16(r.Token)) },
				func(int16, seglog.LSN) { answer(-1) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := broken()
			var answers []int16
			try(p, func(off int16) { answers = append(answers, off) })
			p.env.Wait()
			if len(answers) != 1 || answers[0] != 0 {
				t.Errorf("the answers are off by %d, want one, by 0", answers)
			}
			if p.err == nil {
				t.Error("the shard goes on")
			}
		})
	}
}
