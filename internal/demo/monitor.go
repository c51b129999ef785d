package demo

import (
	"context"
	"sync"
	"time"
)

// pollInterval is how often the monitor asks the cluster how far the group is.
const pollInterval = 300 * time.Millisecond

// backlogLinesPerSecond is how many lines may wait for the workers per second of
// their commit interval, however slow they are.
const backlogLinesPerSecond = 10_000

// monitor follows the group's committed offsets while the run goes on.
type monitor struct {
	cluster        *cluster
	application    string
	topics         Topics
	commitInterval time.Duration

	mu          sync.Mutex
	lines       lag // of the input topic
	words       lag // of the repartition topic
	rate        float64
	polledAt    time.Time
	repartition []string
}

// run polls until ctx is done. A poll that fails is left out: the broker may be
// down at this moment, on purpose.
func (m *monitor) run(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			pollCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
			m.poll(pollCtx)
			cancel()
		}
	}
}

func (m *monitor) poll(ctx context.Context) error {
	m.mu.Lock()
	repartition := m.repartition
	m.mu.Unlock()
	if len(repartition) == 0 {
		var err error
		if repartition, err = m.cluster.topicsWithSuffix(ctx, m.application, "-repartition"); err != nil {
			return err
		}
	}
	lags, err := m.cluster.lags(ctx, m.application, append([]string{m.topics.Lines}, repartition...)...)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repartition = repartition
	lines := lags[m.topics.Lines]
	now := time.Now()
	if !m.polledAt.IsZero() {
		recent := float64(lines.committed-m.lines.committed) / now.Sub(m.polledAt).Seconds()
		m.rate += (recent - m.rate) / 3
	}
	m.polledAt, m.lines, m.words = now, lines, lag{}
	for _, topic := range repartition {
		m.words.committed += lags[topic].committed
		m.words.behind += lags[topic].behind
		m.words.partition = append(m.words.partition, lags[topic].partition...)
	}
	return nil
}

// linesCommitted is the number of input lines whose processing is committed.
func (m *monitor) linesCommitted() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines.committed
}

// backlogMax is how many lines may be fed beyond the committed ones: what the
// workers did in the last two seconds, and none where the counting is far behind
// the splitting.
func (m *monitor) backlogMax() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	backlog := max(int(backlogLinesPerSecond*m.commitInterval.Seconds()), int(2*m.rate))
	const wordsPerLine = 8 // about; the words' own backlog is allowed as much
	if m.words.behind > int64(backlog*wordsPerLine) {
		return 0
	}
	return backlog
}

// snapshot returns the state of the last poll.
func (m *monitor) snapshot() (lines, words lag, linesPerSecond float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines, m.words, m.rate
}
