package apptest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is the network of one instance. It knows the requests and replies that
// pass, and can freeze, cut or kill the connections, all of them or at a chosen
// message.
type wire struct {
	dialBroker func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	conns  map[*conn]struct{}
	thawed chan struct{} // open while frozen; nil when not
	dead   bool
	muted  bool
	hook   func(message) verdict
	// rewrite changes a reply in place; true if it did.
	rewrite func(message) bool
	counts  map[answer]int
	dials   int
	lates   int           // requests that arrived late
	sent    map[int16]int // requests by key
}

// answer is a request's key with an error code of its reply.
type answer struct {
	key  int16
	code int16
}

// verdict is what becomes of a message.
type verdict int

const (
	pass verdict = iota
	// cut closes the connection in place of the message, which is lost.
	cut
	// late closes the connection for the client; a request still reaches the
	// broker, lateBy later.
	late
)

// lateBy is more than a client needs to send the request again, and to begin
// the next transaction.
const lateBy = 500 * time.Millisecond

// message is one request or reply.
type message struct {
	key     int16
	reply   bool
	request kmsg.Request
	// response is set in a reply whose request was seen.
	response kmsg.Response
}

// endsTransaction says whether the message is an EndTxn or the reply to one.
func (m message) endsTransaction(commit bool) bool {
	end, ok := m.request.(*kmsg.EndTxnRequest)
	return ok && end.Commit == commit
}

func newWire(dial func(context.Context) (net.Conn, error)) *wire {
	return &wire{dialBroker: dial, conns: make(map[*conn]struct{}), counts: make(map[answer]int), sent: make(map[int16]int)}
}

var (
	errRefused = &net.OpError{Op: "dial", Net: "pipe", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	errReset   = &net.OpError{Op: "read", Net: "pipe", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
)

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	w.dials++
	w.mu.Unlock()
	if err := w.gate(ctx.Done()); err != nil {
		return nil, err
	}
	if w.isMuted() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	nc, err := w.dialBroker(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, w: w, closed: make(chan struct{}), sent: make(map[int32]message)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		nc.Close()
		return nil, errRefused
	}
	w.conns[c] = struct{}{}
	return c, nil
}

// gate waits while the wire is frozen.
func (w *wire) gate(giveUp <-chan struct{}) error {
	for {
		w.mu.Lock()
		thawed, dead := w.thawed, w.dead
		w.mu.Unlock()
		switch {
		case dead:
			return errRefused
		case thawed == nil:
			return nil
		}
		select {
		case <-thawed:
		case <-giveUp:
			return net.ErrClosed
		}
	}
}

// freeze holds every byte in both directions, as SIGSTOP does. What was being
// written is delivered after thaw, even if the client has given up by then.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.thawed == nil {
		w.thawed = make(chan struct{})
	}
}

func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.thawed != nil {
		close(w.thawed)
		w.thawed = nil
	}
}

// kill cuts everything for good, as the death of the process does.
func (w *wire) kill() {
	w.mu.Lock()
	w.dead = true
	conns := w.conns
	w.conns = nil
	w.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
	w.thaw()
}

// mute loses every request without a word, as a network that drops packets.
func (w *wire) mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted = true
}

func (w *wire) isMuted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.muted
}

// watch sets what is asked about each message. The hook may block, and may
// freeze or kill the wire.
func (w *wire) watch(hook func(message) verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

// change sets what may change replies.
func (w *wire) change(rewrite func(message) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rewrite = rewrite
}

func (w *wire) judge(m message) verdict {
	w.mu.Lock()
	hook := w.hook
	w.mu.Unlock()
	if hook == nil {
		return pass
	}
	return hook(m)
}

// refused counts the replies to a request that said err.
func (w *wire) refused(req kmsg.Request, err *kerr.Error) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[answer{req.Key(), err.Code}]
}

// traffic is the number of dials and of requests by key so far.
func (w *wire) traffic() (dials int, sent map[int16]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials, maps.Clone(w.sent)
}

func (w *wire) count(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, code := range errorCodes(m.response) {
		w.counts[answer{m.key, code}]++
	}
}

// errorCodes lists the codes other than 0 in replies that the tests look at.
func errorCodes(r kmsg.Response) (codes []int16) {
	add := func(code int16) {
		if code != 0 {
			codes = append(codes, code)
		}
	}
	switch r := r.(type) {
	case *kmsg.EndTxnResponse:
		add(r.ErrorCode)
	case *kmsg.HeartbeatResponse:
		add(r.ErrorCode)
	case *kmsg.InitProducerIDResponse:
		add(r.ErrorCode)
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				add(p.ErrorCode)
			}
		}
	case *kmsg.OffsetFetchResponse:
		for _, g := range r.Groups {
			add(g.ErrorCode)
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					add(p.ErrorCode)
				}
			}
		}
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				add(p.ErrorCode)
			}
		}
	}
	return codes
}

// conn is one connection of a wire. kgo writes each request with one Write.
type conn struct {
	net.Conn
	w       *wire
	once    sync.Once
	closed  chan struct{}
	writing sync.WaitGroup
	unread  []byte

	mu   sync.Mutex
	sent map[int32]message // requests by correlation id
}

func (c *conn) Write(p []byte) (int, error) {
	c.writing.Add(1)
	defer c.writing.Done()
	m, correlation, err := parseRequest(p)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.sent[correlation] = m
	c.mu.Unlock()
	c.w.mu.Lock()
	c.w.sent[m.key]++
	c.w.mu.Unlock()
	switch c.w.judge(m) {
	case cut:
		c.Conn.Close()
		return 0, errReset
	case late:
		c.deliverLate(bytes.Clone(p))
		return 0, errReset
	}
	if err := c.w.gate(nil); err != nil {
		return 0, err
	}
	if c.w.isMuted() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if len(c.unread) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// deliverLate is the network that kept a request for a while.
func (c *conn) deliverLate(p []byte) {
	c.once.Do(func() { // the client's Close must not stop it
		close(c.closed)
		c.w.mu.Lock()
		delete(c.w.conns, c)
		c.w.mu.Unlock()
		c.Conn.SetReadDeadline(time.Now())
		go func() {
			defer c.Conn.Close()
			time.Sleep(lateBy)
			c.Conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := c.Conn.Write(p); err == nil {
				_, _ = c.Conn.Read(make([]byte, 1)) // the broker has acted on it
				c.w.mu.Lock()
				c.w.lates++
				c.w.mu.Unlock()
			}
		}()
	})
}

// next reads one reply.
func (c *conn) next() error {
	var size [4]byte
	_, err := io.ReadFull(c.Conn, size[:])
	if err == nil {
		c.unread = append(size[:], make([]byte, binary.BigEndian.Uint32(size[:]))...)
		_, err = io.ReadFull(c.Conn, c.unread[4:])
	}
	if gated := c.w.gate(c.closed); gated != nil {
		c.unread = nil
		return gated
	}
	if err != nil {
		c.unread = nil
		return err
	}
	correlation := int32(binary.BigEndian.Uint32(c.unread[4:]))
	c.mu.Lock()
	m := c.sent[correlation]
	delete(c.sent, correlation)
	c.mu.Unlock()
	m.reply = true
	if m.request != nil {
		m.response = parseResponse(m.request, c.unread[8:])
		c.w.mu.Lock()
		rewrite := c.w.rewrite
		c.w.mu.Unlock()
		if rewrite != nil && rewrite(m) {
			c.unread = encodeResponse(m.response, correlation)
		}
		c.w.count(m)
	}
	if c.w.judge(m) == cut {
		c.unread = nil
		c.Conn.Close()
		return errReset
	}
	if err := c.w.gate(c.closed); err != nil {
		c.unread = nil
		return err
	}
	return nil
}

// SetWriteDeadline does nothing: a frozen process does not time out, and its
// write goes out when it wakes.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close takes effect after a write that is held by the frozen wire.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.w.mu.Lock()
		delete(c.w.conns, c)
		frozen := c.w.thawed != nil
		c.w.mu.Unlock()
		if !frozen {
			c.Conn.Close()
			return
		}
		go func() {
			_ = c.w.gate(nil)
			c.writing.Wait()
			c.Conn.Close()
		}()
	})
	return nil
}

// parseRequest reads one whole request frame.
func parseRequest(frame []byte) (m message, correlation int32, err error) {
	r := kbin.Reader{Src: frame}
	size := r.Int32()
	m.key = r.Int16()
	version := r.Int16()
	correlation = r.Int32()
	r.NullableString() // client id
	if !r.Ok() || int(size) != len(frame)-4 {
		return m, 0, fmt.Errorf("a write of %d bytes is not one request", len(frame))
	}
	m.request = kmsg.RequestForKey(m.key)
	m.request.SetVersion(version)
	if m.request.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	return m, correlation, m.request.ReadFrom(r.Src)
}

// parseResponse reads the body of a reply; nil if it cannot be read.
func parseResponse(req kmsg.Request, body []byte) kmsg.Response {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	r := kbin.Reader{Src: body}
	if resp.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		kmsg.SkipTags(&r)
	}
	if resp.ReadFrom(r.Src) != nil {
		return nil
	}
	return resp
}

// encodeResponse is a whole reply frame.
func encodeResponse(resp kmsg.Response, correlation int32) []byte {
	frame := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(correlation))
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		frame = append(frame, 0) // no tags
	}
	frame = resp.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}
