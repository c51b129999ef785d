package broker

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// topicConfig is the part of a topic's configs that the broker acts on.
type topicConfig struct {
	segmentBytes    int64
	messageMaxBytes int
	compact         bool
	codec           batch.Attributes // of stored batches, batch.KeepCodec for the producer's
	appendTime      bool
	beforeMaxMs     int64
	afterMaxMs      int64
}

// configKind checks and describes one topic config.
type configKind struct {
	name  string
	typ   int8 // ConfigType of DescribeConfigs v3+
	def   func(Config) string
	check func(string) error
	doc   string
}

// Types of DescribeConfigs.
const (
	configBoolean int8 = 1
	configString  int8 = 2
	configInt     int8 = 3
	configLong    int8 = 5
	configDouble  int8 = 6
	configList    int8 = 7
)

func fixed(v string) func(Config) string { return func(Config) string { return v } }

func intIn(lo, hi int64) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < lo || v > hi {
			return fmt.Errorf("want a whole number from %d to %d", lo, hi)
		}
		return nil
	}
}

func oneOf(list ...string) func(string) error {
	return func(s string) error {
		for _, v := range strings.Split(s, ",") {
			if !slices.Contains(list, strings.TrimSpace(v)) {
				return fmt.Errorf("want one of %s", strings.Join(list, ", "))
			}
		}
		return nil
	}
}

// oneOfOrNone also takes the empty list.
func oneOfOrNone(list ...string) func(string) error {
	some := oneOf(list...)
	return func(s string) error {
		if s == "" {
			return nil
		}
		return some(s)
	}
}

func anything(string) error { return nil }

func ratio(s string) error {
	if v, err := strconv.ParseFloat(s, 64); err != nil || v < 0 || v > 1 {
		return fmt.Errorf("want a number from 0 to 1")
	}
	return nil
}

// topicConfigs are the topic configs that Kafka 4.3 knows. Retention and
// compaction are kept and shown; the broker does not act on them yet.
var topicConfigs = []configKind{
	{"cleanup.policy", configList, fixed("delete"), oneOfOrNone("delete", "compact"), "delete or compact old records"},
	{"compression.gzip.level", configInt, fixed("-1"), intIn(-1, 9), "accepted; the level is the broker's own"},
	{"compression.lz4.level", configInt, fixed("9"), intIn(1, 17), "accepted; the level is the broker's own"},
	{"compression.type", configString, fixed("producer"), oneOf("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), "codec of stored batches"},
	{"compression.zstd.level", configInt, fixed("3"), intIn(-131072, 22), "accepted; the level is the broker's own"},
	{"delete.retention.ms", configLong, fixed("86400000"), intIn(0, math.MaxInt64), "how long tombstones are kept"},
	{"file.delete.delay.ms", configLong, fixed("60000"), intIn(0, math.MaxInt64), "wait before deleting a file"},
	{"flush.messages", configLong, fixed("9223372036854775807"), intIn(1, math.MaxInt64), "accepted; every acknowledged batch is synced anyway"},
	{"flush.ms", configLong, fixed("9223372036854775807"), intIn(0, math.MaxInt64), "accepted; every acknowledged batch is synced anyway"},
	{"follower.replication.throttled.replicas", configList, fixed(""), anything, "accepted; one node replicates nothing"},
	{"index.interval.bytes", configInt, fixed("4096"), intIn(0, math.MaxInt32), "distance of index entries"},
	{"leader.replication.throttled.replicas", configList, fixed(""), anything, "accepted; one node replicates nothing"},
	{"local.retention.bytes", configLong, fixed("-2"), intIn(-2, math.MaxInt64), "accepted; nothing is tiered"},
	{"local.retention.ms", configLong, fixed("-2"), intIn(-2, math.MaxInt64), "accepted; nothing is tiered"},
	{"max.compaction.lag.ms", configLong, fixed("9223372036854775807"), intIn(1, math.MaxInt64), "latest compaction"},
	{"max.message.bytes", configInt, func(c Config) string { return strconv.Itoa(c.MessageMaxBytes) }, intIn(0, math.MaxInt32), "largest record batch"},
	{"message.timestamp.after.max.ms", configLong, fixed("3600000"), intIn(0, math.MaxInt64), "how far a timestamp may lie ahead"},
	{"message.timestamp.before.max.ms", configLong, fixed("9223372036854775807"), intIn(0, math.MaxInt64), "how old a timestamp may be"},
	{"message.timestamp.type", configString, fixed("CreateTime"), oneOf("CreateTime", "LogAppendTime"), "whose clock stamps records"},
	{"min.cleanable.dirty.ratio", configDouble, fixed("0.5"), ratio, "when compaction starts"},
	{"min.compaction.lag.ms", configLong, fixed("0"), intIn(0, math.MaxInt64), "earliest compaction"},
	{"min.insync.replicas", configInt, fixed("1"), intIn(1, math.MaxInt32), "accepted; one node counts as one replica"},
	{"preallocate", configBoolean, fixed("false"), oneOf("true", "false"), "accepted; segments grow as needed"},
	{"remote.log.copy.disable", configBoolean, fixed("false"), oneOf("true", "false"), "accepted; nothing is tiered"},
	{"remote.log.delete.on.disable", configBoolean, fixed("false"), oneOf("true", "false"), "accepted; nothing is tiered"},
	{"remote.storage.enable", configBoolean, fixed("false"), oneOf("false"), "nothing is tiered"},
	{"retention.bytes", configLong, fixed("-1"), intIn(-1, math.MaxInt64), "size at which old segments go"},
	{"retention.ms", configLong, fixed("604800000"), intIn(-1, math.MaxInt64), "age at which old segments go"},
	{"segment.bytes", configInt, func(c Config) string { return strconv.FormatInt(c.SegmentBytes, 10) }, intIn(1<<10, math.MaxInt32), "size of a segment"},
	{"segment.index.bytes", configInt, fixed("10485760"), intIn(4, math.MaxInt32), "largest index"},
	{"segment.jitter.ms", configLong, fixed("0"), intIn(0, math.MaxInt64), "accepted"},
	{"segment.ms", configLong, fixed("604800000"), intIn(1, math.MaxInt64), "age at which a segment is rolled"},
	{"unclean.leader.election.enable", configBoolean, fixed("false"), oneOf("true", "false"), "accepted; one node elects nobody"},
}

// brokerDefaults are the broker configs from which Kafka's topic configs take
// their defaults; DescribeConfigs lists them as synonyms. The others have none.
var brokerDefaults = map[string]string{
	"cleanup.policy":                  "log.cleanup.policy",
	"compression.gzip.level":          "compression.gzip.level",
	"compression.lz4.level":           "compression.lz4.level",
	"compression.type":                "compression.type",
	"compression.zstd.level":          "compression.zstd.level",
	"delete.retention.ms":             "log.cleaner.delete.retention.ms",
	"file.delete.delay.ms":            "log.segment.delete.delay.ms",
	"flush.messages":                  "log.flush.interval.messages",
	"index.interval.bytes":            "log.index.interval.bytes",
	"local.retention.bytes":           "log.local.retention.bytes",
	"local.retention.ms":              "log.local.retention.ms",
	"max.compaction.lag.ms":           "log.cleaner.max.compaction.lag.ms",
	"max.message.bytes":               "message.max.bytes",
	"message.timestamp.after.max.ms":  "log.message.timestamp.after.max.ms",
	"message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
	"message.timestamp.type":          "log.message.timestamp.type",
	"min.cleanable.dirty.ratio":       "log.cleaner.min.cleanable.ratio",
	"min.compaction.lag.ms":           "log.cleaner.min.compaction.lag.ms",
	"min.insync.replicas":             "min.insync.replicas",
	"preallocate":                     "log.preallocate",
	"retention.bytes":                 "log.retention.bytes",
	"segment.bytes":                   "log.segment.bytes",
	"segment.index.bytes":             "log.index.size.max.bytes",
	"unclean.leader.election.enable":  "unclean.leader.election.enable",
}

// checkTopicConfigs refuses what it does not know, naming it.
func checkTopicConfigs(configs map[string]string) error {
	for name, value := range configs {
		i := slices.IndexFunc(topicConfigs, func(k configKind) bool { return k.name == name })
		if i < 0 {
			return fmt.Errorf("unknown topic config %q", name)
		}
		if err := topicConfigs[i].check(value); err != nil {
			return fmt.Errorf("invalid value %q for topic config %s: %w", value, name, err)
		}
	}
	return nil
}

// parseTopicConfig reads configs that checkTopicConfigs has accepted.
func parseTopicConfig(cfg Config, meta *topicMeta) topicConfig {
	number := func(name string, def int64) int64 {
		if v, err := strconv.ParseInt(meta.Configs[name], 10, 64); err == nil {
			return v
		}
		return def
	}
	return topicConfig{
		segmentBytes:    number("segment.bytes", cfg.SegmentBytes),
		messageMaxBytes: int(number("max.message.bytes", int64(cfg.MessageMaxBytes))),
		codec:           batch.CodecNamed(meta.Configs["compression.type"]),
		compact:         strings.Contains(meta.Configs["cleanup.policy"], "compact"),
		appendTime:      meta.Configs["message.timestamp.type"] == "LogAppendTime",
		beforeMaxMs:     number("message.timestamp.before.max.ms", math.MaxInt64),
		afterMaxMs:      number("message.timestamp.after.max.ms", 3_600_000),
	}
}
