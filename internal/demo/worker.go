package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hanbeon/hanbeon/verify"
)

// reportInterval is how often a worker writes its numbers to standard output.
const reportInterval = 200 * time.Millisecond

// WorkerConfig is what a worker process is told on its command line, as JSON.
type WorkerConfig struct {
	Brokers     string           `json:"brokers"`
	Application string           `json:"application"`
	Guarantee   verify.Guarantee `json:"guarantee"`
	StateDir    string           `json:"state_dir"`
	InstanceID  string           `json:"instance_id"`
	Topics      Topics           `json:"topics"`

	CommitIntervalMs     int64 `json:"commit_interval_ms"`
	SessionTimeoutMs     int64 `json:"session_timeout_ms"`
	TransactionTimeoutMs int64 `json:"transaction_timeout_ms"`
}

// memberID is the worker's name in the group, as a static member (KIP-345).
func (c WorkerConfig) memberID() string { return c.Application + "-" + c.InstanceID }

// WorkerStats is what a worker process reports of itself, as a JSON line on its
// standard output every 200 ms. All are totals since the process started.
type WorkerStats struct {
	// Lines and Words were processed, those that were rolled back and done again
	// counted each time.
	Lines      int64 `json:"lines"`
	Words      int64 `json:"words"`
	Commits    int64 `json:"commits"`
	Aborts     int64 `json:"aborts"`
	Rebalances int64 `json:"rebalances"`
	// Fenced is how often the broker refused the worker because another had
	// taken its place.
	Fenced  int64 `json:"fenced"`
	Retries int64 `json:"retries"`
	// FencedBecause is the last refusal, in words.
	FencedBecause string `json:"fenced_because,omitempty"`
	// Tasks is the number of tasks that the worker has now.
	Tasks int `json:"tasks"`
}

func (s *WorkerStats) add(o WorkerStats) {
	s.Lines += o.Lines
	s.Words += o.Words
	s.Commits += o.Commits
	s.Aborts += o.Aborts
	s.Rebalances += o.Rebalances
	s.Fenced += o.Fenced
	s.Retries += o.Retries
}

// wordCounter is the application as the worker process sees it.
type wordCounter interface {
	Run(ctx context.Context) error
	Stats() WorkerStats
}

// RunWorker is the body of a worker process: it runs the word count until ctx is
// done and reports its numbers to out.
func RunWorker(ctx context.Context, cfg WorkerConfig, out, logTo io.Writer) error {
	app, err := newWordCounter(cfg, logTo)
	if err != nil {
		return fmt.Errorf("building the word count: %w", err)
	}
	encoder := json.NewEncoder(out)
	report := func() error { return encoder.Encode(app.Stats()) }

	ctx, cancel := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	reporter.Go(func() {
		ticker := time.NewTicker(reportInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if report() != nil {
					cancel() // nobody reads us any more
					return
				}
			}
		}
	})
	err = app.Run(ctx)
	cancel()
	reporter.Wait()
	if reportErr := report(); err == nil {
		err = reportErr
	}
	return err
}
