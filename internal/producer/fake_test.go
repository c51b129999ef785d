package producer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// fakeNetwork is one scripted broker behind both clients: it answers what a
// healthy broker would, unless a test intervenes.
type fakeNetwork struct {
	mu       sync.Mutex
	level    int16 // transaction.version
	epoch    int16
	next     map[string]int64
	log      []kmsg.Request // control requests and Produce, in order
	batches  [][]byte
	produced chan struct{} // closed or fed to let Produce pass, nil for no wait
	// intervene may answer instead of the broker; nil, nil means no.
	intervene func(req kmsg.Request) (kmsg.Response, error)
	caps      map[int16]int16
}

func newFake() *fakeNetwork { return &fakeNetwork{level: 2, epoch: -1, next: map[string]int64{}} }

var errLost = errors.New("connection lost")

// newFakeProducer returns an initialised producer on a fake broker.
func newFakeProducer(t *testing.T, f *fakeNetwork, cfg Config) *Producer {
	t.Helper()
	cfg.net = f
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (f *fakeNetwork) seen(key int16) (out []kmsg.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		if r.Key() == key {
			out = append(out, r)
		}
	}
	return out
}

// negotiate does what kgo does to a request before it is written.
func (f *fakeNetwork) negotiate(req kmsg.Request) {
	req.SetVersion(min(req.MaxVersion(), map[int16]int16{0: 13, 22: 5, 24: 5, 25: 4, 26: 5, 28: 6, 18: 4}[req.Key()]))
	req.AppendTo(nil)
}

func (f *fakeNetwork) produce(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error) {
	f.negotiate(req)
	f.mu.Lock()
	f.log = append(f.log, req)
	wait := f.produced
	f.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.intervene != nil {
		if resp, err := f.intervene(req); resp != nil || err != nil {
			return resp, err
		}
	}
	return f.append(req), nil
}

// append answers a Produce request with success for every batch.
func (f *fakeNetwork) append(req kmsg.Request) kmsg.Response {
	r := req.(*produceReq)
	resp := req.ResponseKind().(*produceResp)
	resp.SetVersion(r.GetVersion())
	for _, t := range slices.Backward(r.Topics) { // an order of its own
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, part := range slices.Backward(t.Partitions) {
			h, err := batch.ParseHeader(part.Records)
			if err != nil || !batch.CheckCRC(part.Records) {
				panic("a damaged batch was sent")
			}
			f.batches = append(f.batches, slices.Clone(part.Records))
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset = part.Partition, f.next[t.Topic]
			f.next[t.Topic] += int64(h.Count)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (f *fakeNetwork) control(_ context.Context, _ int32, req kmsg.Request) (kmsg.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inner := req
	if c, ok := req.(*controlReq); ok {
		f.negotiate(req)
		inner = c.Request
	}
	f.log = append(f.log, inner)
	if f.intervene != nil {
		if resp, err := f.intervene(inner); resp != nil || err != nil {
			return resp, err
		}
	}
	return f.answer(inner), nil
}

func (f *fakeNetwork) answer(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	switch r := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		for _, k := range [][2]int16{{0, 13}, {22, 5}, {26, 5}, {28, 5}} {
			r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: k[0], MaxVersion: k[1]})
		}
		r.FinalizedFeaturesEpoch = 1
		r.FinalizedFeatures = []kmsg.ApiVersionsResponseFinalizedFeature{{Name: "transaction.version", MaxVersionLevel: f.level}}
	case *kmsg.InitProducerIDResponse:
		f.epoch++
		r.ProducerID, r.ProducerEpoch = 7, f.epoch
	case *kmsg.FindCoordinatorResponse:
		r.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{NodeID: 1}}
	case *kmsg.DescribeTransactionsResponse:
		r.TransactionStates = []kmsg.DescribeTransactionsResponseTransactionState{{State: "CompleteCommit"}}
	case *kmsg.AddPartitionsToTxnResponse:
		for _, t := range req.(*kmsg.AddPartitionsToTxnRequest).Topics {
			rt := kmsg.AddPartitionsToTxnResponseTopic{Topic: t.Topic}
			for _, n := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: n})
			}
			r.Topics = append(r.Topics, rt)
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range req.(*kmsg.TxnOffsetCommitRequest).Topics {
			rt := kmsg.TxnOffsetCommitResponseTopic{Topic: t.Topic}
			rt.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
			r.Topics = append(r.Topics, rt)
		}
	case *kmsg.EndTxnResponse:
		if r.Version >= 5 {
			f.epoch++
		}
		r.ProducerID, r.ProducerEpoch = 7, f.epoch
	}
	return resp
}

func (f *fakeNetwork) metadata(_ context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := kmsg.NewPtrMetadataResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic = t.Topic
		if *t.Topic == "missing" {
			rt.ErrorCode = 3
		} else {
			copy(rt.TopicID[:], *t.Topic)
			for i := range int32(4) {
				rt.Partitions = append(rt.Partitions, kmsg.MetadataResponseTopicPartition{Partition: i, Leader: 1})
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (f *fakeNetwork) brokers(context.Context) error { return nil }

func (f *fakeNetwork) versionCap(key, brokerMax int16) int16 {
	if limit, ok := f.caps[key]; ok {
		return min(limit, brokerMax)
	}
	return brokerMax
}
