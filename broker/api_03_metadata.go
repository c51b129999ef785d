package broker

import (
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
	// Without authorisation everybody may do all that there is to do: bits are
	// AclOperation codes, as AclEntry.supportedOperations lists them by resource.
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	groupOperations   = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
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
		allowedOperations(req, resp)
		return reply{resp: resp}
	}
	if req.Version < 12 && slices.ContainsFunc(req.Topics, byTopicID) {
		return reply{resp: metadataRefused(req)}
	}
	named := map[string]bool{}
	for _, want := range req.Topics {
		if want.Topic != nil {
			if named[*want.Topic] {
				continue // a name given twice is answered once
			}
			named[*want.Topic] = true
		}
		resp.Topics = append(resp.Topics, b.askedTopic(req, want))
	}
	allowedOperations(req, resp)
	return reply{resp: resp}
}

// allowedOperations fills in what the client may do, where it asks.
func allowedOperations(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	if req.IncludeTopicAuthorizedOperations {
		for i := range resp.Topics {
			resp.Topics[i].AuthorizedOperations = topicOperations
		}
	}
}

func byTopicID(t kmsg.MetadataRequestTopic) bool {
	return t.Topic == nil || t.TopicID != [16]byte{}
}

// metadataRefused answers a request that names topics by id before version 12,
// in which ids may be asked for: versions 10 and 11 have the field only.
func metadataRefused(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ControllerID, resp.AuthorizedOperations = -1, noOperations
	for _, want := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.ErrorCode, t.Topic, t.TopicID, t.AuthorizedOperations = kerr.InvalidRequest.Code, want.Topic, want.TopicID, noOperations
		if t.Topic == nil {
			t.Topic = new(string)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
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
