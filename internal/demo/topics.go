package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics names the topics of a run that the demo creates itself.
type Topics struct {
	Lines  string `json:"lines"`  // input: key = line number, value = line
	Counts string `json:"counts"` // sink: key = word, value = count
}

// topicsOf names a run's topics after its application, so that runs on one
// cluster do not meet.
func topicsOf(application string) Topics {
	return Topics{Lines: application + "-lines", Counts: application + "-counts"}
}

// cluster is a connection for looking after the run: creating topics and asking
// for offsets. It outlives restarts of the broker.
type cluster struct {
	client *kgo.Client
	admin  *kadm.Client
}

func connect(brokers string) (*cluster, error) {
	client, err := kgo.NewClient(append(clientOptions(brokers), kgo.ClientID("hanbeon-demo"))...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", brokers, err)
	}
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(10_000)
	return &cluster{client: client, admin: admin}, nil
}

// clientOptions are the settings that every client of the demo shares: they make
// it come back soon after a broker restart.
func clientOptions(brokers string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(brokers),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.DialTimeout(3 * time.Second),
		kgo.AlwaysRetryEOF(),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(10 * time.Second),
	}
}

func (c *cluster) close() { c.client.Close() }

// waitReady waits until the broker answers, at most for timeout.
func (c *cluster) waitReady(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := c.client.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no broker answered within %v: %w", timeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// createTopics creates the input and the sink topic.
func (c *cluster) createTopics(ctx context.Context, topics Topics, partitions int) error {
	for _, topic := range []string{topics.Lines, topics.Counts} {
		response, err := c.admin.CreateTopic(ctx, int32(partitions), 1, nil, topic)
		if err == nil {
			err = response.Err
		}
		if err != nil {
			return fmt.Errorf("creating topic %s with %d partitions: %w", topic, partitions, err)
		}
	}
	return nil
}

// topicsWithSuffix lists the run's internal topics of one kind, by the suffix
// that Kafka Streams gives them: -changelog or -repartition.
func (c *cluster) topicsWithSuffix(ctx context.Context, application, suffix string) ([]string, error) {
	details, err := c.admin.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	var topics []string
	for name := range details {
		if strings.HasPrefix(name, application+"-") && strings.HasSuffix(name, suffix) {
			topics = append(topics, name)
		}
	}
	slices.Sort(topics)
	return topics, nil
}

// deleteRun removes the run's topics and its group from a cluster that is not
// ours.
func (c *cluster) deleteRun(ctx context.Context, application string) error {
	topics, err := c.topicsWithSuffix(ctx, application, "")
	if err != nil {
		return err
	}
	if _, err := c.admin.DeleteTopics(ctx, topics...); err != nil {
		return fmt.Errorf("deleting the topics of %s: %w", application, err)
	}
	if _, err := c.admin.DeleteGroup(ctx, application); err != nil {
		return fmt.Errorf("deleting the group %s: %w", application, err)
	}
	return nil
}

// hasMember reports whether a static member is in the group.
func (c *cluster) hasMember(ctx context.Context, group, instance string) (bool, error) {
	described, err := c.admin.DescribeGroups(ctx, group)
	if err == nil {
		err = described.Error()
	}
	if err != nil {
		return false, fmt.Errorf("describing the group %s: %w", group, err)
	}
	return slices.ContainsFunc(described[group].Members, func(m kadm.DescribedGroupMember) bool {
		return m.InstanceID != nil && *m.InstanceID == instance
	}), nil
}

// lag is how far a group is behind in one topic.
type lag struct {
	committed int64 // sum over the partitions, 0 where none is committed
	behind    int64 // offsets between committed and end, markers included
	partition []partitionLag
}

type partitionLag struct {
	topic          string
	partition      int32
	committed, end int64 // committed is -1 where there is none
}

// lags asks how far group has got in topics.
func (c *cluster) lags(ctx context.Context, group string, topics ...string) (map[string]lag, error) {
	committed, err := c.admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("fetching the offsets of group %s: %w", group, err)
	}
	ends, err := c.admin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("listing the end offsets of %s: %w", strings.Join(topics, ", "), err)
	}
	lags := make(map[string]lag, len(topics))
	for _, topic := range topics {
		var l lag
		for _, end := range ends[topic] {
			p := partitionLag{topic: topic, partition: end.Partition, committed: -1, end: end.Offset}
			if offset, ok := committed.Lookup(topic, end.Partition); ok && offset.Err == nil {
				p.committed = offset.At
			}
			l.committed += max(0, p.committed)
			l.behind += max(0, p.end-max(0, p.committed))
			l.partition = append(l.partition, p)
		}
		slices.SortFunc(l.partition, func(a, b partitionLag) int { return int(a.partition) - int(b.partition) })
		lags[topic] = l
	}
	return lags, nil
}
