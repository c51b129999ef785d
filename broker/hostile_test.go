package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// frame is a request as bytes: header of version 1, then body.
func frame(key, version int16, body []byte) []byte {
	b := make([]byte, 4, 64)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 1)
	b = append(b, 0xff, 0xff) // null client id
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func rawDial(t testing.TB, b *Broker) net.Conn {
	t.Helper()
	nc, err := b.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func TestMalformedRequestsCloseOnlyTheirConnection(t *testing.T) {
	b := openBroker(t, testConfig(vfs.NewMem()))
	for name, bytes := range map[string][]byte{
		"a web browser":         []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"a TLS client":          {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0x00},
		"negative length":       {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"length zero":           {0, 0, 0, 0},
		"unknown api key":       frame(999, 0, nil),
		"internal api key":      frame(4, 0, nil),
		"version too new":       frame(kmsg.Metadata.Int16(), 99, nil),
		"negative version":      frame(kmsg.Metadata.Int16(), -5, nil),
		"produce version 0":     frame(kmsg.Produce.Int16(), 0, nil),
		"empty body":            frame(kmsg.Fetch.Int16(), 4, nil),
		"array length bomb":     frame(kmsg.Metadata.Int16(), 0, []byte{0x7f, 0xff, 0xff, 0xff}),
		"varint header garbage": frame(kmsg.Metadata.Int16(), 9, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
	} {
		t.Run(name, func(t *testing.T) {
			nc := rawDial(t, b)
			go nc.Write(bytes) // may be cut off in the middle
			nc.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := nc.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("read %d bytes, error %v; want the connection closed", n, err)
			}
		})
	}
	dial(t, b).createTopic("still-works", 1)
}

func TestUnknownApiVersionsVersionIsAnsweredInVersionZero(t *testing.T) {
	b := openBroker(t, testConfig(vfs.NewMem()))
	nc := rawDial(t, b)
	go nc.Write(frame(kmsg.ApiVersions.Int16(), 77, []byte{1, 2, 3}))
	var head [8]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(nc, body); err != nil {
		t.Fatal(err)
	}
	var resp kmsg.ApiVersionsResponse
	if err := resp.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "ApiVersions version 77", resp.ErrorCode, kerr.UnsupportedVersion)
	if len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != kmsg.ApiVersions.Int16() || resp.ApiKeys[0].MaxVersion != servedAPIs()[18].max {
		t.Errorf("api keys %+v listed, want that of ApiVersions, with what to ask in", resp.ApiKeys)
	}
}

func TestALengthThatPromisesMuchTakesLittleMemory(t *testing.T) {
	b := openBroker(t, testConfig(vfs.NewMem()))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	head := make([]byte, 12)
	binary.BigEndian.PutUint32(head, 100<<20) // a Produce request of 100 MiB
	for range 50 {
		nc := rawDial(t, b)
		if _, err := nc.Write(head); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("50 promises of 100 MiB took %d MiB", grown>>20)
	}
}

func TestSlowSenderAndSlowReaderAreHungUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, testConfig(vfs.NewMem()))
		defer b.Close()
		for name, send := range map[string][]byte{
			"half a request":    frame(kmsg.Metadata.Int16(), 0, []byte{0, 0, 0, 0})[:9],
			"never reads":       frame(kmsg.Metadata.Int16(), 0, []byte{0, 0, 0, 0}),
			"never says a word": nil,
		} {
			nc := rawDial(t, b)
			if _, err := nc.Write(send); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			time.Sleep(b.cfg.IdleTimeout + b.cfg.FrameTimeout)
			nc.SetDeadline(time.Now().Add(time.Second))
			if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%s: after %v: error %v, want EOF", name, time.Since(start), err)
			}
		}
	})
}

func TestASlowLineIsNoDeadOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, testConfig(vfs.NewMem()))
		defer b.Close()
		c := dial(t, b)
		c.createTopic("in", 1)
		p := c.init("")
		// 20 s for 256 KiB, as pieces of 4 KiB, both ways.
		c.nc = slowConn{c.nc, 20 * time.Second / 64}
		r := c.produce(p, "in", 0, 0, string(make([]byte, 900<<10)))
		wantCode(t, "produce", r.ErrorCode, nil)
		if got := c.read("in", 0, true); len(got) != 1 {
			t.Errorf("%d records are read, want 1", len(got))
		}
	})
}

// slowConn takes delay for every 4 KiB.
type slowConn struct {
	net.Conn
	delay time.Duration
}

func (c slowConn) Read(p []byte) (int, error) {
	if len(p) > 1<<10 {
		time.Sleep(c.delay)
	}
	return c.Conn.Read(p[:min(len(p), 4<<10)])
}

func (c slowConn) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		if len(p) > 1<<10 {
			time.Sleep(c.delay)
		}
		m := 0
		m, err = c.Conn.Write(p[:min(len(p), 4<<10)])
		n, p = n+m, p[m:]
	}
	return n, err
}

func TestConnectionsAreBounded(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.ConnectionsMax = 3
	b := openBroker(t, cfg)
	for range 3 {
		rawDial(t, b)
	}
	if _, err := b.Dial(context.Background()); err == nil {
		t.Error("a fourth connection was accepted, the limit is 3")
	}
}

func TestSecondBrokerOnADirectoryIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	openBroker(t, testConfig(fs))
	_, err := Open(context.Background(), testConfig(fs))
	if err == nil {
		t.Fatal("a second broker opened the same directory")
	}
	if msg := err.Error(); !bytes.Contains([]byte(msg), []byte("in use")) {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
}

// FuzzRequest sends any bytes as the body of any request. Whatever they are,
// the broker must stay up and go on serving others.
func FuzzRequest(f *testing.F) {
	for key, row := range servedAPIs() {
		req := kmsg.RequestForKey(key)
		req.SetVersion(row.max)
		f.Add(key, row.max, req.AppendTo(nil))
	}
	cfg := testConfig(vfs.NewMem())
	cfg.FrameTimeout = 50 * time.Millisecond
	b := openBroker(f, cfg)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		c := &conn{b: b, Conn: nopConn{}, out: make(chan *pendingReply, pipelineMax)}
		req, _, err := c.decode(frame(key, version, body)[4:])
		if err != nil {
			return
		}
		// A long poll or a join that waits is not what is tested here.
		switch r := req.Request.(type) {
		case *kmsg.FetchRequest:
			r.MaxWaitMillis = 0
		case *kmsg.JoinGroupRequest, *kmsg.SyncGroupRequest:
			return
		case *kmsg.CreateTopicsRequest:
			r.ValidateOnly = true
		case *kmsg.MetadataRequest:
			r.AllowAutoTopicCreation = false
			if r.Version < 4 {
				return
			}
		case *kmsg.ProduceRequest:
			p := &pendingReply{ready: make(chan struct{})}
			b.produce(r, p)
			<-p.ready
			return
		}
		if resp := b.apis[req.Key()].handle(b, req); resp.resp != nil {
			resp.resp.AppendTo(nil)
		}
	})
}

// nopConn is a connection nobody uses; requests ask it for its address.
type nopConn struct{ net.Conn }

func (nopConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Clients retry what a socket says, and give up on what a pipe says.
func TestInProcessConnectionEndsAsASocketDoes(t *testing.T) {
	b := openBroker(t, testConfig(vfs.NewMem()))
	nc, err := b.Dial(context.Background())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	b.Crash()
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read after the broker's end: %v, want EOF", err)
	}
	if _, err := nc.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after the broker's end: %v, want net.ErrClosed", err)
	}
}

// An element in memory is many times as large as the few bytes that make one,
// and a Produce request may be large.
func TestAProduceRequestOfManyEmptyPartitionsTakesLittleMemory(t *testing.T) {
	b := openBroker(t, testConfig(vfs.NewMem()))
	const size = 8 << 20
	head := []byte{0, 0, 0, 1, 0, 0, 0, 0} // no tags, no transactional id, acks 1, timeout 0
	topics := binary.AppendUvarint(head, size/3+1)
	partitions := binary.AppendUvarint(append(bytes.Clone(head), 2, 1), size/6+1)
	for name, body := range map[string][]byte{"topics": topics, "partitions": partitions} {
		body = append(body, make([]byte, size)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		nc := rawDial(t, b)
		nc.Write(frame(kmsg.Produce.Int16(), 9, body))
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: %v, want the connection closed", name, err)
		}
		runtime.ReadMemStats(&after)
		if grown := int64(after.TotalAlloc) - int64(before.TotalAlloc); grown > 64<<20 {
			t.Errorf("%s: a request of %d MiB took %d MiB", name, len(body)>>20, grown>>20)
		}
	}
}

// A batch of a kilobyte may expand to decompressedMax while it is checked.
func TestBatchesAreDecompressedOnlySoManyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, testConfig(vfs.NewMem()))
		defer b.Close()
		c := dial(t, b)
		c.createTopic("in", 1)
		p := c.init("")
		var build batch.Builder // of zstd
		build.Reset(batch.BuilderOptions{ProducerID: batch.ProducerID(p.pid), Attributes: 4, BaseTimestampMs: 1000})
		build.Append(1000, nil, make([]byte, 1<<10), nil)
		req := p.produceRequest("in", 0, build.Build(nil))
		for range cap(b.inflating) {
			b.inflating <- struct{}{}
		}
		if err := c.send(req); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if end := b.partition("in", 0).LogEnd(); end != 0 {
			t.Error("one batch more is decompressed than there may be")
		}
		<-b.inflating
		resp, err := c.receive(req)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, "produce", resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
	})
}

// The count of requests under way is bounded, and so are their bytes: both are
// held in memory until the disk has them.
func TestPipelinedProduceIsBoundedByItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, hold := heldDisk(vfs.NewMem())
		cfg := testConfig(disk)
		cfg.RequestMaxBytes = 1 << 20
		b := openBroker(t, cfg)
		defer b.Close()
		c := dial(t, b)
		c.createTopic("in", 1)
		p := c.init("")
		release := hold()
		go func() {
			for i := range int32(4) {
				c.send(p.produceRequest("in", 0, p.records(i, string(make([]byte, 600<<10)))))
			}
		}()
		synctest.Wait()
		if end := b.partition("in", 0).LogEnd(); end != 1 {
			t.Errorf("%d batches of 600 KiB were taken without an answer, want 1 in 1 MiB", end)
		}
		release()
		for i := range int64(4) {
			resp, err := c.receive(p.produceRequest("in", 0, nil))
			if err != nil {
				t.Fatal(err)
			}
			if r := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; r.ErrorCode != 0 || r.BaseOffset != i {
				t.Errorf("batch %d is at %d, error %d", i, r.BaseOffset, r.ErrorCode)
			}
		}
	})
}

func TestOneRequestCreatesOnlySoManyPartitions(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.PartitionsMax = 10
	b := openBroker(t, cfg)
	c := dial(t, b)
	for _, n := range []int32{5, 6} {
		req := kmsg.NewPtrCreateTopicsRequest()
		for _, name := range []string{"a", "b"} {
			rt := kmsg.NewCreateTopicsRequestTopic()
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, n, 1
			req.Topics = append(req.Topics, rt)
		}
		req.ValidateOnly = true
		for _, got := range call[*kmsg.CreateTopicsResponse](c, req).Topics {
			var want *kerr.Error
			if 2*n > cfg.PartitionsMax {
				want = kerr.PolicyViolation
			}
			wantCode(t, got.Topic, got.ErrorCode, want)
		}
	}
}
