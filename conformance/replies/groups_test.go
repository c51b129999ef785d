//go:build conformance

package replies_test

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is who a request says it comes from.
type member struct {
	group      string
	id         string
	instance   *string
	generation int32
}

// stranger is a request that names the group only.
func stranger(group string) member { return member{group: group, generation: -1} }

func (m member) at(generation int32) member { m.generation = generation; return m }

// suffix is what makes the names of the script its own.
func (m member) suffix() string {
	_, rest, _ := strings.Cut(m.group, "-")
	return "-" + rest
}

func joinRequest(version int16, m member, protocols ...string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = version, m.group, m.id, m.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 30_000, 30_000, "consumer"
	for _, name := range protocols {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, subscription("subscribed"+m.suffix())
		req.Protocols = append(req.Protocols, p)
	}
	return req
}

// subscription is a consumer's metadata: Kafka reads it, and never answers a
// JoinGroup whose metadata it cannot read.
func subscription(topic string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = []string{topic}
	return m.AppendTo(nil)
}

// join is the whole way into a group: the request for a member id, if the
// version has that, and the JoinGroup that counts.
func (c *client) join(version int16, m member, protocols ...string) (member, *kmsg.JoinGroupResponse) {
	r := typed[*kmsg.JoinGroupResponse](c.do(joinRequest(version, m, protocols...)))
	if r != nil && r.ErrorCode == 79 {
		m.id = r.MemberID
		r = typed[*kmsg.JoinGroupResponse](c.do(joinRequest(version, m, protocols...)))
	}
	if r == nil {
		c.s.fail("no reply to JoinGroup")
	}
	m.id, m.generation = r.MemberID, r.Generation
	return m, r
}

func syncRequest(version int16, m member, assignments ...string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = version, m.group, m.id, m.instance, m.generation
	if version >= 5 {
		req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	}
	for i := 0; i < len(assignments); i += 2 {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = assignments[i], []byte(assignments[i+1])
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

// alone makes a stable group with one member.
func (s *script) alone(group string) member {
	m, _ := s.client("a").join(9, stranger(group), "range")
	s.do(syncRequest(5, m, m.id, "all of it"))
	return m
}

func heartbeatRequest(version int16, m member) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = version, m.group, m.id, m.instance, m.generation
	return req
}

func (s *script) heartbeat(version int16, m member) { s.do(heartbeatRequest(version, m)) }

func leaveRequest(version int16, group string, members ...member) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = version, group
	for _, m := range members {
		req.MemberID = m.id
		lm := kmsg.NewLeaveGroupRequestMember()
		lm.MemberID, lm.InstanceID = m.id, m.instance
		req.Members = append(req.Members, lm)
	}
	return req
}

func describeGroups(version int16, groups ...string) *kmsg.DescribeGroupsRequest {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups = version, groups
	return req
}

// groupIn waits until the group is in a state, with that many members.
func (s *script) groupIn(group, state string, members int) {
	s.client("watch").until(describeGroups(5, group), func(r kmsg.Response) bool {
		g := r.(*kmsg.DescribeGroupsResponse).Groups[0]
		return g.State == state && len(g.Members) == members
	})
}

// at is an offset for a partition.
type at struct {
	topic
	partition int32
	offset    int64
}

func commitRequest(version int16, m member, offsets ...at) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = version, m.group, m.id, m.instance, m.generation
	req.RetentionTimeMillis = -1
	for _, o := range offsets {
		i := slices.IndexFunc(req.Topics, func(t kmsg.OffsetCommitRequestTopic) bool { return t.Topic == o.name })
		if i < 0 {
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = o.name, o.id
			i, req.Topics = len(req.Topics), append(req.Topics, rt)
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = o.partition, o.offset, -1, kmsg.StringPtr("m")
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

func txnCommitRequest(version int16, p producer, m member, offsets ...at) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = version, *p.id, p.pid, p.epoch
	req.Group, req.MemberID, req.InstanceID, req.Generation = m.group, m.id, m.instance, m.generation
	for _, o := range offsets {
		i := slices.IndexFunc(req.Topics, func(t kmsg.TxnOffsetCommitRequestTopic) bool { return t.Topic == o.name })
		if i < 0 {
			rt := kmsg.NewTxnOffsetCommitRequestTopic()
			rt.Topic = o.name
			i, req.Topics = len(req.Topics), append(req.Topics, rt)
		}
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = o.partition, o.offset, -1, kmsg.StringPtr("tm")
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

// committed asks for offsets; without a topic for all of the group's.
func committed(version int16, group string, stable bool, wanted ...at) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable, req.Group = version, stable, group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = group, -1
	for _, w := range wanted {
		i := slices.IndexFunc(g.Topics, func(t kmsg.OffsetFetchRequestGroupTopic) bool { return t.Topic == w.name })
		if i < 0 {
			t := kmsg.NewOffsetFetchRequestTopic()
			t.Topic = w.name
			gt := kmsg.NewOffsetFetchRequestGroupTopic()
			gt.Topic, gt.TopicID = w.name, w.id
			i, req.Topics, g.Topics = len(g.Topics), append(req.Topics, t), append(g.Topics, gt)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, w.partition)
		g.Topics[i].Partitions = append(g.Topics[i].Partitions, w.partition)
	}
	if version >= 8 {
		req.Groups = append(req.Groups, g)
	}
	return req
}
