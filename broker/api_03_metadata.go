package broker

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metadata, key 3, versions 0 to 13. The one node is broker 0, controller and
// leader of everything.

const (
	nodeID = 0
	// noOperations is the value of authorizedOperations that were not asked for.
	noOperations = -2147483648
)

func (b *Broker) metadata(r *request) reply {
	req := r.Request.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	clusterID := b.meta.view().ClusterID
	resp.ClusterID, resp.ControllerID, resp.AuthorizedOperations = &clusterID, nodeID, noOperations
	node := kmsg.NewMetadataResponseBroker()
	node.NodeID, node.Host, node.Port = nodeID, b.host, b.port
	resp.Brokers = append(resp.Brokers, node)
	// Null topics are all; in version 0 an empty list is all as well.
	if req.Topics == nil || (req.Version == 0 && len(req.Topics) == 0) {
		byName := b.topics.view.Load().byName
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			resp.Topics = append(resp.Topics, b.topicMetadata(byName[name]))
		}
		return reply{resp: resp}
	}
	for _, want := range req.Topics {
		resp.Topics = append(resp.Topics, b.askedTopic(req, want))
	}
	return reply{resp: resp}
}

func (b *Broker) askedTopic(req *kmsg.MetadataRequest, want kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	missing := kmsg.NewMetadataResponseTopic()
	missing.Topic, missing.TopicID, missing.AuthorizedOperations = want.Topic, want.TopicID, noOperations
	missing.Partitions = []kmsg.MetadataResponseTopicPartition{}
	if want.Topic == nil {
		t := b.topics.byID(want.TopicID)
		if t == nil {
			missing.ErrorCode = kerr.UnknownTopicID.Code
			if req.Version < 12 {
				missing.Topic = new(string)
			}
			return missing
		}
		return b.topicMetadata(t)
	}
	if t := b.topics.byName(*want.Topic); t != nil {
		return b.topicMetadata(t)
	}
	if isInternal(*want.Topic) {
		if t, err := b.topics.internalTopic(*want.Topic); err == nil {
			return b.topicMetadata(t)
		}
	}
	switch allowed := (req.Version < 4 || req.AllowAutoTopicCreation) && !b.cfg.DisableAutoCreateTopics; {
	case checkTopicName(*want.Topic) != "":
		missing.ErrorCode = kerr.InvalidTopicException.Code
	case allowed:
		t, err := b.topics.create(*want.Topic, b.cfg.Partitions, nil)
		if t != nil {
			return b.topicMetadata(t)
		}
		b.cfg.Logger.Error("topic not created", "topic", *want.Topic, "err", err)
		missing.ErrorCode = kerr.KafkaStorageError.Code
	default:
		missing.ErrorCode = kerr.UnknownTopicOrPartition.Code
	}
	return missing
}

func (b *Broker) topicMetadata(t *topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal, out.AuthorizedOperations = &t.Name, t.ID, isInternal(t.Name), noOperations
	for i := range t.Partitions {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), nodeID, b.env.LeaderEpoch
		p.Replicas, p.ISR, p.OfflineReplicas = []int32{nodeID}, []int32{nodeID}, []int32{}
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

// DescribeTopicPartitions, key 75, version 0: Metadata in pages, for the
// admin tools of Kafka 3.8 and later.

func (b *Broker) describeTopicPartitions(r *request) reply {
	req := r.Request.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	view := b.topics.view.Load()
	var names []string
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(view.byName))
	}
	slices.SortFunc(names, cmp.Compare)
	names = slices.Compact(names)
	left := int(min(max(req.ResponsePartitionLimit, 1), 2000))
	for _, name := range names {
		from := 0
		if c := req.Cursor; c != nil {
			if name < c.Topic {
				continue
			}
			if name == c.Topic {
				from = int(max(c.Partition, 0))
			}
		}
		if left == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(from)}
			break
		}
		rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
		rt.Topic, rt.AuthorizedOperations = &name, noOperations
		t := view.byName[name]
		if t == nil {
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			if checkTopicName(name) != "" {
				rt.ErrorCode = kerr.InvalidTopicException.Code
			}
			resp.Topics = append(resp.Topics, rt)
			continue
		}
		rt.TopicID, rt.IsInternal = t.ID, isInternal(name)
		for i := from; i < len(t.Partitions) && left > 0; i++ {
			rt.Partitions = append(rt.Partitions, b.describePartition(i))
			from, left = i+1, left-1
		}
		resp.Topics = append(resp.Topics, rt)
		if from < len(t.Partitions) {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(from)}
			break
		}
	}
	return reply{resp: resp}
}

func (b *Broker) describePartition(i int) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	p.Partition, p.LeaderID, p.LeaderEpoch = int32(i), nodeID, b.env.LeaderEpoch
	p.Replicas, p.ISR, p.OfflineReplicas = []int32{nodeID}, []int32{nodeID}, []int32{}
	p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{}
	return p
}

// DescribeCluster, key 60, versions 0 to 2.

func (b *Broker) describeCluster(r *request) reply {
	req := r.Request.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterAuthorizedOperations = noOperations
	resp.EndpointType = 1
	if req.Version >= 1 && req.EndpointType != 1 {
		msg := "this broker has no controller endpoint"
		resp.ErrorCode, resp.ErrorMessage, resp.EndpointType = kerr.MismatchedEndpointType.Code, &msg, req.EndpointType
		return reply{resp: resp}
	}
	resp.ClusterID, resp.ControllerID = b.meta.view().ClusterID, nodeID
	node := kmsg.NewDescribeClusterResponseBroker()
	node.NodeID, node.Host, node.Port = nodeID, b.host, b.port
	resp.Brokers = append(resp.Brokers, node)
	return reply{resp: resp}
}
