package broker

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Timeouts run on the virtual clock of synctest: hours cost milliseconds.

func TestTransactionTimeoutAbortsAndFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, testConfig(vfs.NewMem()))
		defer b.Close()
		c := dial(t, b)
		c.createTopic("in", 1)
		p := c.init("app") // timeout 60 s
		c.mustProduce(p, "in", 0, 0, "slow")
		wantCode(t, "offsets", c.sendOffsets(p, "g", "in", 0, 9), nil)
		plain := producer{pid: -1, epoch: -1}
		c.mustProduce(plain, "in", 0, -1, "plain")
		if got := c.read("in", 0, true); len(got) != 0 {
			t.Errorf("read_committed passes an open transaction: %v", got)
		}
		time.Sleep(75 * time.Second) // timeout, and the scan every 10 s
		if got, want := c.read("in", 0, true), []string{"plain"}; !reflect.DeepEqual(got, want) {
			t.Errorf("after the timeout read_committed sees %v, want %v", got, want)
		}
		if off, code := c.committed("g", "in", 0); off != -1 || code != 0 {
			t.Errorf("pending offset is still there: %d, code %d", off, code)
		}
		r := c.produce(p, "in", 0, 1, "too late")
		wantCode(t, "produce after the timeout", r.ErrorCode, kerr.InvalidProducerEpoch)
		// TV2: a commit is refused for good, an abort lets the client go on.
		resp := call[*kmsg.EndTxnResponse](c, p.endRequest(true))
		wantCode(t, "commit after the timeout", resp.ErrorCode, kerr.InvalidTxnState)
	})
}

// join runs the classic protocol of a lone member and returns its generation.
func (c *client) join(group, member string) (memberID string, generation int32) {
	c.t.Helper()
	for {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.ProtocolType = group, member, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 60_000
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name = "range"
		req.Protocols = append(req.Protocols, p)
		resp := call[*kmsg.JoinGroupResponse](c, req)
		member = resp.MemberID
		if resp.ErrorCode == kerr.MemberIDRequired.Code {
			continue
		}
		wantCode(c.t, "join", resp.ErrorCode, nil)
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.MemberID, sync.Generation = group, member, resp.Generation
		sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID = member
		sync.GroupAssignment = append(sync.GroupAssignment, a)
		wantCode(c.t, "sync", call[*kmsg.SyncGroupResponse](c, sync).ErrorCode, nil)
		return member, resp.Generation
	}
}

func (c *client) sendOffsetsAs(p producer, group, member string, generation int32, offset int64) int16 {
	c.t.Helper()
	req := p.offsetsRequest(group, "in", 0, offset)
	req.MemberID, req.Generation = member, generation
	return call[*kmsg.TxnOffsetCommitResponse](c, req).Topics[0].Partitions[0].ErrorCode
}

// zombieCommits plays a worker that is frozen past its session timeout, is
// replaced, wakes up and tries to commit what it had read. It returns the
// answer to the zombie's offsets.
func zombieCommits(t *testing.T, faults Faults) (code int16) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(vfs.NewMem())
		cfg.Faults = faults
		b := openBroker(t, cfg)
		defer b.Close()
		old, fresh := dial(t, b), dial(t, b)
		old.createTopic("in", 1)
		zombie := old.init("app-1")
		member, generation := old.join("g", "")
		old.mustProduce(zombie, "in", 0, 0, "from the zombie")
		time.Sleep(15 * time.Second) // frozen: session over, transaction not yet

		other := fresh.init("app-2") // version 2 of the guarantee: another id
		m2, g2 := fresh.join("g", "")
		fresh.mustProduce(other, "in", 0, 0, "from its successor")
		wantCode(t, "successor's offsets", fresh.sendOffsetsAs(other, "g", m2, g2, 1), nil)
		fresh.end(other, true)

		code = old.sendOffsetsAs(zombie, "g", member, generation, 1)
	})
	return code
}

func TestZombieOfAnOldGenerationCannotCommit(t *testing.T) {
	wantCode(t, "zombie's offsets", zombieCommits(t, Faults{}), kerr.UnknownMemberID)
}

func TestControlNoGenerationCheckIsSeen(t *testing.T) {
	if code := zombieCommits(t, Faults{NoGenerationCheck: true}); code != 0 {
		t.Fatalf("the check is off and the zombie was still refused with %v: the control proves nothing", kerr.ErrorForCode(code))
	}
}

func TestSessionTimeoutRemovesTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, testConfig(vfs.NewMem()))
		defer b.Close()
		c := dial(t, b)
		c.createTopic("in", 1)
		member, generation := c.join("g", "")
		beat := func() int16 {
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.MemberID, req.Generation = "g", member, generation
			return call[*kmsg.HeartbeatResponse](c, req).ErrorCode
		}
		for range 10 { // kept alive by heartbeats
			time.Sleep(9 * time.Second)
			wantCode(t, "heartbeat", beat(), nil)
		}
		time.Sleep(11 * time.Second)
		wantCode(t, "heartbeat after the session timeout", beat(), kerr.UnknownMemberID)
	})
}

func TestLongPollWakesOnCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBroker(t, testConfig(vfs.NewMem()))
		defer b.Close()
		c, reader := dial(t, b), dial(t, b)
		c.createTopic("in", 1)
		p := c.init("app")
		c.mustProduce(p, "in", 0, 0, "x")
		req := fetchRequest("in", 0, 0, true)
		req.MinBytes, req.MaxWaitMillis = 1, 30_000
		type answer struct {
			values []string
			waited time.Duration
		}
		got := make(chan answer, 1)
		go func() {
			start := time.Now()
			resp, err := reader.try(req)
			if err != nil {
				got <- answer{}
				return
			}
			got <- answer{visible(t, resp.(*kmsg.FetchResponse).Topics[0].Partitions[0], true), time.Since(start)}
		}()
		time.Sleep(5 * time.Second)
		c.end(p, true)
		a := <-got
		if !reflect.DeepEqual(a.values, []string{"x"}) || a.waited != 5*time.Second {
			t.Errorf("the poll brought %v after %v, want [x] after 5s", a.values, a.waited)
		}
	})
}
