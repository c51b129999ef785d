//go:build conformance

package replies_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/broker"
)

// peer is one of the two brokers.
type peer struct {
	name   string
	addr   string
	nodeID int32
	run    int64 // makes this run's names its own
	baseMs int64 // the scripts' own time; see naming.time
}

// sessionTimeoutMinMs is group.min.session.timeout.ms of both peers, as
// conformance/kafka.sh sets it.
const sessionTimeoutMinMs = 1000

// startPeers finds the Kafka node and starts a broker of our own, and waits
// until both are ready. Faults are for the control only.
func startPeers(t *testing.T, faults broker.Faults) (kafka, ours *peer) {
	t.Helper()
	addr := os.Getenv("HANBEON_KAFKA")
	if addr == "" {
		t.Fatal("HANBEON_KAFKA must name an Apache Kafka node, HOST:PORT (make conformance-replies starts one)")
	}
	b, err := broker.Open(t.Context(), broker.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", DisableAutoCreateTopics: true,
		GroupSessionTimeoutMin: sessionTimeoutMinMs * time.Millisecond, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing the broker: %v", err)
		}
	})
	now := time.Now().UnixMilli()
	kafka = &peer{name: "kafka", addr: addr, run: now, baseMs: now - time.Hour.Milliseconds()}
	ours = &peer{name: "ours", addr: b.Addr(), run: now, baseMs: kafka.baseMs}
	for _, p := range []*peer{kafka, ours} {
		if err := p.warmUp(); err != nil {
			t.Fatalf("%s at %s: %v", p.name, p.addr, err)
		}
	}
	return kafka, ours
}

// warmUp learns the node's id, and has every partition of the internal topics
// made and loaded, so that no script meets a coordinator that is not ready.
func (p *peer) warmUp() (err error) {
	s := newScript(p, "warm up")
	defer s.close()
	defer func() {
		if r, ok := recover().(stopped); ok {
			err = r.error
		}
	}()
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.Topics = 9, []kmsg.MetadataRequestTopic{}
	resp := typed[*kmsg.MetadataResponse](s.do(meta))
	if resp == nil || len(resp.Brokers) != 1 {
		return fmt.Errorf("want one node, have %+v", resp)
	}
	p.nodeID = resp.Brokers[0].NodeID
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version = 4
	find.CoordinatorKeys = []string{"x"}
	for _, find.CoordinatorType = range []int8{0, 1} {
		s.until(find, func(r kmsg.Response) bool { return r.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode == 0 })
	}
	ready := func(code int16) bool {
		switch code {
		case kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
			return false
		}
		return true
	}
	// 400 names meet all of 50 partitions, but for a chance of 2%.
	for i := range 400 {
		groups := kmsg.NewPtrDescribeGroupsRequest()
		groups.Version, groups.Groups = 4, []string{fmt.Sprint("warm", i)}
		s.until(groups, func(r kmsg.Response) bool { return ready(r.(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode) })
		txns := kmsg.NewPtrDescribeTransactionsRequest()
		txns.TransactionalIDs = []string{fmt.Sprint("warm", i)}
		s.until(txns, func(r kmsg.Response) bool {
			return ready(r.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].ErrorCode)
		})
	}
	return nil
}
