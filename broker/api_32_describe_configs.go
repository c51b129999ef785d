package broker

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs, key 32, versions 1 to 4, for topics and the broker.

// configValue is a topic's value of one config, and where it comes from.
func configValue(cfg Config, meta *topicMeta, k configKind) (string, kmsg.ConfigSource) {
	if v, ok := meta.Configs[k.name]; ok {
		return v, kmsg.ConfigSourceDynamicTopicConfig
	}
	return k.def(cfg), kmsg.ConfigSourceDefaultConfig
}

func (b *Broker) describeConfigs(r *request) reply {
	req := r.Request.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, want := range req.Resources {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = want.ResourceType, want.ResourceName
		switch want.ResourceType {
		case kmsg.ConfigResourceTypeTopic:
			if t := b.topics.byName(want.ResourceName); t != nil {
				for _, k := range topicConfigs {
					value, source := configValue(b.cfg, t.topicMeta, k)
					b.addConfig(req, want, &out, k, value, source)
				}
			} else {
				out.ErrorCode = kerr.UnknownTopicOrPartition.Code
				out.ErrorMessage = kmsg.StringPtr("the topic does not exist")
				if msg := checkTopicName(want.ResourceName); msg != "" {
					out.ErrorCode, out.ErrorMessage = kerr.InvalidTopicException.Code, &msg
				}
			}
		case kmsg.ConfigResourceTypeBroker:
			if want.ResourceName == "" || want.ResourceName == strconv.Itoa(nodeID) {
				for _, k := range brokerConfigs {
					b.addConfig(req, want, &out, k, k.def(b.cfg), kmsg.ConfigSourceStaticBrokerConfig)
				}
			} else {
				out.ErrorCode = kerr.InvalidRequest.Code
				out.ErrorMessage = kmsg.StringPtr("the only broker is " + strconv.Itoa(nodeID))
			}
		default:
			out.ErrorCode = kerr.InvalidRequest.Code
			out.ErrorMessage = kmsg.StringPtr("only topics and brokers have configs here")
		}
		resp.Resources = append(resp.Resources, out)
	}
	return reply{resp: resp}
}

// synonyms are the configs that could give the value, from the one that does
// to the default.
func synonyms(kind kmsg.ConfigResourceType, k configKind, value, def string, source kmsg.ConfigSource) (out []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym) {
	add := func(name, value string, source kmsg.ConfigSource) {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = name, &value, source
		out = append(out, s)
	}
	if source != kmsg.ConfigSourceDefaultConfig {
		add(k.name, value, source)
	}
	if name := brokerDefaults[k.name]; name != "" && kind == kmsg.ConfigResourceTypeTopic {
		add(name, def, kmsg.ConfigSourceDefaultConfig)
	}
	return out
}

func (b *Broker) addConfig(req *kmsg.DescribeConfigsRequest, want kmsg.DescribeConfigsRequestResource, out *kmsg.DescribeConfigsResponseResource, k configKind, value string, source kmsg.ConfigSource) {
	if want.ConfigNames != nil && !slices.Contains(want.ConfigNames, k.name) {
		return
	}
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.Source, c.ConfigType = k.name, &value, source, kmsg.ConfigType(k.typ)
	c.IsDefault = source == kmsg.ConfigSourceDefaultConfig
	c.ReadOnly = source == kmsg.ConfigSourceStaticBrokerConfig
	if req.IncludeSynonyms {
		c.ConfigSynonyms = synonyms(want.ResourceType, k, value, k.def(b.cfg), source)
	}
	if req.IncludeDocumentation {
		c.Documentation = kmsg.StringPtr(k.doc)
	}
	out.Configs = append(out.Configs, c)
}

func intDef(f func(Config) int64) func(Config) string {
	return func(c Config) string { return strconv.FormatInt(f(c), 10) }
}

// brokerConfigs are what clients and tools ask a broker for.
var brokerConfigs = []configKind{
	{name: "auto.create.topics.enable", typ: configBoolean, def: func(c Config) string { return strconv.FormatBool(!c.DisableAutoCreateTopics) }},
	{name: "connections.max.idle.ms", typ: configLong, def: intDef(func(c Config) int64 { return c.IdleTimeout.Milliseconds() })},
	{name: "default.replication.factor", typ: configInt, def: fixed("1")},
	{name: "group.initial.rebalance.delay.ms", typ: configInt, def: intDef(func(c Config) int64 { return c.GroupInitialRebalanceDelay.Milliseconds() })},
	{name: "group.min.session.timeout.ms", typ: configInt, def: intDef(func(c Config) int64 { return c.GroupSessionTimeoutMin.Milliseconds() })},
	{name: "log.dirs", typ: configString, def: func(c Config) string { return c.Dir }},
	{name: "log.segment.bytes", typ: configInt, def: intDef(func(c Config) int64 { return c.SegmentBytes })},
	{name: "message.max.bytes", typ: configInt, def: intDef(func(c Config) int64 { return int64(c.MessageMaxBytes) })},
	{name: "min.insync.replicas", typ: configInt, def: fixed("1")},
	{name: "num.partitions", typ: configInt, def: intDef(func(c Config) int64 { return int64(c.Partitions) })},
	{name: "offsets.topic.num.partitions", typ: configInt, def: intDef(func(Config) int64 { return internalPartitions })},
	{name: "producer.id.expiration.ms", typ: configInt, def: intDef(func(Config) int64 { return producerIDExpiration.Milliseconds() })},
	{name: "socket.request.max.bytes", typ: configInt, def: intDef(func(c Config) int64 { return int64(c.RequestMaxBytes) })},
	{name: "transaction.max.timeout.ms", typ: configInt, def: intDef(func(c Config) int64 { return c.TransactionTimeoutMax.Milliseconds() })},
	{name: "transaction.state.log.num.partitions", typ: configInt, def: intDef(func(Config) int64 { return internalPartitions })},
}
