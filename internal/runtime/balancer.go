package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// protocolName is the name of our assignor in the classic group protocol.
const protocolName = "hanbeon"

// userDataVersion is the first byte of the members' user data.
//
//	byte    version (1)
//	uvarint length, then that many bytes: instance id of the process
//	uvarint number of tasks, then per task: uvarint sub-topology, uvarint partition
const userDataVersion = 1

// Bounds on what another member's user data may make us allocate.
const (
	userDataMaxInstance = 1 << 10
	userDataMaxTasks    = 1 << 20
)

// ErrMemberVersion says that a member of the group speaks a version of the
// assignor's user data that this program does not know.
var ErrMemberVersion = errors.New("unknown version of the assignor's user data")

// userData is what a member tells the leader beside its topics and partitions.
type userData struct {
	Instance string
	Previous []task.ID
}

func (u userData) appendTo(dst []byte) []byte {
	dst = append(dst, userDataVersion)
	dst = binary.AppendUvarint(dst, uint64(len(u.Instance)))
	dst = append(dst, u.Instance...)
	dst = binary.AppendUvarint(dst, uint64(len(u.Previous)))
	for _, id := range u.Previous {
		dst = binary.AppendUvarint(dst, uint64(uint32(id.Subtopology)))
		dst = binary.AppendUvarint(dst, uint64(uint32(id.Partition)))
	}
	return dst
}

func parseUserData(src []byte) (userData, error) {
	if len(src) == 0 {
		return userData{}, errors.New("user data is empty: the member uses another assignor")
	}
	if src[0] != userDataVersion {
		return userData{}, fmt.Errorf("%w: %d; this program knows version %d", ErrMemberVersion, src[0], userDataVersion)
	}
	src = src[1:]
	var broken bool
	next := func(limit uint64) uint64 {
		v, n := binary.Uvarint(src)
		if n <= 0 || v > limit {
			broken = true
			return 0
		}
		src = src[n:]
		return v
	}
	var u userData
	length := next(userDataMaxInstance)
	if broken || length > uint64(len(src)) {
		return userData{}, errors.New("user data is cut short in the instance id")
	}
	u.Instance, src = string(src[:length]), src[length:]
	count := next(userDataMaxTasks)
	// A task takes at least two bytes.
	if broken || count > uint64(len(src)/2) {
		return userData{}, errors.New("user data is cut short in the list of tasks")
	}
	u.Previous = make([]task.ID, 0, count)
	for range count {
		sub, partition := next(1<<31-1), next(1<<31-1)
		u.Previous = append(u.Previous, task.ID{Subtopology: int(sub), Partition: int32(partition)})
	}
	if broken || len(src) != 0 {
		return userData{}, errors.New("user data has a broken list of tasks")
	}
	return u, nil
}

// balancer is the task-aware cooperative assignor as kgo wants it. It is
// built on the consumer protocol's metadata and assignment, so that Kafka's
// own tools can describe the group.
type balancer struct {
	groups   []sourceGroup
	instance string
	// previous lists the tasks whose state lies in the state directory.
	previous func() []task.ID
}

var _ kgo.GroupBalancer = (*balancer)(nil)

// ProtocolName implements kgo.GroupBalancer.
func (*balancer) ProtocolName() string { return protocolName }

// IsCooperative implements kgo.GroupBalancer.
func (*balancer) IsCooperative() bool { return true }

// JoinGroupMetadata implements kgo.GroupBalancer.
func (b *balancer) JoinGroupMetadata(topics []string, owned map[string][]int32, generation int32) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 2 // the first with the generation (KIP-792)
	meta.Topics = topics
	meta.Generation = generation
	meta.UserData = userData{Instance: b.instance, Previous: b.previous()}.appendTo(nil)
	for _, topic := range sortedKeys(owned) {
		t := kmsg.NewConsumerMemberMetadataOwnedPartition()
		t.Topic, t.Partitions = topic, owned[topic]
		meta.OwnedPartitions = append(meta.OwnedPartitions, t)
	}
	return meta.AppendTo(nil)
}

// ParseSyncAssignment implements kgo.GroupBalancer.
func (*balancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	return kgo.ParseConsumerSyncAssignment(assignment)
}

// MemberBalancer implements kgo.GroupBalancer.
func (b *balancer) MemberBalancer(joined []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	members := make([]groupMember, 0, len(joined))
	topics := make(map[string]struct{})
	for i := range joined {
		m, err := parseMember(&joined[i])
		if err != nil {
			return nil, nil, fmt.Errorf("member %q of the group: %w", joined[i].MemberID, err)
		}
		members = append(members, m)
	}
	for _, g := range b.groups {
		for _, topic := range g.Topics {
			topics[topic] = struct{}{}
		}
	}
	return &memberBalancer{groups: b.groups, members: members}, topics, nil
}

// maxMetadata bounds the metadata of a member that we are willing to parse.
const maxMetadata = 16 << 20

func parseMember(joined *kmsg.JoinGroupResponseMember) (groupMember, error) {
	if len(joined.ProtocolMetadata) > maxMetadata {
		return groupMember{}, fmt.Errorf("metadata of %d bytes is larger than %d", len(joined.ProtocolMetadata), maxMetadata)
	}
	meta := kmsg.NewConsumerMemberMetadata()
	if err := meta.ReadFrom(joined.ProtocolMetadata); err != nil {
		return groupMember{}, fmt.Errorf("read metadata: %w", err)
	}
	u, err := parseUserData(meta.UserData)
	if err != nil {
		return groupMember{}, err
	}
	m := groupMember{
		ID: joined.MemberID, Instance: u.Instance, Generation: meta.Generation,
		Topics: meta.Topics, Previous: u.Previous, Owned: make(map[string][]int32, len(meta.OwnedPartitions)),
	}
	for _, o := range meta.OwnedPartitions {
		m.Owned[o.Topic] = append(m.Owned[o.Topic], o.Partitions...)
	}
	return m, nil
}

// memberBalancer balances one generation of the group.
type memberBalancer struct {
	groups  []sourceGroup
	members []groupMember
}

var _ kgo.GroupMemberBalancerOrError = (*memberBalancer)(nil)

// Balance implements kgo.GroupMemberBalancer; kgo calls BalanceOrError instead.
func (b *memberBalancer) Balance(partitions map[string]int32) kgo.IntoSyncAssignment {
	plan, err := b.BalanceOrError(partitions)
	if err != nil {
		return syncPlan(nil)
	}
	return plan
}

// BalanceOrError implements kgo.GroupMemberBalancerOrError.
func (b *memberBalancer) BalanceOrError(partitions map[string]int32) (kgo.IntoSyncAssignment, error) {
	a, err := assignTasks(b.groups, partitions, b.members)
	if err != nil {
		return nil, err
	}
	topics := make(map[int][]string, len(b.groups))
	for _, g := range b.groups {
		topics[g.SubTopology] = g.Topics
	}
	plan := make(syncPlan, 0, len(a.Granted))
	for _, member := range sortedKeys(a.Granted) {
		assigned := make(map[string][]int32)
		for _, id := range a.Granted[member] {
			for topic, p := range taskPartitions(id, topics[id.Subtopology], partitions) {
				assigned[topic] = append(assigned[topic], p)
			}
		}
		kassignment := kmsg.NewConsumerMemberAssignment()
		for _, topic := range sortedKeys(assigned) {
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic, t.Partitions = topic, assigned[topic]
			slices.Sort(t.Partitions)
			kassignment.Topics = append(kassignment.Topics, t)
		}
		sync := kmsg.NewSyncGroupRequestGroupAssignment()
		sync.MemberID, sync.MemberAssignment = member, kassignment.AppendTo(nil)
		plan = append(plan, sync)
	}
	return plan, nil
}

type syncPlan []kmsg.SyncGroupRequestGroupAssignment

// IntoSyncAssignment implements kgo.IntoSyncAssignment.
func (p syncPlan) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return p }
