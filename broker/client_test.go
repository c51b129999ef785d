package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// client sends single requests to a broker in the same process, as bare as
// the protocol is: no retries, no routing.
type client struct {
	t  testing.TB
	nc net.Conn
	n  int32
}

func testConfig(fs vfs.FS) Config {
	cfg := Config{Dir: "data", FS: fs}
	if os.Getenv("HANBEON_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

func openBroker(t testing.TB, cfg Config) *Broker {
	t.Helper()
	b, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func dial(t testing.TB, b *Broker) *client {
	t.Helper()
	nc, err := b.Dial(context.Background())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { nc.Close() })
	return &client{t: t, nc: nc}
}

// send writes a request in its newest version, or in the version set if it
// is not zero.
func (c *client) send(req kmsg.Request) error {
	c.n++
	b := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.n)
	_, err := c.nc.Write(b)
	return err
}

func (c *client) receive(req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.nc, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.nc, b); err != nil {
		return nil, err
	}
	b = b[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		b = b[1:]
	}
	return resp, resp.ReadFrom(b)
}

// try sends and receives; an error means that the outcome is unknown.
func (c *client) try(req kmsg.Request) (kmsg.Response, error) {
	if req.GetVersion() == 0 {
		req.SetVersion(servedAPIs()[req.Key()].max)
	}
	if err := c.send(req); err != nil {
		return nil, err
	}
	return c.receive(req)
}

func call[R kmsg.Response](c *client, req kmsg.Request) R {
	c.t.Helper()
	resp, err := c.try(req)
	if err != nil {
		c.t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp.(R)
}

func wantCode(t testing.TB, what string, got int16, want *kerr.Error) {
	t.Helper()
	var code int16
	name := "none"
	if want != nil {
		code, name = want.Code, want.Message
	}
	if got != code {
		t.Fatalf("%s: got error %d (%v), want %d (%s)", what, got, kerr.ErrorForCode(got), code, name)
	}
}

func (c *client) createTopic(name string, partitions int32, configs ...string) {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = configs[i], &configs[i+1]
		rt.Configs = append(rt.Configs, rc)
	}
	req.Topics = append(req.Topics, rt)
	resp := call[*kmsg.CreateTopicsResponse](c, req)
	wantCode(c.t, "create "+name, resp.Topics[0].ErrorCode, nil)
}

// producer is a hand-driven producer: it sends exactly what it is told.
type producer struct {
	id    string // transactional id, "" for idempotent
	pid   int64
	epoch int16
}

func (c *client) init(id string) producer {
	c.t.Helper()
	p, code := c.tryInit(id)
	wantCode(c.t, "init "+id, code, nil)
	return p
}

func (c *client) tryInit(id string) (producer, int16) {
	c.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000
	req.ProducerID, req.ProducerEpoch = -1, -1
	if id != "" {
		req.TransactionalID = &id
	}
	for range 100_000 {
		resp := call[*kmsg.InitProducerIDResponse](c, req)
		if resp.ErrorCode == kerr.ConcurrentTransactions.Code {
			continue // Kafka's clients try again, too
		}
		return producer{id, resp.ProducerID, resp.ProducerEpoch}, resp.ErrorCode
	}
	return producer{}, kerr.ConcurrentTransactions.Code
}

// records builds a batch. A negative seq makes a batch without producer.
func (p producer) records(seq int32, values ...string) []byte {
	o := batch.BuilderOptions{ProducerID: batch.ProducerID(p.pid), Epoch: batch.Epoch(p.epoch), BaseSequence: seq, BaseTimestampMs: 1000}
	if p.id != "" {
		o.Attributes = batch.AttrTransactional
	}
	if seq < 0 {
		o.ProducerID, o.Epoch, o.BaseSequence, o.Attributes = -1, -1, -1, 0
	}
	var b batch.Builder
	b.Reset(o)
	for i, v := range values {
		b.Append(1000, []byte(fmt.Sprintf("k%d", i)), []byte(v), nil)
	}
	return b.Build(nil)
}

func (p producer) produceRequest(topic string, partition int32, raw []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 12 // names, not ids
	req.Acks, req.TimeoutMillis = -1, 10_000
	if p.id != "" {
		req.TransactionID = &p.id
	}
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *client) produce(p producer, topic string, partition, seq int32, values ...string) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	resp := call[*kmsg.ProduceResponse](c, p.produceRequest(topic, partition, p.records(seq, values...)))
	return resp.Topics[0].Partitions[0]
}

func (c *client) mustProduce(p producer, topic string, partition, seq int32, values ...string) int64 {
	c.t.Helper()
	r := c.produce(p, topic, partition, seq, values...)
	wantCode(c.t, fmt.Sprintf("produce %v", values), r.ErrorCode, nil)
	return r.BaseOffset
}

func (p producer) endRequest(commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.pid, p.epoch, commit
	return req
}

// end ends the transaction under transaction.version 2 and returns the
// producer for the next one.
func (c *client) end(p producer, commit bool) producer {
	c.t.Helper()
	resp := call[*kmsg.EndTxnResponse](c, p.endRequest(commit))
	wantCode(c.t, "end transaction", resp.ErrorCode, nil)
	return producer{p.id, resp.ProducerID, resp.ProducerEpoch}
}

func (p producer) offsetsRequest(group, topic string, partition int32, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = p.id, group, p.pid, p.epoch
	req.Generation = -1
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch = partition, offset, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *client) sendOffsets(p producer, group, topic string, partition int32, offset int64) int16 {
	c.t.Helper()
	resp := call[*kmsg.TxnOffsetCommitResponse](c, p.offsetsRequest(group, topic, partition, offset))
	return resp.Topics[0].Partitions[0].ErrorCode
}

func (c *client) committed(group, topic string, partition int32) (offset int64, code int16) {
	c.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	req.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = topic, []int32{partition}
	g.Topics = append(g.Topics, rt)
	req.Groups = append(req.Groups, g)
	resp := call[*kmsg.OffsetFetchResponse](c, req)
	wantCode(c.t, "offset fetch", resp.Groups[0].ErrorCode, nil)
	p := resp.Groups[0].Topics[0].Partitions[0]
	return p.Offset, p.ErrorCode
}

func fetchRequest(topic string, partition int32, from int64, committed bool) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	req.ReplicaID, req.MaxBytes, req.SessionEpoch = -1, 50<<20, -1
	if committed {
		req.IsolationLevel = 1
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, from, 50<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *client) fetch(topic string, partition int32, from int64, committed bool) kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	resp := call[*kmsg.FetchResponse](c, fetchRequest(topic, partition, from, committed))
	wantCode(c.t, "fetch", resp.ErrorCode, nil)
	p := resp.Topics[0].Partitions[0]
	wantCode(c.t, "fetch partition", p.ErrorCode, nil)
	return p
}

// read returns the values that a consumer of the isolation level sees, and
// checks that the partition's bytes decode.
func (c *client) read(topic string, partition int32, committed bool) []string {
	c.t.Helper()
	p := c.fetch(topic, partition, 0, committed)
	return visible(c.t, p, committed)
}

// visible applies the consumer's half of read_committed to fetched bytes.
func visible(t testing.TB, p kmsg.FetchResponseTopicPartition, committed bool) []string {
	t.Helper()
	out := []string{}
	aborted := map[int64][]int64{} // producer → first offsets, ascending
	for _, a := range p.AbortedTransactions {
		aborted[a.ProducerID] = append(aborted[a.ProducerID], a.FirstOffset)
	}
	active := map[int64]bool{}
	for rest := p.RecordBatches; len(rest) > 0; {
		h, raw, next, err := batch.Split(rest)
		if err != nil {
			t.Fatalf("fetched bytes: %v", err)
		}
		rest = next
		pid := int64(h.ProducerID)
		for _, first := range aborted[pid] {
			if first <= int64(h.LastOffset()) && first >= int64(h.BaseOffset) {
				active[pid] = true
			}
		}
		if h.IsControl() {
			if kind, _, err := batch.ParseMarker(raw); err != nil {
				t.Fatalf("marker: %v", err)
			} else if kind == batch.ControlAbort {
				active[pid] = false
			}
			continue
		}
		if committed && h.IsTransactional() && active[pid] {
			continue
		}
		for r, err := range batch.Records(raw) {
			if err != nil {
				t.Fatalf("record: %v", err)
			}
			out = append(out, string(r.Value))
		}
	}
	return out
}
