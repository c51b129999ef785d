package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// console prints the progress of a run: events on lines of their own, and a
// status line that a terminal redraws in place and a pipe gets every few
// seconds.
type console struct {
	out      io.Writer
	failed   func(error) // called where out takes no more
	terminal bool
	started  time.Time

	mu       sync.Mutex
	status   string // what the terminal's last line shows
	statusAt time.Time
}

// pipeStatusInterval is how often a pipe gets the status line.
const pipeStatusInterval = 2 * time.Second

func newConsole(out io.Writer, failed func(error)) *console {
	c := &console{out: out, failed: failed, started: time.Now()}
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil {
			c.terminal = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
		}
	}
	return c
}

func (c *console) print(s string) {
	if _, err := io.WriteString(c.out, s); err != nil {
		c.failed(fmt.Errorf("printing the progress: %w", err))
	}
}

const clearLine = "\r\x1b[K"

// event prints one thing that happened, with the time since the start.
func (c *console) event(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal {
		c.print(clearLine)
	}
	c.print(fmt.Sprintf("%s  %s\n", c.clock(), fmt.Sprintf(format, args...)))
	if c.terminal {
		c.print(c.status)
	}
}

// setStatus shows how far the run is.
func (c *console) setStatus(status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status = c.clock() + "  " + status
	if c.terminal {
		// A line that wraps could not be cleared again.
		status = cut(status, terminalColumns(c.out.(*os.File))-1)
		c.status = status
		c.print(clearLine + status)
		return
	}
	if now := time.Now(); now.Sub(c.statusAt) >= pipeStatusInterval {
		c.statusAt = now
		c.print(status + "\n")
	}
}

// cut returns the first columns characters of s.
func cut(s string, columns int) string {
	for i := range s {
		if columns--; columns < 0 {
			return s[:i]
		}
	}
	return s
}

// endStatus takes the status line away.
func (c *console) endStatus() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal && c.status != "" {
		c.status = ""
		c.print(clearLine)
	}
}

func (c *console) clock() string {
	return fmt.Sprintf("%6.1fs", time.Since(c.started).Seconds())
}

// number writes n with thousands separated, for people.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// counted writes n with its noun, in the plural where n is not 1.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}
