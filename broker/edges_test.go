package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Edges of the protocol, as the comparison with Apache Kafka in
// conformance/replies found them.

func TestTxnOffsetCommitWithoutTopicsIsAnswered(t *testing.T) {
	c := dial(t, openBroker(t, testConfig(vfs.NewMem())))
	p := c.init("x")
	req := p.offsetsRequest("g", "none", 0, 1)
	req.Topics = nil
	if resp := call[*kmsg.TxnOffsetCommitResponse](c, req); len(resp.Topics) != 0 {
		t.Errorf("the answer to nothing names %d topics", len(resp.Topics))
	}
}

func TestAReplyThatCannotBeEncodedIsAnError(t *testing.T) {
	p := &pendingReply{resp: (*kmsg.TxnOffsetCommitResponse)(nil)}
	if _, err := p.encode(); err == nil {
		t.Error("no error")
	}
}
