package broker

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/seglog"
)

// reply is what a handler returns: the response, and the journal position
// that must be durable before it may be sent.
type reply struct {
	resp kmsg.Response
	lsn  seglog.LSN
	err  error // closes the connection
}

// request is one decoded request.
type request struct {
	kmsg.Request
	conn     *conn
	clientID string
}

// api is one row of the router: the versions served, and the handler.
type api struct {
	min, max int16
	handle   func(*Broker, *request) reply
}

// servedAPIs are the requests served, by key, with the versions that Kafka 4.3
// offers. Produce has a handler of its own; see conn.handle.
func servedAPIs() map[int16]api {
	return map[int16]api{
		0:  {3, 13, nil},
		1:  {4, 18, (*Broker).fetch},
		2:  {1, 11, (*Broker).listOffsets},
		3:  {0, 13, (*Broker).metadata},
		8:  {2, 10, (*Broker).offsetCommit},
		9:  {1, 10, (*Broker).offsetFetch},
		10: {0, 6, (*Broker).findCoordinator},
		11: {0, 9, (*Broker).joinGroup},
		12: {0, 4, (*Broker).heartbeat},
		13: {0, 5, (*Broker).leaveGroup},
		14: {0, 5, (*Broker).syncGroup},
		15: {0, 6, (*Broker).describeGroups},
		16: {0, 5, (*Broker).listGroups},
		18: {0, 4, (*Broker).apiVersions},
		19: {2, 7, (*Broker).createTopics},
		20: {1, 6, (*Broker).deleteTopics},
		21: {0, 2, (*Broker).deleteRecords},
		22: {0, 5, (*Broker).initProducerID},
		23: {2, 4, (*Broker).offsetForLeaderEpoch},
		24: {0, 5, (*Broker).addPartitionsToTxn},
		25: {0, 4, (*Broker).addOffsetsToTxn},
		26: {0, 5, (*Broker).endTxn},
		27: {1, 2, (*Broker).writeTxnMarkers},
		28: {0, 5, (*Broker).txnOffsetCommit},
		32: {1, 4, (*Broker).describeConfigs},
		42: {0, 2, (*Broker).deleteGroups},
		47: {0, 0, (*Broker).offsetDelete},
		60: {0, 2, (*Broker).describeCluster},
		61: {0, 0, (*Broker).describeProducers},
		65: {0, 0, (*Broker).describeTransactions},
		66: {0, 2, (*Broker).listTransactions},
		75: {0, 0, (*Broker).describeTopicPartitions},
	}
}

// handle decodes a request, and answers it or, for Produce, has it answered.
// An error closes the connection: what follows cannot be trusted.
func (c *conn) handle(frame []byte) error {
	req, head, err := c.decode(frame)
	if err != nil {
		return err
	}
	if produce, ok := req.Request.(*kmsg.ProduceRequest); ok {
		if c.unanswered += len(frame); c.unanswered > c.b.cfg.RequestMaxBytes {
			c.busy.Wait()
			c.unanswered = len(frame)
		}
		p := &pendingReply{header: head, ready: make(chan struct{})}
		c.b.produce(produce, p)
		c.enqueue(p)
		return nil
	}
	c.busy.Wait()
	if c.b.ctx.Err() != nil {
		return errHangup
	}
	r := c.b.apis[req.Key()].handle(c.b, req)
	p := &pendingReply{header: head, ready: closedChan, resp: r.resp, lsn: r.lsn, err: r.err}
	c.enqueue(p)
	return r.err
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (c *conn) decode(frame []byte) (*request, replyHeader, error) {
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	head := replyHeader{correlation: int32(binary.BigEndian.Uint32(frame[4:]))}
	row, ok := c.b.apis[key]
	if !ok {
		return nil, head, fmt.Errorf("api key %d is not served (docs/compatibility.md lists what is)", key)
	}
	req := &request{Request: kmsg.RequestForKey(key), conn: c}
	if version < row.min || version > row.max {
		if key == kmsg.ApiVersions.Int16() {
			// The client cannot know our versions yet: it is told in version 0.
			req.SetVersion(-1)
			return req, head, nil
		}
		return nil, head, fmt.Errorf("%s version %d is not served, only %d to %d", kmsg.NameForKey(key), version, row.min, row.max)
	}
	req.SetVersion(version)
	body, clientID, err := requestHeader(frame[8:], req.IsFlexible())
	if err != nil {
		return nil, head, err
	}
	req.clientID = clientID
	// The reply to ApiVersions never has tags in its header, since the client
	// may not know yet whether the broker speaks the flexible versions.
	head.flexible = req.IsFlexible() && key != kmsg.ApiVersions.Int16()
	if key == kmsg.Produce.Int16() {
		if err := checkProduceSize(body, version); err != nil {
			return nil, head, fmt.Errorf("request Produce version %d: %w", version, err)
		}
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, head, fmt.Errorf("%s version %d: malformed request: %w", kmsg.NameForKey(key), version, err)
	}
	return req, head, nil
}

var errHeader = errors.New("malformed request header")

// requestHeader reads what follows the correlation id: the client id, and in
// flexible versions the tags.
func requestHeader(b []byte, flexible bool) (body []byte, clientID string, err error) {
	if len(b) < 2 {
		return nil, "", errHeader
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n > len(b) {
		return nil, "", errHeader
	}
	if n > 0 {
		clientID, b = string(b[:n]), b[n:]
	}
	if !flexible {
		return b, clientID, nil
	}
	tags, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, "", errHeader
	}
	b = b[n:]
	for ; tags > 0; tags-- {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, "", errHeader
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size > uint64(len(b)-n-m) {
			return nil, "", errHeader
		}
		b = b[n+m+int(size):]
	}
	return b, clientID, nil
}
