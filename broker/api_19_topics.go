package broker

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/seglog"
)

// CreateTopics, key 19, versions 2 to 7, and DeleteTopics, key 20, versions 1
// to 6.

func (b *Broker) createTopics(r *request) reply {
	req := r.Request.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	count := map[string]int{}
	total := int64(0)
	for _, t := range req.Topics {
		count[t.Topic]++
		if n, code, _ := b.wantedPartitions(t); code == 0 {
			total += int64(n)
		}
	}
	done := map[string]bool{}
	for _, t := range req.Topics {
		if done[t.Topic] {
			continue // a name given twice is answered once
		}
		done[t.Topic] = true
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic, out.NumPartitions, out.ReplicationFactor = t.Topic, -1, -1
		code, msg := kerr.InvalidRequest.Code, "the topic is named more than once in the request"
		switch {
		case total > int64(b.cfg.PartitionsMax): // as Kafka, for all of them
			code, msg = kerr.PolicyViolation.Code, fmt.Sprintf("%d partitions in one request: the limit is %d (PartitionsMax)", total, b.cfg.PartitionsMax)
		case count[t.Topic] == 1:
			code, msg = b.createOne(req, t, &out)
		}
		if out.ErrorCode = code; code != 0 {
			out.ErrorMessage = &msg
		}
		resp.Topics = append(resp.Topics, out)
	}
	return reply{resp: resp}
}

func (b *Broker) createOne(req *kmsg.CreateTopicsRequest, t kmsg.CreateTopicsRequestTopic, out *kmsg.CreateTopicsResponseTopic) (int16, string) {
	partitions, code, msg := b.wantedPartitions(t)
	if code != 0 {
		return code, msg
	}
	configs := map[string]string{}
	for _, c := range t.Configs {
		if c.Value == nil {
			return kerr.InvalidConfig.Code, fmt.Sprintf("topic config %s is null", c.Name)
		}
		configs[c.Name] = *c.Value
	}
	if err := checkTopicConfigs(configs); err != nil {
		return kerr.InvalidConfig.Code, err.Error()
	}
	if b.topics.byName(t.Topic) != nil {
		return kerr.TopicAlreadyExists.Code, errTopicExists(t.Topic).Error()
	}
	if !req.ValidateOnly {
		made, err := b.topics.create(t.Topic, partitions, configs)
		switch {
		case errors.As(err, new(errTopicExists)):
			return kerr.TopicAlreadyExists.Code, err.Error()
		case err != nil:
			return kerr.KafkaStorageError.Code, err.Error()
		}
		out.TopicID = made.ID
	}
	out.NumPartitions, out.ReplicationFactor = partitions, 1
	out.Configs = b.createdConfigs(&topicMeta{Name: t.Topic, Configs: configs})
	return 0, ""
}

// wantedPartitions checks name, partitions and replication.
func (b *Broker) wantedPartitions(t kmsg.CreateTopicsRequestTopic) (n int32, code int16, msg string) {
	if msg := checkTopicName(t.Topic); msg != "" {
		return 0, kerr.InvalidTopicException.Code, msg
	}
	n = t.NumPartitions
	switch {
	case len(t.ReplicaAssignment) > 0 && (n != -1 || t.ReplicationFactor != -1):
		return 0, kerr.InvalidRequest.Code, "with an assignment of replicas, partitions and replication factor must both be -1"
	case len(t.ReplicaAssignment) > 0:
		n = int32(len(t.ReplicaAssignment))
		for i, a := range t.ReplicaAssignment {
			if a.Partition != int32(i) || len(a.Replicas) != 1 || a.Replicas[0] != nodeID {
				return 0, kerr.InvalidReplicaAssignment.Code, fmt.Sprintf("this broker is one node: the only replica of every partition is %d", nodeID)
			}
		}
	case n == -1:
		n = b.cfg.Partitions
	}
	switch {
	case n <= 0:
		return 0, kerr.InvalidPartitions.Code, fmt.Sprintf("%d partitions: want at least 1", n)
	case n > b.cfg.PartitionsMax:
		return 0, kerr.InvalidPartitions.Code, fmt.Sprintf("%d partitions: the limit is %d (PartitionsMax)", n, b.cfg.PartitionsMax)
	case t.ReplicationFactor != 1 && t.ReplicationFactor != -1:
		return 0, kerr.InvalidReplicationFactor.Code, fmt.Sprintf("replication factor %d: this broker is one node, use 1 or -1", t.ReplicationFactor)
	}
	return n, 0, ""
}

func (b *Broker) createdConfigs(meta *topicMeta) (out []kmsg.CreateTopicsResponseTopicConfig) {
	for _, k := range topicConfigs {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		value, source := configValue(b.cfg, meta, k)
		c.Name, c.Value, c.Source = k.name, &value, int8(source)
		out = append(out, c)
	}
	return out
}

func (b *Broker) deleteTopics(r *request) reply {
	req := r.Request.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	var last seglog.LSN
	wanted, refused := b.topicsToDelete(req)
	resp.Topics = refused
	for _, want := range wanted {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = want.Topic, want.TopicID
		var t *topic
		if want.Topic != nil {
			t, out.ErrorCode = b.topics.byName(*want.Topic), kerr.UnknownTopicOrPartition.Code
		} else {
			t, out.ErrorCode = b.topics.byID(want.TopicID), kerr.UnknownTopicID.Code
		}
		if t != nil {
			out.Topic, out.TopicID, out.ErrorCode = &t.Name, t.ID, 0
			if isInternal(t.Name) {
				// Kafka allows it, and loses every group or transaction.
				out.ErrorCode, out.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("internal topics cannot be deleted")
			} else if lsn, err := b.topics.remove(t.Name); err != nil {
				out.ErrorCode, out.ErrorMessage = kerr.KafkaStorageError.Code, kmsg.StringPtr(err.Error())
			} else {
				last = max(last, lsn)
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return reply{resp: resp, lsn: last}
}

// topicsToDelete sorts out what a request may not say: a topic with a name and
// an id, with neither, or twice, be it once by name and once by id. Nothing
// that is named in such a way is deleted (ControllerApis.deleteTopics).
func (b *Broker) topicsToDelete(req *kmsg.DeleteTopicsRequest) (wanted []kmsg.DeleteTopicsRequestTopic, refused []kmsg.DeleteTopicsResponseTopic) {
	refuse := func(name *string, id topicID, msg string) {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID, out.ErrorCode, out.ErrorMessage = name, id, kerr.InvalidRequest.Code, &msg
		refused = append(refused, out)
	}
	topics := req.Topics
	for _, name := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		topics = append(topics, t)
	}
	byName, byID := map[string]int{}, map[topicID]int{}
	for _, t := range topics {
		switch {
		case t.Topic != nil && t.TopicID != topicID{}:
			refuse(t.Topic, t.TopicID, "a topic may not be given by name and by id")
		case t.Topic != nil:
			if byName[*t.Topic]++; byName[*t.Topic] == 2 {
				refuse(t.Topic, topicID{}, "the topic is named more than once in the request")
			}
		case t.TopicID == topicID{}:
			refuse(nil, topicID{}, "a topic has neither a name nor an id")
		default:
			if byID[t.TopicID]++; byID[t.TopicID] == 2 {
				refuse(nil, t.TopicID, "the topic's id is in the request more than once")
			}
		}
	}
	for _, t := range topics {
		live := (*topic)(nil)
		switch {
		case t.Topic != nil && t.TopicID == topicID{} && byName[*t.Topic] == 1:
			if live = b.topics.byName(*t.Topic); live != nil && byID[live.ID] > 0 {
				refuse(t.Topic, live.ID, "the topic is in the request by name and by id")
				continue
			}
			wanted = append(wanted, t)
		case t.Topic == nil && byID[t.TopicID] == 1:
			if live = b.topics.byID(t.TopicID); live != nil && byName[live.Name] > 0 {
				continue // refused with its name
			}
			wanted = append(wanted, t)
		}
	}
	return wanted, refused
}
