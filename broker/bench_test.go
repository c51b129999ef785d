package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func benchBroker(b *testing.B) *client {
	cfg := testConfig(nil)
	cfg.Dir = b.TempDir()
	return dial(b, openBroker(b, cfg))
}

// BenchmarkTransactionOfOne is one record and its commit: two round trips,
// each behind one sync of the journal.
func BenchmarkTransactionOfOne(b *testing.B) {
	c := benchBroker(b)
	c.createTopic("in", 1)
	p := c.init("app")
	b.ReportAllocs()
	for b.Loop() {
		c.mustProduce(p, "in", 0, 0, "x")
		p = c.end(p, true)
	}
}

// BenchmarkIdempotentProduce sends batches of 64 KiB, five in flight.
func BenchmarkIdempotentProduce(b *testing.B) {
	c := benchBroker(b)
	c.createTopic("in", 1)
	p := c.init("")
	values := make([]string, 580)
	for i := range values {
		values[i] = strings.Repeat("v", 100)
	}
	const inFlight = 5
	var sent []*kmsg.ProduceRequest
	receive := func() {
		resp, err := c.receive(sent[0])
		if err != nil {
			b.Fatal(err)
		}
		wantCode(b, "produce", resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
		sent = sent[1:]
	}
	size := len(p.records(0, values...))
	b.SetBytes(int64(size))
	b.ReportAllocs()
	seq := int32(0)
	for b.Loop() {
		req := p.produceRequest("in", 0, p.records(seq, values...))
		seq += int32(len(values))
		if err := c.send(req); err != nil {
			b.Fatal(err)
		}
		if sent = append(sent, req); len(sent) == inFlight {
			receive()
		}
	}
	for len(sent) > 0 {
		receive()
	}
	b.ReportMetric(float64(b.N*len(values))/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkFetchCommitted reads 64 KiB batches of committed transactions.
func BenchmarkFetchCommitted(b *testing.B) {
	c := benchBroker(b)
	c.createTopic("in", 1)
	p := c.init("app")
	values := make([]string, 580)
	for i := range values {
		values[i] = fmt.Sprint(i) + strings.Repeat("v", 100)
	}
	for range 16 {
		c.mustProduce(p, "in", 0, 0, values...)
		p = c.end(p, true)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(c.fetch("in", 0, 0, true).RecordBatches)))
	}
}
