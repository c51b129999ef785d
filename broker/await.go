package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
	"github.com/hanbeon/hanbeon/internal/txn"
)

// answer is one shard's answer, and the journal position to wait for.
type answer[T any] struct {
	value T
	lsn   seglog.LSN
}

// await starts a command and waits for its answer; false when the broker
// closes first.
func await[T any](b *Broker, start func(done func(T, seglog.LSN))) (answer[T], bool) {
	c := make(chan answer[T], 1)
	start(func(v T, lsn seglog.LSN) { c <- answer[T]{v, lsn} })
	select {
	case a := <-c:
		return a, true
	case <-b.ctx.Done():
		return answer[T]{}, false
	}
}

var hangup = reply{err: errHangup}

// coordinatorMissing tells a client that its coordinator's topic cannot be
// opened: it retries.
var coordinatorMissing = kerr.CoordinatorNotAvailable.Code

// txnCall sends a command to a transactional id's coordinator.
func (b *Broker) txnCall(id string, makeCmd func(txn.Token) txn.Command) (answer[txn.Reply], bool) {
	p, err := b.coordinator(topicTransactions, id)
	if err != nil {
		return answer[txn.Reply]{value: txn.Reply{Code: coordinatorMissing, ProducerID: -1, Epoch: -1}}, true
	}
	return await(b, func(done func(txn.Reply, seglog.LSN)) { p.Txn(makeCmd, done) })
}

// groupCall sends a command to a group's coordinator and returns its
// reply; the code is not 0 if there is none.
func (b *Broker) groupCall(groupID string, makeCmd func(group.Token) group.Command) (a answer[group.Reply], code int16, ok bool) {
	p, err := b.coordinator(topicOffsets, groupID)
	if err != nil {
		return a, coordinatorMissing, true
	}
	a, ok = await(b, func(done func(group.Reply, seglog.LSN)) { p.Group(makeCmd, done) })
	if ok && a.value.Token == 0 {
		code = kerr.NotCoordinator.Code
	}
	return a, code, ok
}

// groupReply finishes a request that is one command to one group.
func (b *Broker) groupReply(groupID string, refused func(code int16) kmsg.Response, makeCmd func(group.Token) group.Command) reply {
	a, code, ok := b.groupCall(groupID, makeCmd)
	switch {
	case !ok:
		return hangup
	case code != 0:
		return reply{resp: refused(code), lsn: a.lsn}
	}
	return reply{resp: a.value.Response, lsn: a.lsn}
}

// query reads the state of every partition of an internal topic, one after
// the other, and returns the position that makes all of it durable.
func (b *Broker) query(topic string, read func(p *shard.Partition, done func(ok bool, lsn seglog.LSN))) (seglog.LSN, error) {
	var last seglog.LSN
	t := b.topics.byName(topic)
	if t == nil {
		return 0, nil
	}
	for _, p := range t.Partitions {
		a, ok := await(b, func(done func(bool, seglog.LSN)) { read(p, done) })
		switch {
		case !ok:
			return 0, context.Cause(b.ctx)
		case !a.value:
			return 0, errNotAvailable
		}
		last = max(last, a.lsn)
	}
	return last, nil
}

var errNotAvailable = errors.New("coordinator not available")
