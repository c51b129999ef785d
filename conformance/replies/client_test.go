//go:build conformance

package replies_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// client is one connection to a peer. It sends what it is told and tries
// nothing again; after the peer has closed the connection the next request
// opens another.
type client struct {
	s    *script
	name string
	nc   net.Conn
	n    int32
}

// replyTimeout bounds the wait for one reply.
const replyTimeout = 10 * time.Second

var errClosed = errors.New("connection closed")

func (c *client) close() {
	if c.nc != nil {
		c.nc.Close()
		c.nc = nil
	}
}

// do sends a request, and records and returns the reply; nil if the peer closed
// the connection instead.
func (c *client) do(req kmsg.Request) kmsg.Response {
	resp, err := c.ask(req)
	c.s.record(c.name, req, resp, err)
	return resp
}

// ask is do without the record.
func (c *client) ask(req kmsg.Request) (kmsg.Response, error) {
	c.send(req)
	return c.read(req)
}

// send only sends: the reply comes later, or never. receive takes it.
func (c *client) send(req kmsg.Request) {
	c.n++
	c.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.name)).AppendRequest(nil, req, c.n))
}

func (c *client) write(frame []byte) {
	if c.nc == nil {
		nc, err := net.DialTimeout("tcp", c.s.peer.addr, replyTimeout)
		if err != nil {
			c.s.fail("%v", err)
		}
		c.nc = nc
	}
	if _, err := c.nc.Write(frame); err != nil {
		c.close()
	}
}

// receive records and returns the reply to a request that was sent.
func (c *client) receive(req kmsg.Request) kmsg.Response {
	resp, err := c.read(req)
	c.s.record(c.name+" (parked)", req, resp, err)
	return resp
}

// raw sends bytes that are no proper request and records what comes of it.
func (c *client) raw(what string, frame []byte) {
	c.write(frame)
	st := step{request: fmt.Sprintf("%s: %s", c.name, what), lines: []line{{"reply", "some"}}, known: c.s.known}
	c.s.known = nil
	if _, err := c.readFrame(); err != nil {
		st.lines = []line{{"connection", "closed"}}
	}
	c.s.steps = append(c.s.steps, st)
}

func (c *client) read(req kmsg.Request) (kmsg.Response, error) {
	b, err := c.readFrame()
	if err != nil {
		return nil, err
	}
	if id := int32(binary.BigEndian.Uint32(b)); id != c.n {
		c.s.fail("%s: the reply has correlation id %d, want %d", kmsg.NameForKey(req.Key()), id, c.n)
	}
	b = b[4:]
	resp := req.ResponseKind()
	if key, version, ok := unknownVersion(req, b); ok {
		return key, version
	}
	if resp.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		if len(b) == 0 {
			return nil, errors.New("reply without a header")
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("undecodable reply: %w", err)
	}
	return resp, nil
}

// unknownVersion reads the answer to an ApiVersions request of a version that
// the peer does not know: it comes in version 0.
func unknownVersion(req kmsg.Request, b []byte) (kmsg.Response, error, bool) {
	if req.Key() != kmsg.ApiVersions.Int16() || req.GetVersion() <= 4 {
		return nil, nil, false
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	return resp, resp.ReadFrom(b), true
}

func (c *client) readFrame() ([]byte, error) {
	if c.nc == nil {
		return nil, errClosed
	}
	c.nc.SetReadDeadline(time.Now().Add(replyTimeout))
	var size [4]byte
	if _, err := io.ReadFull(c.nc, size[:]); err != nil {
		c.close()
		if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
			return nil, fmt.Errorf("no reply within %v", replyTimeout)
		}
		return nil, errClosed
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.nc, b); err != nil || len(b) < 4 {
		c.close()
		return nil, errClosed
	}
	return b, nil
}
