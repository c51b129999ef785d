package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Errors of the preflight that a caller may branch on.
var (
	// ErrMissingTopic says that a topic which the application does not own
	// does not exist.
	ErrMissingTopic = errors.New("topic does not exist")
	// ErrPartitionCount says that an internal topic has another number of
	// partitions than the topology needs, or that a source topic has got more
	// partitions than the application can take up without a restart.
	ErrPartitionCount = errors.New("internal topic has the wrong number of partitions")
)

// layout is the topology laid over the topics that exist.
type layout struct {
	plan       task.Plan
	partitions map[string]int32 // of every topic that the topology reads or writes
}

// prepareTopics checks the topics that belong to the user and creates the
// internal ones.
func prepareTopics(ctx context.Context, cl *kgo.Client, o *Options) (layout, error) {
	internal := internalNames(o.Topology)
	var external []string
	seen := make(map[string]bool)
	add := func(topic string) {
		if !internal[topic] && !seen[topic] && topic != "" {
			seen[topic] = true
			external = append(external, topic)
		}
	}
	for _, sub := range o.Topology.Subtopologies {
		for _, s := range sub.Sources {
			add(s.Topic)
		}
		for _, s := range sub.Sinks {
			add(s.Topic)
		}
	}
	if o.Poison == PoisonDeadLetter {
		add(o.DeadLetterTopic)
	}
	counts, missing, err := awaitTopics(ctx, cl, external)
	if err != nil {
		return layout{}, err
	}
	if len(missing) > 0 {
		return layout{}, fmt.Errorf("%w: %s; create it before the application starts, for example: kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 4",
			ErrMissingTopic, strings.Join(missing, ", "), o.Brokers[0], missing[0])
	}
	plan, err := o.Topology.Plan(func(topic string) int32 { return counts[topic] })
	if err != nil {
		return layout{}, err
	}
	if err := ensureInternal(ctx, cl, plan.Internal, o.ReplicationFactor, counts); err != nil {
		return layout{}, err
	}
	return layout{plan: plan, partitions: counts}, nil
}

// externalTopicsWait gives a topic that was just created the time to get known
// to every broker.
const externalTopicsWait = time.Second

// awaitTopics looks the topics up and names those that do not exist.
func awaitTopics(ctx context.Context, cl *kgo.Client, topics []string) (counts map[string]int32, missing []string, err error) {
	deadline := time.Now().Add(externalTopicsWait)
	for {
		if counts, err = topicPartitions(ctx, cl, topics); err != nil {
			return nil, nil, err
		}
		missing = nil
		for _, topic := range topics {
			if counts[topic] == 0 {
				missing = append(missing, topic)
			}
		}
		if len(missing) == 0 || time.Now().After(deadline) {
			return counts, missing, nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
}

func internalNames(t *task.Topology) map[string]bool {
	names := make(map[string]bool)
	for _, sub := range t.Subtopologies {
		for _, s := range sub.Sources {
			if s.Repartition {
				names[s.Topic] = true
			}
		}
		for _, s := range sub.Sinks {
			if s.Repartition {
				names[s.Topic] = true
			}
		}
		for _, s := range sub.Stores {
			if s.ChangelogTopic != "" {
				names[s.ChangelogTopic] = true
			}
		}
	}
	return names
}

// topicPartitions gives the partition count of each topic, 0 where the topic
// does not exist. It never creates a topic.
func topicPartitions(ctx context.Context, cl *kgo.Client, topics []string) (map[string]int32, error) {
	counts := make(map[string]int32, len(topics))
	if len(topics) == 0 {
		return counts, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("describe topic %s: %w", *t.Topic, err)
		}
		counts[*t.Topic] = int32(len(t.Partitions))
	}
	return counts, nil
}

// internalTopicsWait bounds how long a new topic may take to get known.
const internalTopicsWait = 30 * time.Second

// ensureInternal creates the internal topics that are missing, checks the
// others, and waits until all are known.
func ensureInternal(ctx context.Context, cl *kgo.Client, internal []task.InternalTopic, replication int16, counts map[string]int32) error {
	if len(internal) == 0 {
		return nil
	}
	names := make([]string, 0, len(internal))
	for _, t := range internal {
		names = append(names, t.Name)
	}
	deadline := time.Now().Add(internalTopicsWait)
	for {
		have, err := topicPartitions(ctx, cl, names)
		if err != nil && !transient(err) {
			return err
		}
		var missing []task.InternalTopic
		for _, t := range internal {
			switch {
			case have[t.Name] == t.Partitions:
			case have[t.Name] > 0:
				return fmt.Errorf("%w: %s has %d, the topology needs %d; a source topic's partitions or the topology changed: stop all instances, delete the application's internal topics and its StateDir, and reset its offsets",
					ErrPartitionCount, t.Name, have[t.Name], t.Partitions)
			default:
				missing = append(missing, t)
			}
		}
		if err == nil && len(missing) == 0 {
			for name, n := range have {
				counts[name] = n
			}
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("create internal topics: %s and others are not there after %v: %w", missing[0].Name, internalTopicsWait, kerr.UnknownTopicOrPartition)
		}
		if err == nil {
			if err := createTopics(ctx, cl, missing, replication); err != nil {
				return err
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func createTopics(ctx context.Context, cl *kgo.Client, topics []task.InternalTopic, replication int16) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	for _, t := range topics {
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = t.Name, t.Partitions, replication
		configs := t.Configs()
		for _, key := range sortedKeys(configs) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = key, kmsg.StringPtr(configs[key])
			ct.Configs = append(ct.Configs, c)
		}
		req.Topics = append(req.Topics, ct)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("create internal topics: %w", err)
	}
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) || transient(err) {
			continue // another instance was faster, or the wait loop tries again
		}
		why := ""
		if t.ErrorMessage != nil {
			why = ": " + *t.ErrorMessage
		}
		return fmt.Errorf("create internal topic %s: %w%s", t.Topic, err, why)
	}
	return nil
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
