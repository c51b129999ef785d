package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// damage is what Pebble's own goroutines found: every later use of the store fails
// with it, where Pebble alone would end the process or try for ever.
type damage struct {
	first atomic.Pointer[error]
	// stuck says that Pebble stopped in the middle of something, perhaps holding
	// its locks, so that even closing it could hang.
	stuck atomic.Bool
}

func (d *damage) set(err error) { d.first.CompareAndSwap(nil, &err) }

func (d *damage) get() error {
	if err := d.first.Load(); err != nil {
		return *err
	}
	return nil
}

// damaged is called for every block or file that cannot be read.
func (p *pebbleBase) damaged(info pebble.DataCorruptionInfo) {
	p.damage.set(corrupt(p.dir, info.Details))
}

// pebbleLogger passes errors on.
type pebbleLogger struct {
	log    *slog.Logger
	damage *damage
}

func (l *pebbleLogger) Infof(string, ...any) {}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	if l.log != nil {
		l.log.LogAttrs(context.Background(), slog.LevelWarn, "state store: "+fmt.Sprintf(format, args...))
	}
}

// Fatalf is called where Pebble cannot go on, such as after a failed write of its
// log, and must not return. Under a call of ours it panics, which that call turns
// into its error. On a goroutine of Pebble it ends that goroutine: the host program
// lives, and the store's next use reports the damage.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.damage.set(errors.New(text))
	l.damage.stuck.Store(true)
	l.Errorf("%s", text)
	if underOurCall() {
		panic(text)
	}
	runtime.Goexit()
}

// underOurCall looks for a method of pebbleBase among the callers.
func underOurCall() bool {
	pcs := make([]uintptr, 128)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "store.(*pebbleBase)") {
			return true
		}
		if !more {
			return false
		}
	}
}
