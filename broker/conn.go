package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/seglog"
)

// connSet knows the open connections, to bound and to close them.
type connSet struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// add takes note of a connection, and counts its goroutines in wg: closeAll is
// followed by a wait for them, so none may be counted after it.
func (s *connSet) add(c net.Conn, limit int, wg *sync.WaitGroup) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if len(s.open) >= limit {
		return fmt.Errorf("%d connections are open, the limit (ConnectionsMax)", limit)
	}
	if s.open == nil {
		s.open = map[net.Conn]struct{}{}
	}
	s.open[c] = struct{}{}
	wg.Add(2)
	return nil
}

func (s *connSet) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		c.Close()
	}
}

func (b *Broker) accept() {
	defer b.wg.Done()
	backoff := time.Millisecond
	for {
		c, err := b.ln.Accept()
		if err != nil {
			if b.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, for example: it passes.
			b.cfg.Logger.Warn("accept failed", "err", err)
			select {
			case <-time.After(backoff):
			case <-b.ctx.Done():
				return
			}
			backoff = min(2*backoff, time.Second)
			continue
		}
		backoff = time.Millisecond
		if err := b.serveConn(c); err != nil {
			b.cfg.Logger.Warn("connection refused", "client", c.RemoteAddr(), "err", err)
		}
	}
}

// Dial connects a client of the same process, without a socket. For kgo:
//
//	kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) { return b.Dial(ctx) })
func (b *Broker) Dial(context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	if err := b.serveConn(server); err != nil {
		client.Close()
		return nil, err
	}
	return pipeConn{client}, nil
}

// pipeConn is the client's end of a pipe. Its errors are those of a socket:
// clients retry after net.ErrClosed, and do not know io.ErrClosedPipe.
type pipeConn struct{ net.Conn }

// Read implements net.Conn.
func (c pipeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, socketError(err)
}

// Write implements net.Conn.
func (c pipeConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, socketError(err)
}

func socketError(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return net.ErrClosed
	}
	return err
}

func (b *Broker) serveConn(nc net.Conn) error {
	if err := b.conns.add(nc, b.cfg.ConnectionsMax, &b.wg); err != nil {
		nc.Close()
		return err
	}
	c := &conn{b: b, Conn: nc, in: bufio.NewReader(nc), out: make(chan *pendingReply, pipelineMax)}
	go c.read()
	go c.write()
	return nil
}

// pipelineMax bounds the Produce requests of one connection that are under
// way. Clients have at most five to a broker. Together they are no larger than
// one may be (RequestMaxBytes).
const pipelineMax = 16

// conn is one client connection. Requests are answered in order. Only Produce
// requests overlap, so that the batches in flight share one sync; any other
// request waits until those before it have been answered, as in Kafka.
type conn struct {
	b *Broker
	net.Conn
	in   *bufio.Reader // one read for a small request; a large body goes past its buffer
	out  chan *pendingReply
	busy sync.WaitGroup // replies that are not written yet
	// unanswered are the bytes of the Produce requests since the last wait for
	// all answers: no less than those of the requests under way.
	unanswered int
}

// pendingReply is a reply to come. finish is closed once resp and lsn are
// set; nil resp with a nil err sends nothing (acks=0).
type pendingReply struct {
	header replyHeader
	ready  chan struct{}
	resp   kmsg.Response
	lsn    seglog.LSN
	err    error // closes the connection
	// failed makes the answer when lsn cannot become durable; nil closes the
	// connection, which a client takes for an unknown outcome.
	failed func() kmsg.Response
}

type replyHeader struct {
	correlation int32
	flexible    bool
}

// errHangup ends a connection without a word in the log.
var errHangup = errors.New("hang up")

func (c *conn) read() {
	defer c.b.wg.Done()
	err := c.guard()
	close(c.out)
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, errHangup), c.b.ctx.Err() != nil:
	default:
		c.b.cfg.Logger.Warn("connection closed", "client", c.RemoteAddr(), "err", err)
	}
}

// guard turns a panic in a handler into a closed connection.
func (c *conn) guard() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v\n%s", r, debug.Stack())
		}
	}()
	for {
		frame, err := c.readFrame()
		if err != nil {
			return err
		}
		if err := c.handle(frame); err != nil {
			return err
		}
	}
}

// pieceBytes is what a client must send or take within FrameTimeout. A large
// frame is many pieces: a slow line is no dead one, and a client that is hung up
// on in the middle of a reply would ask for the same again.
const pieceBytes = 256 << 10

// readFrame reads one request. Memory is taken as the bytes arrive, so a
// length that promises more than is sent costs its sender only.
func (c *conn) readFrame() ([]byte, error) {
	var head [12]byte // size, api key, version, correlation id
	c.SetReadDeadline(time.Now().Add(c.b.cfg.IdleTimeout))
	if _, err := io.ReadFull(c.in, head[:4]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, io.EOF
		}
		if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
			return nil, errHangup
		}
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:4]))
	if size < 8 {
		return nil, fmt.Errorf("request of %d bytes: too short for a header", size)
	}
	c.SetReadDeadline(time.Now().Add(c.b.cfg.FrameTimeout))
	if _, err := io.ReadFull(c.in, head[4:]); err != nil {
		return nil, err
	}
	key, limit := int16(binary.BigEndian.Uint16(head[4:])), c.b.cfg.ControlRequestMaxBytes
	if key == kmsg.Produce.Int16() {
		limit = c.b.cfg.RequestMaxBytes
	}
	if int(size) > limit {
		return nil, fmt.Errorf("request of %d bytes (api key %d): the limit is %d; a plain-text or TLS client on a Kafka port looks like this too", size, key, limit)
	}
	frame := make([]byte, 8, min(int(size), 64<<10))
	copy(frame, head[4:])
	for len(frame) < int(size) {
		if len(frame) == cap(frame) {
			grown := make([]byte, len(frame), min(int(size), 4*cap(frame)))
			copy(grown, frame)
			frame = grown
		}
		n, err := io.ReadFull(c.in, frame[len(frame):min(cap(frame), len(frame)+pieceBytes)])
		frame = frame[:len(frame)+n]
		if err != nil {
			return nil, fmt.Errorf("request of %d bytes (api key %d) ended after %d: %w", size, key, len(frame), err)
		}
		c.SetReadDeadline(time.Now().Add(c.b.cfg.FrameTimeout))
	}
	return frame, nil
}

// enqueue puts a reply in the order of answers.
func (c *conn) enqueue(p *pendingReply) {
	c.busy.Add(1)
	c.out <- p
}

func (c *conn) write() {
	defer c.b.wg.Done()
	defer c.b.conns.remove(c.Conn)
	defer c.Close()
	broken := false
	for p := range c.out {
		if !broken {
			if err := c.send(p); err != nil {
				broken = true
				c.Close() // the reader notices
			}
		}
		c.busy.Done()
	}
}

// send waits for the reply and for its durability, then writes it.
func (c *conn) send(p *pendingReply) error {
	select {
	case <-p.ready:
	case <-c.b.ctx.Done():
		return context.Cause(c.b.ctx)
	}
	if p.err != nil {
		return p.err
	}
	if p.resp == nil {
		return nil
	}
	if err := c.b.store.Wait(c.b.ctx, p.lsn); err != nil {
		if p.failed == nil || c.b.ctx.Err() != nil {
			return err
		}
		p.resp = p.failed()
	}
	buf, err := p.encode()
	if err != nil {
		c.b.cfg.Logger.Warn("connection closed", "client", c.RemoteAddr(), "err", err)
		return err
	}
	for len(buf) > 0 && err == nil {
		piece := buf[:min(len(buf), pieceBytes)]
		c.SetWriteDeadline(time.Now().Add(c.b.cfg.FrameTimeout))
		_, err = c.Write(piece)
		buf = buf[len(piece):]
	}
	return err
}

// encode makes the frame of a reply. A reply that cannot be encoded is a fault
// of ours: it costs the client its connection, not the host program its life.
func (p *pendingReply) encode() (buf []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: a %T cannot be encoded: %v", p.resp, r)
		}
	}()
	buf = make([]byte, 8, 512)
	binary.BigEndian.PutUint32(buf[4:], uint32(p.header.correlation))
	if p.header.flexible {
		buf = append(buf, 0) // no tags
	}
	buf = p.resp.AppendTo(buf)
	binary.BigEndian.PutUint32(buf, uint32(len(buf)-4))
	return buf, nil
}

// advertise settles the address that clients are given. As in Kafka it must be
// one that they can connect to.
func (b *Broker) advertise() error {
	b.host, b.port = b.cfg.AdvertisedHost, b.cfg.AdvertisedPort
	if b.ln == nil {
		if b.host == "" {
			b.host, b.port = "hanbeon", 9092
		}
		return nil
	}
	host, port, err := net.SplitHostPort(b.Addr())
	if err != nil {
		return err
	}
	if b.host == "" {
		b.host = host
	}
	if ip := net.ParseIP(b.host); ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%s stands for every address of this machine, and clients need one to connect to: name it with AdvertisedHost (--advertise)", b.host)
	}
	if b.port == 0 {
		n, _ := strconv.Atoi(port)
		b.port = int32(n)
	}
	return nil
}
