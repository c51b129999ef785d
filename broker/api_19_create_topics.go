package broker

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics, key 19, versions 2 to 7.

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
