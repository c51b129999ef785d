package runtime

import (
	"errors"
	"fmt"

	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/hanbeon/hanbeon/internal/task"
)

// collector gives the tasks of one worker its producer. It begins a
// transaction with the first record.
type collector struct {
	prod          *producer.Producer
	topics        map[string]*outTopic
	last          *outTopic // the topic of the record before, mostly the next one's too
	transactional bool
	// open says that a transaction has begun or, without transactions, that
	// something was sent since the last commit.
	open bool
	// sentBytes counts keys and values since the last commit.
	sentBytes int
	// spread is the next partition for records without a key.
	spread int32
	failed error
	// headers is scratch space.
	headers []producer.Header
}

// outTopic is a topic that the worker writes to.
type outTopic struct {
	name       string
	partitions []*producer.Partition
}

var _ task.Collector = (*collector)(nil)

// newCollector opens every partition that the topology may write to.
func newCollector(prod *producer.Producer, transactional bool, topics map[string]int32) (*collector, error) {
	c := &collector{prod: prod, transactional: transactional, topics: make(map[string]*outTopic, len(topics))}
	for _, name := range sortedKeys(topics) {
		t := &outTopic{name: name}
		for p := range topics[name] {
			partition, err := prod.Partition(name, p)
			if err != nil {
				return nil, fmt.Errorf("open partition %s/%d for writing: %w", name, p, err)
			}
			t.partitions = append(t.partitions, partition)
		}
		c.topics[name] = t
	}
	return c, nil
}

// errOutput says that a topic or partition is not one the topology writes to.
var errOutput = errors.New("no such output")

// Send implements task.Collector.
func (c *collector) Send(topic string, partition int32, key, value []byte, headers []task.Header, timestampMs int64) error {
	t := c.last
	if t == nil || t.name != topic {
		if t = c.topics[topic]; t == nil {
			return fmt.Errorf("send to topic %s: %w", topic, errOutput)
		}
		c.last = t
	}
	count := int32(len(t.partitions))
	switch {
	case partition >= count:
		return fmt.Errorf("send to partition %s/%d: %w; the topic has %d", topic, partition, errOutput, count)
	case partition >= 0:
	case key != nil:
		partition = task.DefaultPartition(key, count)
	default:
		c.spread = (c.spread + 1) & 0x7fffffff
		partition = c.spread % count
	}
	if c.failed != nil {
		return c.failed
	}
	if !c.open {
		if c.transactional {
			if err := c.prod.Begin(); err != nil {
				return c.fail(fmt.Errorf("begin a transaction: %w", err))
			}
		}
		c.open = true
	}
	if err := t.partitions[partition].Append(key, value, c.convert(headers), timestampMs); err != nil {
		return c.fail(fmt.Errorf("send to %s/%d: %w", topic, partition, err))
	}
	c.sentBytes += len(key) + len(value) + recordOverheadBytes
	return nil
}

// convert reuses one buffer: Append copies what it is given.
func (c *collector) convert(headers []task.Header) []producer.Header {
	if len(headers) == 0 {
		return nil
	}
	c.headers = c.headers[:0]
	for _, h := range headers {
		c.headers = append(c.headers, producer.Header{Key: h.Key, Value: h.Value})
	}
	return c.headers
}

// recordOverheadBytes is about what a record costs beside key and value.
const recordOverheadBytes = 16

// fail keeps the first error: an append that failed poisons the transaction,
// which must not be committed without the record.
func (c *collector) fail(err error) error {
	c.failed = err
	return err
}

// PartitionCount implements task.Collector.
func (c *collector) PartitionCount(topic string) int32 {
	if t := c.topics[topic]; t != nil {
		return int32(len(t.partitions))
	}
	return 0
}

// partition is one partition, nil if the topology does not write to it.
func (c *collector) partition(topic string, n int32) *producer.Partition {
	if t := c.topics[topic]; t != nil && n >= 0 && int(n) < len(t.partitions) {
		return t.partitions[n]
	}
	return nil
}

// ended forgets the transaction that has ended.
func (c *collector) ended() { c.open, c.sentBytes, c.failed = false, 0, nil }
