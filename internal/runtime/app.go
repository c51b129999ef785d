package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/internal/store"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrAlreadyRun says that Run was called a second time; make a new App.
var ErrAlreadyRun = errors.New("the app was already run")

// App runs a topology in one process, with one or more workers.
type App struct {
	opts Options
	log  *slog.Logger

	started atomic.Bool
	dir     *stateDir
	layout  layout
	shared  *store.Shared

	mu      sync.Mutex // guards state and workers
	state   State
	workers []*worker
}

// New checks the options. Nothing is opened or sent before Run.
func New(o Options) (*App, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &App{opts: o, log: o.Logger.With("application", o.ApplicationID)}, nil
}

// Describe prints the topology with its internal topics' full names.
func (a *App) Describe() string { return a.opts.Topology.Describe() }

// State is what the App is doing.
func (a *App) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Stats adds up the workers' counters.
func (a *App) Stats() Stats {
	a.mu.Lock()
	workers := a.workers
	a.mu.Unlock()
	s := Stats{Aborts: make(map[string]int64)}
	nowMs := time.Now().UnixMilli()
	for _, w := range workers {
		w.stats.addTo(&s)
		for _, p := range w.restores() {
			s.Restores = append(s.Restores, p.snapshot(nowMs))
		}
	}
	return s
}

// Run processes until ctx is cancelled or a worker fails. On cancellation it
// commits what is done, leaves the group, closes the stores and returns nil.
func (a *App) Run(ctx context.Context) error {
	if a.started.Swap(true) {
		return ErrAlreadyRun
	}
	a.opts.Faults = faults.From(ctx)
	err := a.run(ctx)
	if err != nil {
		a.setState(StateError)
		return fmt.Errorf("application %s: %w", a.opts.ApplicationID, err)
	}
	a.setState(StateNotRunning)
	return nil
}

func (a *App) run(ctx context.Context) (err error) {
	if a.dir, err = openStateDir(a.opts.FS, a.opts.StateDir, a.opts.ApplicationID, a.opts.InstanceID); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.dir.close()) }()
	a.setState(StateRebalancing)
	if err := a.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // cancelled before anything was started
		}
		return err
	}
	a.shared = store.NewShared(0, 0)
	defer a.shared.Close()
	return a.runWorkers(ctx)
}

// prepare checks and creates topics over a client of its own.
func (a *App) prepare(ctx context.Context) error {
	cl, err := kgo.NewClient(a.opts.clientOpts("prepare")...)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer cl.Close()
	a.layout, err = prepareTopics(ctx, cl, &a.opts)
	return err
}

// runWorkers runs all workers until the first fails or ctx ends.
func (a *App) runWorkers(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	workers := make([]*worker, 0, a.opts.Workers)
	for n := range a.opts.Workers {
		workers = append(workers, newWorker(a, n+1))
	}
	a.mu.Lock()
	a.workers = workers
	a.mu.Unlock()
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() {
			if errs[i] = w.run(ctx); errs[i] != nil {
				a.log.Error("worker failed", "worker", w.number, "err", errs[i])
			}
			stop()
		})
	}
	stopping := make(chan struct{})
	go func() {
		defer close(stopping)
		<-ctx.Done()
		a.setState(StatePendingShutdown)
	}()
	wg.Wait()
	stop()
	<-stopping
	return errors.Join(errs...)
}

// workerChanged recomputes the state after a worker's tasks changed.
func (a *App) workerChanged() {
	a.mu.Lock()
	settled := len(a.workers) > 0
	for _, w := range a.workers {
		if !w.joined.Load() || w.stats.tasks.Load() != w.stats.running.Load() {
			settled = false
		}
	}
	a.mu.Unlock()
	if settled {
		a.setState(StateRunning)
	} else {
		a.setState(StateRebalancing)
	}
}

// setState follows the states' order: a shutdown is never undone.
func (a *App) setState(to State) {
	a.mu.Lock()
	from := a.state
	if from == to || from >= StateNotRunning || from == StatePendingShutdown && to < StateNotRunning {
		a.mu.Unlock()
		return
	}
	a.state = to
	a.mu.Unlock()
	a.log.Info("state changed", "from", from, "to", to)
	a.opts.StateListener(from, to)
}
