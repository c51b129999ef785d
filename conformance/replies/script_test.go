//go:build conformance

package replies_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// script is the run of one scenario on one peer.
type script struct {
	peer    *peer
	suffix  string // makes the scenario's names its own
	clients map[string]*client
	names   *naming
	steps   []step
	known   []difference // announced for the next step
	made    []string     // topics
	stop    string       // why the run ended early
}

// step is one request with its reply, as it is compared.
type step struct {
	request string
	lines   []line
	known   []difference
}

// line is one field of a reply.
type line struct{ path, value string }

// difference is a field that differs between the peers.
type difference struct{ path, kafka, ours, reason string }

// stopped ends a script that cannot go on.
type stopped struct{ error }

func newScript(p *peer, name string) *script {
	// The name of the scenario makes the two peers' names alike.
	var sum uint32
	for _, c := range name {
		sum = sum*31 + uint32(c)
	}
	s := &script{peer: p, suffix: fmt.Sprintf("-%x-%x", p.run, sum), clients: map[string]*client{}}
	s.names = newNaming(p, s.suffix)
	return s
}

func (s *script) close() {
	for _, c := range s.clients {
		c.close()
	}
}

func (s *script) fail(format string, args ...any) { panic(stopped{fmt.Errorf(format, args...)}) }

// name makes a topic, group or transactional id of this scenario.
func (s *script) name(what string) string { return what + s.suffix }

// client is the connection of that name.
func (s *script) client(name string) *client {
	c := s.clients[name]
	if c == nil {
		c = &client{s: s, name: name}
		s.clients[name] = c
	}
	return c
}

// do sends a request on the connection of client "a" and records the reply.
func (s *script) do(req kmsg.Request) kmsg.Response { return s.client("a").do(req) }

// differs announces that the reply to the next request differs on purpose.
func (s *script) differs(path, kafka, ours, reason string) {
	if reason == "" {
		s.fail("a difference needs a reason: %s", path)
	}
	s.known = append(s.known, difference{path, kafka, ours, reason})
}

// record adds a step.
func (s *script) record(who string, req kmsg.Request, resp kmsg.Response, err error) {
	st := step{request: fmt.Sprintf("%s: %s", who, s.names.describe(req)), known: s.known}
	s.known = nil
	switch {
	case err == nil:
		st.lines = s.names.lines(resp)
	case errors.Is(err, errClosed):
		st.lines = []line{{"connection", "closed"}}
	default:
		st.lines = []line{{"reply", err.Error()}}
	}
	s.steps = append(s.steps, st)
}

func (st step) reply() string {
	parts := make([]string, len(st.lines))
	for i, l := range st.lines {
		parts[i] = l.path + "=" + l.value
	}
	return strings.Join(parts, " ")
}

// untilTimeout bounds a wait for what a peer does on its own account: Kafka
// looks for timed-out transactions every 10 s.
const untilTimeout = 30 * time.Second

// until sends a request again and again until the reply is as wanted, and
// records that reply only: for what a peer does after it has answered, and for
// answers that say "try again".
func (c *client) until(req kmsg.Request, wanted func(kmsg.Response) bool) kmsg.Response {
	deadline := time.After(untilTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := c.ask(req)
		if err != nil || wanted(resp) {
			c.s.record(c.name, req, resp, err)
			return resp
		}
		select {
		case <-deadline:
			c.s.record(c.name, req, resp, err)
			c.s.fail("waited %v for another reply to %s", untilTimeout, kmsg.NameForKey(req.Key()))
		case <-tick.C:
		}
	}
}

func (s *script) until(req kmsg.Request, wanted func(kmsg.Response) bool) kmsg.Response {
	return s.client("a").until(req, wanted)
}

// typed turns a reply into its type; a nil reply (the connection was closed)
// stays nil.
func typed[R kmsg.Response](resp kmsg.Response) R {
	r, _ := resp.(R)
	return r
}
