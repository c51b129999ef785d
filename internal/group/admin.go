package group

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// describe is a DescribeGroups. An unknown group is Dead without an error
// below v6, GROUP_ID_NOT_FOUND from v6 (KIP-1043).
func (d *decision) describe(c Describe) {
	r := kmsg.NewPtrDescribeGroupsResponse()
	r.Version = c.Request.Version
	for _, id := range c.Request.Groups {
		rg := kmsg.NewDescribeGroupsResponseGroup()
		rg.Group = id
		if g := d.lookup(id); g != nil {
			g.describeInto(&rg)
		} else {
			rg.State = Dead.String()
			if c.Request.Version >= 6 {
				rg.ErrorCode = kerr.GroupIDNotFound.Code
				rg.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s not found.", id))
			}
		}
		r.Groups = append(r.Groups, rg)
	}
	d.reply(c.Token, r)
}

// describeInto shows the members, with their metadata only once the group is
// stable: before that, what they will agree on is open.
func (g *group) describeInto(rg *kmsg.DescribeGroupsResponseGroup) {
	rg.State = g.state.String()
	rg.ProtocolType = g.protocolType
	if g.state == Stable {
		rg.Protocol = g.protocol
	}
	for _, mem := range g.members {
		rm := kmsg.NewDescribeGroupsResponseGroupMember()
		rm.MemberID, rm.InstanceID = mem.id, mem.instanceID
		rm.ClientID, rm.ClientHost = mem.clientID, mem.clientHost
		rm.MemberAssignment = mem.assignment
		if g.state == Stable {
			rm.ProtocolMetadata = mem.metadata(g.protocol)
		}
		rg.Members = append(rg.Members, rm)
	}
}

// groupType is the type that ListGroups v5 shows and filters by.
const groupType = "classic"

// list is a ListGroups. Filters ignore case; an unknown name matches nothing.
func (d *decision) list(c List) {
	r := kmsg.NewPtrListGroupsResponse()
	r.Version = c.Request.Version
	wanted := func(filter []string, value string) bool {
		for _, f := range filter {
			if strings.EqualFold(strings.TrimSpace(f), value) {
				return true
			}
		}
		return len(filter) == 0
	}
	for _, id := range d.groupIDs() {
		g := d.lookup(id)
		if g == nil || !wanted(c.Request.StatesFilter, g.state.String()) || !wanted(c.Request.TypesFilter, groupType) {
			continue
		}
		rg := kmsg.NewListGroupsResponseGroup()
		rg.Group, rg.ProtocolType = id, g.protocolType
		rg.GroupState, rg.GroupType = g.state.String(), groupType
		r.Groups = append(r.Groups, rg)
	}
	d.reply(c.Token, r)
}

// tombstones delete offsets of a group.
func tombstones(id string, tps []batch.TopicPartition) []Record {
	out := make([]Record, len(tps))
	for i, tp := range tps {
		out[i] = Record{Key: offsetKey(id, tp)}
	}
	return out
}

// held are the partitions for which there is a committed or pending offset.
func (g *group) held() []batch.TopicPartition {
	all := make(map[batch.TopicPartition]struct{}, len(g.offsets)+len(g.pending))
	for tp := range g.offsets {
		all[tp] = struct{}{}
	}
	for tp := range g.pending {
		all[tp] = struct{}{}
	}
	return sortedKeys(all)
}

// deleteGroups is a DeleteGroups. Pending offsets go too: a tombstone outlives
// the marker of the transaction that wrote them.
func (d *decision) deleteGroups(c Delete) {
	r := kmsg.NewPtrDeleteGroupsResponse()
	r.Version = c.Request.Version
	done := make(map[string]bool)
	for _, id := range c.Request.Groups {
		rg := kmsg.NewDeleteGroupsResponseGroup()
		rg.Group = id
		var e *kerr.Error
		switch g := d.lookup(id); {
		case g == nil:
			e = kerr.GroupIDNotFound
		case g.state != Empty:
			e = kerr.NonEmptyGroup
		case !done[id]:
			done[id] = true
			d.appendBulk(g.deletion())
		}
		if e != nil {
			rg.ErrorCode = e.Code
			if c.Request.Version >= 3 {
				rg.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s: %s", id, e.Description))
			}
		}
		r.Groups = append(r.Groups, rg)
	}
	d.reply(c.Token, r)
}

// deletion are the records that delete a group, its metadata last.
func (g *group) deletion() []Record {
	records := tombstones(g.id, g.held())
	if g.stored != nil {
		records = append(records, Record{Key: batch.MarshalGroupKey(g.id)})
	}
	return records
}

// offsetDelete is an OffsetDelete: refused for topics that the group reads.
func (d *decision) offsetDelete(c OffsetDelete) {
	req := c.Request
	r := kmsg.NewPtrOffsetDeleteResponse()
	r.Version = req.Version
	g := d.lookup(req.Group)
	switch {
	case req.Group == "":
		r.ErrorCode = kerr.InvalidGroupID.Code
	case g == nil:
		r.ErrorCode = kerr.GroupIDNotFound.Code
	case g.state != Empty && g.protocolType != consumerProtocolType:
		r.ErrorCode = kerr.NonEmptyGroup.Code
	}
	if r.ErrorCode != 0 {
		d.reply(c.Token, r)
		return
	}
	doomed := make(map[batch.TopicPartition]struct{})
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			tp := batch.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			if g.isSubscribed(t.Topic) {
				rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
			} else if _, ok := g.offsets[tp]; ok || g.hasPending(tp) {
				doomed[tp] = struct{}{}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	d.appendBulk(tombstones(g.id, sortedKeys(doomed)))
	d.reply(c.Token, r)
}

// OffsetPartitions are the partitions for which any group has a committed or
// pending offset, sorted.
func (m *Machine) OffsetPartitions() []batch.TopicPartition {
	all := make(map[batch.TopicPartition]struct{})
	for _, g := range m.groups {
		for _, tp := range g.held() {
			all[tp] = struct{}{}
		}
	}
	return sortedKeys(all)
}

// topicDeleted drops the offsets of partitions that are gone, pending ones too.
func (d *decision) topicDeleted(c TopicDeleted) {
	gone := make(map[batch.TopicPartition]struct{}, len(c.Partitions))
	for _, p := range c.Partitions {
		gone[batch.TopicPartition{Topic: c.Topic, Partition: p}] = struct{}{}
	}
	var records []Record
	for _, id := range d.groupIDs() {
		g := d.groups[id]
		var doomed []batch.TopicPartition
		for _, tp := range sortedKeys(gone) {
			if _, ok := g.offsets[tp]; ok || g.hasPending(tp) {
				doomed = append(doomed, tp)
			}
		}
		records = append(records, tombstones(id, doomed)...)
	}
	d.appendBulk(records)
}
