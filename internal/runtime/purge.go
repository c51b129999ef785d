package runtime

import (
	"context"
	"log/slog"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// purgeInterval is Kafka Streams' repartition.purge.interval.ms.
const purgeInterval = 30 * time.Second

// purger deletes what was committed from repartition topics, which have no
// retention of their own. It works behind the worker: a purge that fails is
// made up for by the next.
type purger struct {
	cl       *kgo.Client
	log      *slog.Logger
	internal map[string]bool // repartition topics
	upTo     map[batch.TopicPartition]int64
	last     time.Time
	cancel   context.CancelFunc
	done     chan struct{}
}

func newPurger(w *worker) *purger {
	p := &purger{cl: w.control, log: w.log, internal: make(map[string]bool), upTo: make(map[batch.TopicPartition]int64), last: time.Now()}
	for _, sub := range w.opts.Topology.Subtopologies {
		for _, s := range sub.Sources {
			if s.Repartition {
				p.internal[s.Topic] = true
			}
		}
	}
	return p
}

// note remembers the committed positions of a task's repartition topics.
func (p *purger) note(t *activeTask) {
	if len(p.internal) == 0 {
		return
	}
	for topic, offset := range t.start {
		if p.internal[topic] {
			p.upTo[batch.TopicPartition{Topic: topic, Partition: t.id.Partition}] = offset
		}
	}
}

// kick starts a purge when one is due and none is under way.
func (p *purger) kick() {
	if len(p.upTo) == 0 || time.Since(p.last) < purgeInterval {
		return
	}
	if p.done != nil {
		select {
		case <-p.done:
		default:
			return
		}
	}
	p.last = time.Now()
	req := p.request()
	clear(p.upTo)
	ctx, cancel := context.WithTimeout(context.Background(), purgeInterval)
	done := make(chan struct{})
	p.cancel, p.done = cancel, done
	go func() {
		defer close(done)
		defer cancel()
		if _, err := req.RequestWith(ctx, p.cl); err != nil && ctx.Err() == nil {
			p.log.Info("purging repartition topics failed; the next purge makes up for it", "err", err)
		}
	}()
}

func (p *purger) request() *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 15_000
	partitions := make([]batch.TopicPartition, 0, len(p.upTo))
	for tp := range p.upTo {
		partitions = append(partitions, tp)
	}
	byTopic := groupByTopic(partitions)
	for _, topic := range sortedKeys(byTopic) {
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = topic
		for _, n := range byTopic[topic] {
			rp := kmsg.NewDeleteRecordsRequestTopicPartition()
			rp.Partition, rp.Offset = n, p.upTo[batch.TopicPartition{Topic: topic, Partition: n}]
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// close waits for a purge under way to give up.
func (p *purger) close() {
	if p.done != nil {
		p.cancel()
		<-p.done
	}
}
