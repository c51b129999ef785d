package group

import (
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// identity is who says it commits.
type identity struct {
	memberID   string
	instanceID *string
	generation int32
}

// anonymous reports whether nothing of the group's membership is named.
func (who identity) anonymous() bool {
	return who.generation < 0 && who.memberID == "" && who.instanceID == nil
}

// unknownGroup judges a commit to a group that does not exist: without a
// generation it makes a group that only stores offsets.
func unknownGroup(who identity, namesGroup bool) *kerr.Error {
	switch {
	case who.generation < 0:
		return nil
	case namesGroup:
		return kerr.GroupIDNotFound
	}
	return kerr.IllegalGeneration // what older clients understand
}

// checkCommitter is the validation that plain and transactional commits share
// (ClassicGroup.validateOffsetCommit): a commit without generation is welcome
// in an empty group; one that names anything must be right in everything.
// This, with the generation that only grows, is what fences a zombie member.
func (g *group) checkCommitter(who identity) *kerr.Error {
	if (who.generation < 0 && g.state == Empty) || who.anonymous() {
		return nil
	}
	if e := g.validateMember(who.memberID, who.instanceID); e != nil {
		return e
	}
	if who.generation != g.generation {
		return kerr.IllegalGeneration
	}
	return nil
}

// offsetCommit is an OffsetCommit.
func (d *decision) offsetCommit(c OffsetCommit) {
	req := c.Request
	who := identity{req.MemberID, req.InstanceID, req.Generation}
	g := d.lookup(req.Group)
	var e *kerr.Error
	switch {
	case len(req.Group) > maxStringBytes:
		e = kerr.InvalidGroupID
	case g == nil:
		e = unknownGroup(who, req.Version >= 9)
	case who.anonymous() && g.state != Empty:
		e = kerr.UnknownMemberID
	default:
		if e = g.checkCommitter(who); e == nil && g.state == CompletingRebalance {
			e = kerr.RebalanceInProgress
		}
	}
	if e == nil && g != nil {
		if mem := g.byID[req.MemberID]; mem != nil && (g.state == Stable || g.state == PreparingRebalance) {
			d.keepSession(mem, int64(mem.sessionTimeoutMs))
		}
	}
	expireMs := int64(-1)
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		expireMs = d.nowMs + req.RetentionTimeMillis
	}
	r := kmsg.NewPtrOffsetCommitResponse()
	r.Version = req.Version
	var records []Record
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			pe := e
			if pe == nil {
				pe = d.checkOffset(t.Topic, p.Metadata)
			}
			if pe == nil {
				records = append(records, offsetRecord(req.Group,
					batch.TopicPartition{Topic: t.Topic, Partition: p.Partition},
					batch.OffsetValue{
						Offset: batch.Offset(p.Offset), LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata),
						CommitMs: d.nowMs, ExpireMs: expireMs, TopicID: t.TopicID,
					}))
			}
			rt.Partitions[j].Partition, rt.Partitions[j].ErrorCode = p.Partition, code(pe)
		}
		r.Topics = append(r.Topics, rt)
	}
	d.append(records...)
	d.reply(c.Token, r)
}

// txnOffsetCommit is a TxnOffsetCommit (§5.3). Other than for OffsetCommit a
// request that names nothing is accepted (clients below v3 cannot), and so is
// one while the group is CompletingRebalance.
func (d *decision) txnOffsetCommit(c TxnOffsetCommit) {
	req := c.Request
	who := identity{req.MemberID, req.InstanceID, req.Generation}
	if req.Version < 3 {
		who = identity{generation: -1}
	}
	g := d.lookup(req.Group)
	var e *kerr.Error
	switch {
	case req.Group == "" || len(req.Group) > maxStringBytes:
		e = kerr.InvalidGroupID
	case req.ProducerID < 0:
		e = kerr.InvalidProducerIDMapping
	case req.ProducerEpoch < 0:
		e = kerr.InvalidProducerEpoch
	case d.cfg.NoGenerationCheck:
	case g == nil:
		e = unknownGroup(who, req.Version >= 6)
	default:
		e = g.checkCommitter(who)
	}
	r := kmsg.NewPtrTxnOffsetCommitResponse()
	r.Version = req.Version
	var records []Record
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			pe := e
			if pe == nil {
				pe = d.checkOffset(t.Topic, p.Metadata)
			}
			if pe == nil {
				records = append(records, offsetRecord(req.Group,
					batch.TopicPartition{Topic: t.Topic, Partition: p.Partition},
					batch.OffsetValue{
						Offset: batch.Offset(p.Offset), LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata),
						CommitMs: d.nowMs, ExpireMs: -1, TopicID: t.TopicID,
					}))
			}
			rt.Partitions[j].Partition, rt.Partitions[j].ErrorCode = p.Partition, code(pe)
		}
		r.Topics = append(r.Topics, rt)
	}
	if len(records) > 0 {
		d.eff.Appends = append(d.eff.Appends, txnAppend(req, records))
	}
	d.reply(c.Token, r)
}

// checkOffset holds one partition's commit to what a record can carry.
func (d *decision) checkOffset(topic string, metadata *string) *kerr.Error {
	if topic == "" || len(topic) > maxStringBytes {
		return kerr.UnknownTopicOrPartition
	}
	if metadata == nil {
		return nil
	}
	if len(*metadata) > maxStringBytes ||
		(len(*metadata) > d.cfg.OffsetMetadataMaxBytes && utf16Len(*metadata) > d.cfg.OffsetMetadataMaxBytes) {
		return kerr.OffsetMetadataTooLarge
	}
	return nil
}

// utf16Len is the length that Java's String has.
func utf16Len(s string) int {
	n := utf8.RuneCountInString(s)
	for i := 0; i < len(s); i++ {
		if s[i] >= 0xF0 { // four bytes: a surrogate pair
			n++
		}
	}
	return n
}

func code(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}
