package demo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
)

// worker is one place for a worker process: its state directory and identity
// stay, while processes in it come and go.
type worker struct {
	name   string
	config WorkerConfig

	// guarded by workers.mu:
	child  *child
	now    WorkerStats // of the running process
	before WorkerStats // of the processes that have ended
	frozen bool        // stopped, or continued and not yet seen to be fenced
}

// workers is the set of worker places of a run.
type workers struct {
	family     *family
	executable string
	logDir     string

	mu  sync.Mutex
	all []*worker
}

func newWorkers(f *family, executable, logDir string, configs []WorkerConfig) *workers {
	w := &workers{family: f, executable: executable, logDir: logDir}
	for i, config := range configs {
		w.all = append(w.all, &worker{name: "worker " + strconv.Itoa(i+1), config: config})
	}
	return w
}

// start starts a process in a worker's place.
func (ws *workers) start(w *worker) error {
	config, err := json.Marshal(w.config)
	if err != nil {
		return fmt.Errorf("starting %s: %w", w.name, err)
	}
	log := filepath.Join(ws.logDir, w.config.InstanceID+".log")
	onLine := func(line []byte) {
		var stats WorkerStats
		if json.Unmarshal(line, &stats) != nil {
			return // the last line of a killed process may be cut
		}
		ws.mu.Lock()
		w.now = stats
		ws.mu.Unlock()
	}
	c, err := ws.family.start(w.name, ws.executable, []string{"demo-worker", "--config", string(config)}, log, onLine)
	if err != nil {
		return err
	}
	ws.mu.Lock()
	w.child = c
	ws.mu.Unlock()
	return nil
}

// kill ends a worker's process at once and returns its pid.
func (ws *workers) kill(w *worker) int {
	ws.mu.Lock()
	c := w.child
	ws.mu.Unlock()
	c.kill()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.before.add(w.now)
	w.now, w.child = WorkerStats{}, nil
	return c.pid()
}

// pick chooses a worker that runs and is not frozen, one with tasks if possible;
// nil where there is none.
func (ws *workers) pick(random *rand.Rand) *worker {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var running, busy []*worker
	for _, w := range ws.all {
		if w.child == nil || w.frozen {
			continue
		}
		running = append(running, w)
		if w.now.Tasks > 0 {
			busy = append(busy, w)
		}
	}
	if len(busy) == 0 {
		busy = running
	}
	if len(busy) == 0 {
		return nil
	}
	return busy[random.IntN(len(busy))]
}

// allBusy reports whether every worker has a task.
func (ws *workers) allBusy() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return !slices.ContainsFunc(ws.all, func(w *worker) bool { return w.now.Tasks == 0 })
}

// setFrozen marks a worker as being frozen or a zombie, so that no other fault
// hits it, and returns its process.
func (ws *workers) setFrozen(w *worker, frozen bool) *child {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.frozen = frozen
	return w.child
}

// stats returns the numbers of one worker's running process.
func (ws *workers) stats(w *worker) WorkerStats {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.now
}

// total adds up the numbers of all processes that ran.
func (ws *workers) total() WorkerStats {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var total WorkerStats
	for _, w := range ws.all {
		total.add(w.before)
		total.add(w.now)
	}
	return total
}

// stop asks every worker to end, all at once, and waits.
func (ws *workers) stop() error {
	ws.mu.Lock()
	children := make([]*child, 0, len(ws.all))
	for _, w := range ws.all {
		if w.child != nil {
			children = append(children, w.child)
		}
	}
	ws.mu.Unlock()
	errs := make([]error, len(children))
	var group sync.WaitGroup
	for i, c := range children {
		group.Go(func() { errs[i] = c.stop() })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
