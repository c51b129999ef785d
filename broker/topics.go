package broker

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
)

// The internal topics.
const (
	topicOffsets      = "__consumer_offsets"
	topicTransactions = "__transaction_state"
)

func isInternal(topic string) bool { return topic == topicOffsets || topic == topicTransactions }

// topic is a live topic.
type topic struct {
	*topicMeta
	Partitions []*shard.Partition
	conf       topicConfig // parsed from Configs
}

// topicView is an immutable picture of all topics: requests read it without a
// lock, changes replace it.
type topicView struct {
	byName map[string]*topic
	byID   map[topicID]*topic
	byLog  map[seglog.LogID]*shard.Partition
}

func newTopicView() *topicView {
	return &topicView{byName: map[string]*topic{}, byID: map[topicID]*topic{}, byLog: map[seglog.LogID]*shard.Partition{}}
}

func (v *topicView) add(t *topic) {
	v.byName[t.Name], v.byID[t.ID] = t, t
	for _, p := range t.Partitions {
		v.byLog[p.LogID] = p
	}
}

// topics creates, deletes and finds them.
type topics struct {
	b    *Broker
	mu   sync.Mutex // one change at a time
	view atomic.Pointer[topicView]
}

func (t *topics) byName(name string) *topic { return t.view.Load().byName[name] }
func (t *topics) byID(id topicID) *topic    { return t.view.Load().byID[id] }

func (t *topics) partition(tp batch.TopicPartition) *shard.Partition {
	if topic := t.byName(tp.Topic); topic != nil && tp.Partition >= 0 && int(tp.Partition) < len(topic.Partitions) {
		return topic.Partitions[tp.Partition]
	}
	return nil
}

// load opens every partition of the metadata.
func (t *topics) load(m *metadata) error {
	view := newTopicView()
	for _, meta := range m.sortedTopics() {
		topic, err := t.open(meta)
		if err != nil {
			return err
		}
		view.add(topic)
	}
	t.view.Store(view)
	return nil
}

func (t *topics) open(meta *topicMeta) (*topic, error) {
	out := &topic{topicMeta: meta, conf: parseTopicConfig(t.b.cfg, meta)}
	for i, id := range meta.LogIDs {
		log := t.b.store.Log(id)
		if log == nil {
			return nil, fmt.Errorf("topic %s partition %d: its log %d is not in the store", meta.Name, i, id)
		}
		p, err := shard.Open(t.b.env, log, id, batch.TopicPartition{Topic: meta.Name, Partition: int32(i)}, roleOf(meta.Name))
		if err != nil {
			return nil, err
		}
		out.Partitions = append(out.Partitions, p)
	}
	return out, nil
}

func roleOf(topic string) shard.Role {
	switch topic {
	case topicOffsets:
		return shard.RoleGroups
	case topicTransactions:
		return shard.RoleTransactions
	}
	return shard.RoleData
}

func logSpec(cfg Config, meta *topicMeta, partition int) seglog.LogSpec {
	conf := parseTopicConfig(cfg, meta)
	return seglog.LogSpec{ID: meta.LogIDs[partition], Topic: meta.Name, Partition: int32(partition), SegmentBytes: conf.segmentBytes}
}

// maxTopicNameBytes is Kafka's limit; a partition's directory name holds it.
const maxTopicNameBytes = 249

// checkTopicName tells why a name is not legal, "" if it is (Kafka's Topic.validate).
func checkTopicName(name string) string {
	switch {
	case name == "":
		return "the topic name is empty"
	case name == "." || name == "..":
		return fmt.Sprintf("the topic name cannot be %q", name)
	case len(name) > maxTopicNameBytes:
		return fmt.Sprintf("the topic name is %d characters long, the limit is %d", len(name), maxTopicNameBytes)
	}
	if i := strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}); i >= 0 {
		return fmt.Sprintf("the topic name %q has a character other than ASCII letters, digits, '.', '_' and '-'", name)
	}
	return ""
}

// errTopicExists is create's answer when someone else was first.
type errTopicExists string

func (e errTopicExists) Error() string { return fmt.Sprintf("topic %q already exists", string(e)) }

// create makes a topic: first its metadata, durably, then its logs. A crash
// in between leaves a topic with empty logs, which is what was asked for.
func (t *topics) create(name string, partitions int32, configs map[string]string) (*topic, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	view := t.view.Load()
	if have := view.byName[name]; have != nil {
		return have, errTopicExists(name)
	}
	if t.b.ctx.Err() != nil { // a request may ask for thousands; Close waits for none
		return nil, context.Cause(t.b.ctx)
	}
	meta := &topicMeta{Name: name, ID: topicID(newUUID()), Configs: configs}
	err := t.b.meta.update(func(m *metadata) error {
		for range partitions {
			meta.LogIDs = append(meta.LogIDs, m.NextLogID)
			m.NextLogID++
		}
		m.Topics[name] = meta
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range meta.LogIDs {
		if _, err := t.b.store.Create(logSpec(t.b.cfg, meta, i)); err != nil {
			return nil, fmt.Errorf("create topic %s partition %d: %w", name, i, err)
		}
	}
	topic, err := t.open(meta)
	if err != nil {
		return nil, err
	}
	// Started before it is found: a coordinator takes no command before that.
	for _, p := range topic.Partitions {
		p.Start()
	}
	t.replace(view, nil, topic)
	t.b.cfg.Logger.Info("topic created", "topic", name, "partitions", partitions)
	return topic, nil
}

func (t *topics) replace(view *topicView, gone, added *topic) {
	next := newTopicView()
	for _, old := range view.byName {
		if old != gone {
			next.add(old)
		}
	}
	if added != nil {
		next.add(added)
	}
	t.view.Store(next)
}

// remove deletes a topic: durably from the metadata, then its files, then what
// the groups have committed for it, since a topic made anew under the name must
// not be read from old offsets. A crash in between is made good at the start
// (Store.RemoveOrphans, Partition.Start). The position returned makes the last
// step durable.
func (t *topics) remove(name string) (seglog.LSN, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	view := t.view.Load()
	topic := view.byName[name]
	if topic == nil {
		return 0, fmt.Errorf("topic %q does not exist", name)
	}
	if err := t.b.meta.update(func(m *metadata) error { delete(m.Topics, name); return nil }); err != nil {
		return 0, err
	}
	t.replace(view, topic, nil)
	var wg sync.WaitGroup
	for _, p := range topic.Partitions {
		wg.Add(1)
		p.Delete(wg.Done)
	}
	wg.Wait()
	for i, id := range topic.LogIDs {
		if err := t.b.store.Delete(id); err != nil {
			return 0, fmt.Errorf("delete %s: %w", filepath.Join(t.b.cfg.Dir, fmt.Sprintf("%s-%d", name, i)), err)
		}
	}
	lsn := t.forgetOffsets(topic)
	t.b.cfg.Logger.Info("topic deleted", "topic", name)
	return lsn, nil
}

// forgetOffsets drops what the groups have committed for a topic.
func (t *topics) forgetOffsets(gone *topic) seglog.LSN {
	offsets := t.byName(topicOffsets)
	if offsets == nil {
		return 0
	}
	partitions := make([]int32, len(gone.Partitions))
	for i := range partitions {
		partitions[i] = int32(i)
	}
	lsns := make(chan seglog.LSN, len(offsets.Partitions))
	for _, p := range offsets.Partitions {
		p.TopicDeleted(gone.Name, partitions, func(lsn seglog.LSN) { lsns <- lsn })
	}
	last := seglog.LSN(0)
	for range offsets.Partitions {
		last = max(last, <-lsns)
	}
	return last
}

// internalTopic finds an internal topic and creates it at its first use.
func (t *topics) internalTopic(name string) (*topic, error) {
	if have := t.byName(name); have != nil {
		return have, nil
	}
	have, err := t.create(name, internalPartitions, map[string]string{
		"cleanup.policy": "compact", "segment.bytes": fmt.Sprint(internalSegmentBytes), "compression.type": "uncompressed",
	})
	if _, exists := err.(errTopicExists); exists {
		err = nil
	}
	return have, err
}

// coordinatorPartition is the internal topic's partition for a group or
// transactional id: Java's String.hashCode, as Kafka uses it.
func coordinatorPartition(key string, partitions int) int32 {
	h := javaStringHash(key)
	if h == -1<<31 { // its absolute value does not fit; Kafka takes 0
		return 0
	}
	if h < 0 {
		h = -h
	}
	return h % int32(partitions)
}

func javaStringHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 { // a surrogate pair in UTF-16
			r -= 0x10000
			h = 31*h + int32(0xd800+(r>>10))
			h = 31*h + int32(0xdc00+(r&0x3ff))
			continue
		}
		h = 31*h + int32(r)
	}
	return h
}
