//go:build conformance

package replies_test

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topics, configs, metadata, coordinators.
var adminScenarios = []scenario{
	{"CreateTopics: every version", func(s *script) {
		for v := int16(2); v <= 7; v++ {
			name := s.name("t" + string('0'+rune(v)))
			dry := createRequest(v, createTopic(name, 3, 1, "cleanup.policy", "compact"))
			dry.ValidateOnly = true
			s.create(dry)
			s.create(createRequest(v, createTopic(name, 3, 1, "cleanup.policy", "compact")))
			s.awaitTopic(name)
			s.create(createRequest(v, createTopic(name, 3, 1)))
			s.create(dry)
		}
	}},
	{"CreateTopics: what a request may say", func(s *script) {
		name := s.name("t")
		for _, v := range []int16{2, 5, 7} {
			for _, t := range []kmsg.CreateTopicsRequestTopic{
				createTopic("", 1, 1), createTopic(".", 1, 1), createTopic("..", 1, 1), createTopic("with space", 1, 1),
				createTopic(strings.Repeat("n", 250), 1, 1), createTopic("né", 1, 1),
				createTopic(name, 0, 1), createTopic(name, -2, 1), createTopic(name, 1, 0), createTopic(name, 1, 2), createTopic(name, 1, -2),
				createTopic(name, 1, 1, "no.such.config", "1"), createTopic(name, 1, 1, "retention.ms", "soon"),
				createTopic(name, 1, 1, "retention.ms", "-2"), createTopic(name, 1, 1, "cleanup.policy", "sweep"),
				createTopic(name, 1, 1, "cleanup.policy", ""), createTopic(name, 1, 1, "segment.bytes", "1"),
				createTopic(name, 1, 1, "compression.type", "zip"), createTopic(name, 1, 1, "message.timestamp.type", "now"),
				createTopic(name, 1, 1, "min.insync.replicas", "0"), createTopic(name, 1, 1, "max.message.bytes", "-1"),
				createTopic(name, 1, 1, "min.cleanable.dirty.ratio", "2"),
			} {
				req := createRequest(v, t)
				req.ValidateOnly = true
				s.create(req)
			}
		}
	}},
	{"CreateTopics: defaults, assignments, a name twice, a null config", createSpecial},
	{"CreateTopics: internal names", func(s *script) {
		s.create(createRequest(7, createTopic("__consumer_offsets", 50, 1)))
		s.create(createRequest(7, createTopic("__transaction_state", 50, 1)))
	}},
	{"CreateTopics: names that collide", func(s *script) {
		s.topic("a.b", 1)
		s.differs("Topics[a_b].ErrorCode", "17 INVALID_TOPIC_EXCEPTION", "0",
			"the two would share the name of a metric in Kafka; here they share nothing")
		s.differs("Topics[a_b].NumPartitions", "-1", "1", "as above")
		s.differs("Topics[a_b].ReplicationFactor", "-1", "1", "as above")
		req := createRequest(6, createTopic(s.name("a_b"), 1, 1))
		req.ValidateOnly = true
		s.create(req)
	}},
	{"DeleteTopics: every version", func(s *script) {
		for v := int16(1); v <= 5; v++ {
			t := s.topic("t"+string('0'+rune(v)), 1)
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.Version, req.TimeoutMillis, req.TopicNames = v, 10_000, []string{t.name, s.name("none")}
			s.do(req)
			s.until(metadataRequest(9, t.name), func(r kmsg.Response) bool { return r.(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0 })
			s.do(req)
		}
		t, u := s.topic("t6", 1), s.topic("u6", 1)
		s.do(deleteByID(topic{name: t.name}, topic{id: u.id}, topic{id: s.missingTopic("none").id}, topic{name: s.name("none")}))
	}},
	{"DeleteTopics: a name twice, a name and an id", func(s *script) {
		t := s.topic("t", 1)
		s.do(deleteByID(topic{name: t.name}, topic{name: t.name}))
		s.do(deleteByID(t))
		s.do(deleteByID(topic{name: t.name}, topic{id: t.id}))
		s.do(deleteByID(topic{}))
		s.do(deleteByID(topic{name: ""}))
		s.do(deleteByID())
		s.awaitTopic(t.name)
	}},
	{"a topic made anew has another id, and no offsets", func(s *script) {
		t := s.topic("t", 1)
		g := stranger(s.name("g"))
		s.produce(9, nil, t.at(0, s.plain("a")))
		s.do(commitRequest(8, g, at{t, 0, 1}))
		s.deleteTopic(t)
		s.produce(13, nil, t.at(0, s.plain("b")))
		s.do(fetchRequest(13, t, 0, 0, false))
		u := s.topic("t", 1)
		s.produce(13, nil, t.at(0, s.plain("b")))
		s.produce(13, nil, u.at(0, s.plain("b")))
		s.fetch(u, 0, 0, false)
		s.until(committed(8, g.group, false, at{u, 0, 0}), func(r kmsg.Response) bool {
			return r.(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0].Offset < 0
		})
	}},
	{"Metadata: every version", func(s *script) {
		t := s.topic("t", 2)
		for v := int16(0); v <= 13; v++ {
			s.do(metadataRequest(v, t.name, s.name("none")))
		}
	}},
	{"Metadata: names and ids that are none", func(s *script) {
		t := s.topic("t", 1)
		for _, v := range []int16{1, 4, 9, 12, 13} {
			s.do(metadataRequest(v, "with space", "", "..", strings.Repeat("n", 250)))
			s.do(metadataRequest(v))
		}
		for _, v := range []int16{10, 12, 13} {
			req := metadataRequest(v)
			req.Topics = []kmsg.MetadataRequestTopic{{TopicID: t.id}, {TopicID: s.missingTopic("none").id}}
			s.do(req)
			req.Topics = []kmsg.MetadataRequestTopic{{TopicID: t.id, Topic: &t.name}}
			s.do(req)
		}
	}},
	{"Metadata: a topic named twice, all topics", func(s *script) {
		t := s.topic("t", 1)
		s.do(metadataRequest(9, t.name, t.name))
		for _, v := range []int16{0, 1, 9, 12} {
			req := metadataRequest(v)
			if v > 0 {
				req.Topics = nil
			}
			resp, err := s.client("a").ask(req)
			if r := typed[*kmsg.MetadataResponse](resp); r != nil {
				r.Topics = slices.DeleteFunc(r.Topics, func(t kmsg.MetadataResponseTopic) bool { return t.Topic == nil || !s.own(*t.Topic) })
			}
			s.record("a", req, resp, err)
		}
	}},
	{"Metadata: creation is asked for but not allowed", func(s *script) {
		req := metadataRequest(9, s.name("none"))
		req.AllowAutoTopicCreation = true
		s.do(req)
		s.do(req)
	}},
	{"DescribeTopicPartitions", describeTopicPartitions},
	{"DescribeConfigs: every version", func(s *script) {
		t := s.topic("t", 1, "cleanup.policy", "compact", "retention.ms", "1000")
		for v := int16(1); v <= 4; v++ {
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeTopic, t.name, "cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes"))
		}
	}},
	{"DescribeConfigs: all of a topic", func(s *script) {
		t := s.topic("t", 1)
		// Of KIP-966, which one replica has no use for, Kafka keeps it as a
		// config of the cluster.
		const path, why = "Resources[t].Configs[min.insync.replicas].", "there is no config of the cluster, only that of the broker"
		s.differs(path+"Source", "3", "5", why)
		s.differs(path+"ConfigSynonyms", "2 entries", "1 entries", why)
		s.differs(path+"ConfigSynonyms[min.insync.replicas].Source", "3", "5", why)
		for field, value := range map[string]string{"Name": `"min.insync.replicas"`, "Value": `"1"`, "Source": "5"} {
			s.differs(path+"ConfigSynonyms[min.insync.replicas #2]."+field, value, absent, why)
		}
		s.do(describeConfigs(4, kmsg.ConfigResourceTypeTopic, t.name))
	}},
	{"DescribeConfigs: what does not exist", func(s *script) {
		t := s.topic("t", 1)
		for _, v := range []int16{1, 4} {
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeTopic, s.name("none")))
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeTopic, ""))
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeTopic, "with space"))
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeTopic, t.name, "no.such.config"))
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeBroker, "77"))
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeBroker, "node"))
			s.do(describeConfigs(v, kmsg.ConfigResourceTypeUnknown, "x"))
			s.do(describeConfigs(v, 99, "x"))
		}
	}},
	{"FindCoordinator: every version", func(s *script) {
		for v := int16(0); v <= 6; v++ {
			for _, kind := range []int8{0, 1, 5} {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.Version, req.CoordinatorType, req.CoordinatorKey = v, kind, s.name("g")
				req.CoordinatorKeys = []string{s.name("g"), s.name("h")}
				s.do(req)
			}
		}
		for _, v := range []int16{3, 4, 6} {
			for _, kind := range []int8{0, 1} {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.Version, req.CoordinatorType, req.CoordinatorKeys = v, kind, []string{""}
				s.do(req)
			}
		}
	}},
	{"what one may do, with nothing forbidden", func(s *script) {
		t := s.topic("t", 1)
		for v := int16(8); v <= 13; v++ {
			req := metadataRequest(v, t.name, s.name("none"))
			req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
			s.do(req)
		}
		s.alone(s.name("g"))
		for v := int16(3); v <= 6; v++ {
			req := describeGroups(v, s.name("g"), s.name("none"))
			req.IncludeAuthorizedOperations = true
			s.do(req)
		}
		for v := int16(0); v <= 2; v++ {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.Version, req.IncludeClusterAuthorizedOperations = v, true
			s.do(req)
		}
	}},
	{"DescribeCluster", func(s *script) {
		for v := int16(0); v <= 2; v++ {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.Version = v
			s.do(req)
			req.EndpointType = 2
			s.do(req)
			req.EndpointType = 9
			s.do(req)
		}
	}},
}

// own reports whether a name is of this scenario.
func (s *script) own(name string) bool { return strings.HasSuffix(name, s.suffix) }

// create leaves the configs out of the reply: DescribeConfigs compares those.
func (s *script) create(req *kmsg.CreateTopicsRequest) {
	resp, err := s.client("a").ask(req)
	if r := typed[*kmsg.CreateTopicsResponse](resp); r != nil {
		for i := range r.Topics {
			r.Topics[i].Configs = nil
			if req.ValidateOnly {
				r.Topics[i].TopicID = [16]byte{} // Kafka tells the id that it then forgets
			}
		}
	}
	s.record("a", req, resp, err)
}

func createSpecial(s *script) {
	for _, v := range []int16{2, 4, 7} {
		name := s.name("t")
		dry := func(topics ...kmsg.CreateTopicsRequestTopic) {
			req := createRequest(v, topics...)
			req.ValidateOnly = true
			s.create(req)
		}
		dry(createTopic(name, -1, 1))
		dry(createTopic(name, 1, -1))
		dry(createTopic(name, -1, -1))
		dry(createTopic(name, 1, 1), createTopic(name, 2, 1))
		dry(createTopic(name, 1, 1), createTopic(s.name("u"), 0, 1))
		assigned := func(partition int32, replicas ...int32) kmsg.CreateTopicsRequestTopicReplicaAssignment {
			return kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: partition, Replicas: replicas}
		}
		node := s.peer.nodeID
		for _, a := range [][]kmsg.CreateTopicsRequestTopicReplicaAssignment{
			{assigned(0, node), assigned(1, node)}, {assigned(1, node)}, {assigned(0, node), assigned(0, node)},
			{assigned(0, 77)}, {assigned(0, node, node)}, {assigned(0)}, {assigned(0, -1)},
		} {
			t := createTopic(name, -1, -1)
			t.ReplicaAssignment = a
			dry(t)
		}
		both := createTopic(name, 2, 1)
		both.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{assigned(0, node)}
		dry(both)
		null := createTopic(name, 1, 1)
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name = "retention.ms"
		null.Configs = append(null.Configs, c)
		dry(null)
		dry()
	}
}

func deleteByID(topics ...topic) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 10_000
	for _, t := range topics {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.TopicID = t.id
		if t.name != "" || t.id == [16]byte{} {
			rt.Topic = &t.name
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func describeTopicPartitions(s *script) {
	t, u := s.topic("t", 3), s.topic("u", 2)
	ask := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = limit, cursor
		for _, name := range names {
			rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
			rt.Topic = name
			req.Topics = append(req.Topics, rt)
		}
		s.do(req)
	}
	ask(2000, nil, t.name, u.name)
	ask(2000, nil, u.name, t.name, t.name)
	ask(2, nil, t.name, u.name)
	ask(3, nil, t.name, u.name)
	ask(4, nil, t.name, u.name)
	ask(0, nil, t.name)
	ask(-1, nil, t.name)
	ask(2000, nil, s.name("none"), t.name, "with space")
	at := func(name string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: name, Partition: partition}
	}
	ask(2000, at(t.name, 1), t.name, u.name)
	ask(2000, at(u.name, 0), t.name, u.name)
	ask(2000, at(t.name, 3), t.name, u.name)
	ask(2000, at(t.name, -1), t.name, u.name)
	ask(2000, at(s.name("ta"), 0), t.name, u.name)
}

func describeConfigs(version int16, kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms = version, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	return req
}
