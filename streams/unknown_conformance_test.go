//go:build conformance

package streams_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/streams"
)

// What the cutter does with EndTxn requests.
const (
	cutNothing int32 = iota
	cutReply         // the request arrives, the connection breaks before the reply
	cutRequest       // the request never arrives
)

const endTxnKey = 26

// cutter is a network that breaks connections around EndTxn.
type cutter struct{ mode atomic.Int32 }

func (c *cutter) dial(ctx context.Context, network, host string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, cutter: c}, nil
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

// Write sees whole requests: kgo writes each in one call.
func (c *cutConn) Write(request []byte) (int, error) {
	if len(request) < 6 || binary.BigEndian.Uint16(request[4:]) != endTxnKey {
		return c.Conn.Write(request)
	}
	switch c.cutter.mode.Load() {
	case cutReply:
		n, err := c.Conn.Write(request)
		c.Conn.Close()
		return n, err
	case cutRequest:
		c.Conn.Close()
		return 0, errors.New("cut before the request")
	}
	return c.Conn.Write(request)
}

// The answer to EndTxn stays away until the producer gives up: the outcome is
// unknown, and must be found out before the stores move.
func TestUnknownOutcome(t *testing.T) {
	for _, test := range []struct {
		name   string
		faults faults.Set
	}{{name: "is resolved"}, {name: "control: taken for aborted", faults: faults.Set{UnknownIsAborted: true}}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			c := b.config(2)
			c.transactionTimeout = time.Second // also how long EndTxn is tried
			network := &cutter{}
			app, err := newWordCountOver(c, benchLogger(), network.dial)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(faults.With(t.Context(), test.faults))
			done := make(chan error, 1)
			go func() { done <- app.Run(ctx) }()
			random := rand.New(rand.NewPCG(9, 10))
			want := make(map[string]int64)
			b.feed(c, 2*time.Second, random, want)
			for round := range 6 {
				network.mode.Store(cutReply + int32(round%2))
				b.feed(c, 1500*time.Millisecond, random, want)
				network.mode.Store(cutNothing)
				b.feed(c, time.Second, random, want)
			}
			bad, detail := b.violations(c.out, want, 20*time.Second)
			stats := app.Stats()
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			t.Logf("%d violations%s; %+v", bad, detail, stats)
			if stats.Unknown == 0 {
				t.Error("no outcome was unknown: the run proves nothing")
			}
			if broken := test.faults != (faults.Set{}); (bad > 0) != broken {
				t.Errorf("%d violations, broken on purpose: %v", bad, broken)
			}
		})
	}
}

func newWordCountOver(c wordCountConfig, log logger, dial func(context.Context, string, string) (net.Conn, error)) (*streams.App, error) {
	topology, err := wordCountTopology(c)
	if err != nil {
		return nil, err
	}
	config := c.streams(log)
	config.DialContext = dial
	return streams.New(topology, config)
}
