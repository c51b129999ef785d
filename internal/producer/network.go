package producer

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// network is how requests reach brokers; tests replace it.
type network interface {
	// produce sends a Produce request on the data plane.
	produce(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error)
	// control sends a request to a broker, or to any if node is negative.
	control(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error)
	// metadata asks on the plane that produces, so that its broker addresses
	// are fresh; brokers does so for the control plane.
	metadata(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error)
	brokers(ctx context.Context) error
	// versionCap lowers a broker's highest version of a request to what the
	// clients may use; -1 is none.
	versionCap(key, brokerMax int16) int16
}

// clients is the network of two kgo clients.
type clients struct{ data, ctl *kgo.Client }

func (c *clients) produce(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error) {
	return c.data.Broker(int(node)).Request(ctx, req)
}

// control uses Broker.Request, which sends once: Client.Request would repeat
// a lost EndTxn by itself and hide that its outcome was ever in doubt.
func (c *clients) control(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error) {
	if node < 0 {
		return c.ctl.Request(ctx, req) // FindCoordinator and InitProducerId without an id: harmless twice
	}
	return c.ctl.Broker(int(node)).Request(ctx, req)
}

func (c *clients) metadata(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	return req.RequestWith(ctx, c.data)
}

func (c *clients) brokers(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	_, err := req.RequestWith(ctx, c.ctl)
	return err
}

func (c *clients) versionCap(key, brokerMax int16) int16 {
	for _, cl := range []*kgo.Client{c.data, c.ctl} {
		v, ok := cl.OptValue(kgo.MaxVersions).(*kversion.Versions)
		if !ok || v == nil {
			continue
		}
		limit, ok := v.LookupMaxKeyVersion(key)
		if !ok {
			return -1
		}
		brokerMax = min(brokerMax, limit)
	}
	return brokerMax
}

// produceReq is a Produce request that kgo passes through untouched: a plain
// *kmsg.ProduceRequest would have its acks rewritten. It tells when kgo's
// writer has taken it, from where on no later request can overtake it, and
// caps the version of this one request.
type produceReq struct {
	*kmsg.ProduceRequest
	versionMax int16
	once       sync.Once
	written    func()
}

// MaxVersion caps the version that kgo negotiates.
func (r *produceReq) MaxVersion() int16 { return r.versionMax }

// AppendTo is called by the broker's only writer, in order. kgo may call it
// again if the connection broke before the first byte.
func (r *produceReq) AppendTo(dst []byte) []byte {
	dst = r.ProduceRequest.AppendTo(dst)
	r.once.Do(r.written)
	return dst
}

// ResponseKind returns a response that hides its throttle from kgo, which
// would sleep on the broker's only writer; the core holds back itself.
func (r *produceReq) ResponseKind() kmsg.Response {
	return &produceResp{r.ProduceRequest.ResponseKind().(*kmsg.ProduceResponse)}
}

type produceResp struct{ *kmsg.ProduceResponse }

// Throttle says none.
func (*produceResp) Throttle() (millis int32, throttlesAfterResponse bool) { return 0, false }

// RequestKind returns the request of this response.
func (r *produceResp) RequestKind() kmsg.Request { return r.ProduceResponse.RequestKind() }

// controlReq pins the version of one control request and notes whether any of
// it may have been written.
type controlReq struct {
	kmsg.Request
	versionMax int16
	mu         sync.Mutex
	written    bool
}

// MaxVersion caps the version that kgo negotiates.
func (r *controlReq) MaxVersion() int16 { return min(r.versionMax, r.Request.MaxVersion()) }

// AppendTo notes that the request is about to be written.
func (r *controlReq) AppendTo(dst []byte) []byte {
	r.mu.Lock()
	r.written = true
	r.mu.Unlock()
	return r.Request.AppendTo(dst)
}

func (r *controlReq) maybeWritten() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written
}
