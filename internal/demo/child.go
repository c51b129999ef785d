package demo

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stopGrace is how long a child may take to end by itself when asked.
const stopGrace = 20 * time.Second

// child is a process that the demo started and owns: it is ended, and waited
// for, before the demo returns.
type child struct {
	name  string
	log   string // the file of its standard error
	cmd   *exec.Cmd
	stdin io.Closer // closes when we die: the child then ends by itself
	// done is closed when the process has ended and its output has been read;
	// exitErr, set before, says how it ended.
	done    chan struct{}
	exitErr error
	ending  atomic.Bool // somebody has asked for the end
}

// family is all the children of a run.
type family struct {
	unexpected func(error)

	mu       sync.Mutex
	children map[*child]struct{}
	closed   bool
}

func newFamily(unexpected func(error)) *family {
	return &family{unexpected: unexpected, children: make(map[*child]struct{})}
}

// start runs executable with args. Each line of its standard output is given to
// onLine, from one goroutine; its standard error goes to the file logPath. An end
// that nobody asked for is reported to unexpected.
func (f *family) start(name, executable string, args []string, logPath string, onLine func(line []byte)) (*child, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer log.Close() // the child has its own copy
	c := &child{name: name, log: logPath, cmd: exec.Command(executable, args...), done: make(chan struct{})}
	c.cmd.SysProcAttr = childAttributes()
	c.cmd.Stderr = log
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fmt.Errorf("starting %s: the run is over", name)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	f.children[c] = struct{}{}
	go func() {
		scanner := bufio.NewScanner(stdout)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			onLine(scanner.Bytes())
		}
		c.exitErr = c.cmd.Wait()
		f.mu.Lock()
		delete(f.children, c)
		f.mu.Unlock()
		close(c.done)
		if !c.ending.Load() {
			f.unexpected(fmt.Errorf("%s (process %d) ended by itself with %s", name, c.pid(), c.obituary()))
		}
	}()
	return c, nil
}

// kill ends the process at once (kill -9) and waits for it.
func (c *child) kill() {
	c.ending.Store(true)
	c.cmd.Process.Kill() // an error says that it has ended already
	<-c.done
}

// stop asks the process to end, waits, and kills it where it does not. The
// error says how it ended, nil if well.
func (c *child) stop() error {
	c.ending.Store(true)
	if err := terminateProcess(c.cmd.Process); err != nil {
		c.cmd.Process.Kill()
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.kill()
		return fmt.Errorf("%s did not end within %v of being asked to, and was killed", c.name, stopGrace)
	}
	if c.exitErr != nil {
		return fmt.Errorf("%s ended with %s", c.name, c.obituary())
	}
	return nil
}

// obituary says how the process ended, with the end of its log: the log itself may
// be gone with the run's directory before anyone looks.
func (c *child) obituary() string {
	const linesMax = 5
	content, err := os.ReadFile(c.log)
	if err != nil {
		return fmt.Sprintf("%v (no log: %v)", c.exitErr, err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	lines = lines[max(0, len(lines)-linesMax):]
	return fmt.Sprintf("%v; the end of its log %s:\n  %s", c.exitErr, c.log, strings.Join(lines, "\n  "))
}

// pid is the process id, for people.
func (c *child) pid() int { return c.cmd.Process.Pid }

// close kills whatever still runs and lets nothing start any more.
func (f *family) close() {
	f.mu.Lock()
	f.closed = true
	left := make([]*child, 0, len(f.children))
	for c := range f.children {
		left = append(left, c)
	}
	f.mu.Unlock()
	for _, c := range left {
		c.kill()
	}
}
