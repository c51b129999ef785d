package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// brokerReadyLine is how `hanbeon broker` says on standard output that it takes
// connections; the address follows.
const brokerReadyLine = "listening on "

// brokerStart is how long a broker may take to start, recovery included.
const brokerStart = 30 * time.Second

// brokerProcess is the run's own broker, which is killed and started again with
// the same directory and address.
type brokerProcess struct {
	family     *family
	executable string
	dir        string
	logPath    string
	address    string // of the first start; empty before
	child      *child
}

// start starts the broker and waits until it listens. The first start takes any
// free port, later ones the same again.
func (b *brokerProcess) start(ctx context.Context) error {
	listen := b.address
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	ready := make(chan string, 1)
	onLine := func(line []byte) {
		if address, ok := strings.CutPrefix(string(line), brokerReadyLine); ok {
			select {
			case ready <- strings.TrimSpace(address):
			default:
			}
		}
	}
	c, err := b.family.start("the broker", b.executable,
		[]string{"broker", "--dir", b.dir, "--listen", listen, "--with-parent"}, b.logPath, onLine)
	if err != nil {
		return err
	}
	timer := time.NewTimer(brokerStart)
	defer timer.Stop()
	select {
	case b.address = <-ready:
		b.child = c
		return nil
	case <-c.done:
		return fmt.Errorf("the broker ended while starting, with %s", c.obituary())
	case <-timer.C:
		c.kill()
		return fmt.Errorf("the broker was not ready within %v; its log: %s", brokerStart, b.logPath)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends the broker at once.
func (b *brokerProcess) kill() { b.child.kill() }

// stop ends the broker in order.
func (b *brokerProcess) stop() error {
	if b.child == nil {
		return errors.New("the broker was not started")
	}
	return b.child.stop()
}
