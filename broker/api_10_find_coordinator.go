package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator, key 10, versions 0 to 6: this node coordinates everything.

func (b *Broker) findCoordinator(r *request) reply {
	req := r.Request.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		c := b.coordinatorOf(req.CoordinatorType, req.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
		resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
		return reply{resp: resp}
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, b.coordinatorOf(req.CoordinatorType, key))
	}
	return reply{resp: resp}
}

func (b *Broker) coordinatorOf(kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	fail := func(code int16, msg string) kmsg.FindCoordinatorResponseCoordinator {
		c.ErrorCode, c.ErrorMessage = code, &msg
		return c
	}
	topic := topicOffsets
	switch kind {
	case 0:
	case 1:
		topic = topicTransactions
	default:
		return fail(kerr.InvalidRequest.Code, "unknown coordinator type")
	}
	if _, err := b.topics.internalTopic(topic); err != nil {
		return fail(kerr.CoordinatorNotAvailable.Code, err.Error())
	}
	c.NodeID, c.Host, c.Port = nodeID, b.host, b.port
	c.ErrorMessage = kmsg.StringPtr("NONE") // as Kafka says it
	return c
}
