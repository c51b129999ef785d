package group

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// report writes effects, and lets the clients learn from the replies.
func (s *script) report(eff Effects) {
	for _, a := range eff.Appends {
		txn := ""
		if a.Transactional() {
			txn = fmt.Sprintf(" pid=%d epoch=%d", a.ProducerID, a.Epoch)
		}
		for _, r := range a.Records {
			fmt.Fprintf(s.out, "  append%s %s\n", txn, showRecord(r))
		}
	}
	for _, r := range eff.Replies {
		fmt.Fprintf(s.out, "  %s: %s\n", s.who[r.Token], s.answer(r))
	}
}

func (s *script) answer(r Reply) string {
	name, _, _ := strings.Cut(s.who[r.Token], " ")
	s.group = s.groups[r.Token]
	switch v := r.Response.(type) {
	case nil:
		return showFetch(r.OffsetFetch)
	case *kmsg.JoinGroupResponse:
		return s.showJoin(s.client(name), v)
	case *kmsg.SyncGroupResponse:
		if v.ErrorCode != 0 {
			return errName(v.ErrorCode)
		}
		return fmt.Sprintf("ok protocol=%s assignment=%s", show(v.Protocol), v.MemberAssignment)
	case *kmsg.HeartbeatResponse:
		return errName(v.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		out := errName(v.ErrorCode)
		for _, m := range v.Members {
			out += fmt.Sprintf(" %s(%s)=%s", m.MemberID, show(m.InstanceID), errName(m.ErrorCode))
		}
		return out
	case *kmsg.OffsetCommitResponse:
		out := ""
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				out += fmt.Sprintf(" %s-%d=%s", t.Topic, p.Partition, errName(p.ErrorCode))
			}
		}
		return strings.TrimSpace(out)
	case *kmsg.TxnOffsetCommitResponse:
		out := ""
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				out += fmt.Sprintf(" %s-%d=%s", t.Topic, p.Partition, errName(p.ErrorCode))
			}
		}
		return strings.TrimSpace(out)
	}
	return showAdmin(r.Response)
}

func (s *script) showJoin(c *client, v *kmsg.JoinGroupResponse) string {
	if v.ErrorCode != 0 {
		out := errName(v.ErrorCode)
		if v.ErrorCode == kerr.MemberIDRequired.Code {
			c.member = v.MemberID
			out += " member=" + v.MemberID
		}
		return out
	}
	c.member, c.gen = v.MemberID, v.Generation
	out := fmt.Sprintf("ok generation=%d member=%s protocol=%s leader=%s", v.Generation, v.MemberID, show(v.Protocol), v.LeaderID)
	if v.SkipAssignment {
		out += " skip-assignment"
	}
	for i, m := range v.Members {
		out += []string{" members=", ","}[min(i, 1)] + m.MemberID
		if m.InstanceID != nil {
			out += "(" + *m.InstanceID + ")"
		}
		out += ":" + printable(m.ProtocolMetadata)
	}
	return out
}

func printable(b []byte) string {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("<%d bytes>", len(b))
		}
	}
	return string(b)
}

func showFetch(g *kmsg.OffsetFetchResponseGroup) string {
	out := errName(g.ErrorCode)
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			out += fmt.Sprintf(" %s-%d=%d", t.Topic, p.Partition, p.Offset)
			if p.ErrorCode != 0 {
				out += "/" + errName(p.ErrorCode)
			}
			if *p.Metadata != "" {
				out += "/" + *p.Metadata
			}
		}
	}
	return out
}

func showAdmin(r kmsg.Response) string {
	var parts []string
	switch v := r.(type) {
	case *kmsg.DescribeGroupsResponse:
		for _, g := range v.Groups {
			out := fmt.Sprintf("%s=%s state=%s type=%q protocol=%q", g.Group, errName(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
			for _, m := range g.Members {
				out += fmt.Sprintf(" %s(%s):%s:%s", m.MemberID, show(m.InstanceID), printable(m.ProtocolMetadata), m.MemberAssignment)
			}
			parts = append(parts, out)
		}
	case *kmsg.ListGroupsResponse:
		for _, g := range v.Groups {
			parts = append(parts, fmt.Sprintf("%s(%s,%s,%s)", g.Group, g.ProtocolType, g.GroupState, g.GroupType))
		}
		if len(parts) == 0 {
			return "none"
		}
	case *kmsg.DeleteGroupsResponse:
		for _, g := range v.Groups {
			parts = append(parts, g.Group+"="+errName(g.ErrorCode))
		}
	case *kmsg.OffsetDeleteResponse:
		parts = append(parts, errName(v.ErrorCode))
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				parts = append(parts, fmt.Sprintf("%s-%d=%s", t.Topic, p.Partition, errName(p.ErrorCode)))
			}
		}
	default:
		return fmt.Sprintf("%T", r)
	}
	return strings.Join(parts, " ")
}
