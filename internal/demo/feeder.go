package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/internal/producer"
)

// feedInterval is how often the feeder looks whether more lines are due.
const feedInterval = 20 * time.Millisecond

// feeder sends the text to the input topic through an idempotent producer: line
// i to partition i mod n, with its number as the key. It spreads the text over
// the duration and never gets far ahead of the workers, so that the run ends
// soon after the last line.
type feeder struct {
	text       text
	topic      string
	partitions int
	duration   time.Duration

	progress *monitor
	// faultsDone is closed when no more faults are to come. The last lines are
	// held back until then, so that every fault hits a run at work.
	faultsDone <-chan struct{}

	sent    atomic.Int64
	retries atomic.Int64 // requests and batches sent again
}

// heldBackPercent is the part of the text that waits for the last fault.
const heldBackPercent = 5

// run feeds until the text or, where it may be cut, the time is up, and returns
// the number of lines fed, all acknowledged.
func (f *feeder) run(ctx context.Context, brokers string) (int, error) {
	p, closeAll, err := newFeedProducer(ctx, brokers)
	if err != nil {
		return 0, fmt.Errorf("starting the feeder: %w", err)
	}
	defer closeAll()
	partitions := make([]*producer.Partition, f.partitions)
	for i := range partitions {
		if partitions[i], err = p.Partition(f.topic, int32(i)); err != nil {
			return 0, fmt.Errorf("starting the feeder: %w", err)
		}
	}

	ticker := time.NewTicker(feedInterval)
	defer ticker.Stop()
	start := time.Now()
	sent := 0
	for sent < len(f.text.Lines) {
		select {
		case <-ctx.Done():
			return sent, context.Cause(ctx)
		case <-ticker.C:
		}
		faultsDone := isClosed(f.faultsDone)
		elapsed := time.Since(start)
		due := f.due(elapsed, faultsDone)
		due = min(due, int(f.progress.linesCommitted())+f.progress.backlogMax())
		for ; sent < due; sent++ {
			key := strconv.AppendInt(nil, int64(sent), 10)
			if err := partitions[sent%f.partitions].Append(key, []byte(f.text.Lines[sent]), nil, time.Now().UnixMilli()); err != nil {
				return sent, fmt.Errorf("feeding line %d to %s-%d: %w", sent, f.topic, sent%f.partitions, err)
			}
		}
		f.sent.Store(int64(sent))
		f.retries.Store(int64(p.Stats().Retries))
		if elapsed >= f.duration && faultsDone && !f.text.Whole {
			break
		}
	}
	if err := p.Flush(ctx); err != nil {
		return sent, fmt.Errorf("waiting for the acknowledgement of the last lines: %w", errors.Join(err, context.Cause(ctx)))
	}
	f.retries.Store(int64(p.Stats().Retries))
	if acked := p.Stats().RecordsAcked; acked != uint64(sent) {
		return sent, fmt.Errorf("%d of %d lines were acknowledged", acked, sent)
	}
	return sent, nil
}

// newFeedProducer makes the idempotent producer and what it stands on.
func newFeedProducer(ctx context.Context, brokers string) (p *producer.Producer, closeAll func(), err error) {
	var clients []*kgo.Client
	closeAll = func() {
		if p != nil {
			p.Close()
		}
		for _, c := range clients {
			c.Close()
		}
	}
	for _, id := range []string{"hanbeon-demo-feeder", "hanbeon-demo-feeder-control"} {
		client, err := kgo.NewClient(append(clientOptions(brokers), kgo.ClientID(id))...)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, client)
	}
	p, err = producer.New(producer.Config{
		Data: clients[0], Control: clients[1], Compression: producer.CompressionLz4, RetryBackoffMax: 200 * time.Millisecond,
	})
	if err == nil {
		err = p.Init(ctx)
	}
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return p, closeAll, nil
}

// due is how many lines should have been sent after elapsed.
func (f *feeder) due(elapsed time.Duration, faultsDone bool) int {
	all := len(f.text.Lines)
	if !faultsDone {
		all -= max(1, all*heldBackPercent/100)
	}
	share := min(1, elapsed.Seconds()/f.duration.Seconds())
	return min(all, int(float64(len(f.text.Lines))*share))
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
