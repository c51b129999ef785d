package group

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerProtocolType is the protocol type of consumers; only their metadata
// can be read here.
const consumerProtocolType = "consumer"

// copyProtocols keeps a JoinGroup's protocols, each name once.
func copyProtocols(in []kmsg.JoinGroupRequestProtocol) []protocol {
	out := make([]protocol, 0, len(in))
	seen := make(map[string]struct{}, len(in))
	for _, p := range in {
		if _, dup := seen[p.Name]; dup {
			continue
		}
		seen[p.Name] = struct{}{}
		out = append(out, protocol{p.Name, append([]byte{}, p.Metadata...)})
	}
	return out
}

// matches reports whether the member joins with what it joined with before.
func (mem *member) matches(protocols []protocol) bool {
	return slices.EqualFunc(mem.protocols, protocols, func(a, b protocol) bool {
		return a.name == b.name && bytes.Equal(a.metadata, b.metadata)
	})
}

// accepts reports whether a member with this type and protocols fits the group:
// some protocol of its own must be known to every member.
func (g *group) accepts(protocolType string, protocols []protocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	if g.protocolType == "" || g.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p protocol) bool {
		return g.supports[p.name] == len(g.members)
	})
}

// selectProtocol holds the members' vote: each votes for its first protocol
// that all know; the most votes win, the smaller name on a tie.
func (g *group) selectProtocol() string {
	votes := make(map[string]int)
	for _, mem := range g.members {
		for _, p := range mem.protocols {
			if g.supports[p.name] == len(g.members) {
				votes[p.name]++
				break
			}
		}
	}
	best := ""
	for name, n := range votes {
		if n > votes[best] || (n == votes[best] && name < best) {
			best = name
		}
	}
	return best
}

// computeSubscribed reads the consumers' subscriptions: offsets of subscribed
// topics never expire and cannot be deleted.
func (g *group) computeSubscribed() {
	g.subscribed = nil
	if g.protocolType != consumerProtocolType {
		return
	}
	topics := make(map[string]struct{})
	for _, mem := range g.members {
		if !readSubscription(mem.metadata(g.protocol), topics) {
			return
		}
	}
	g.subscribed = topics
}

// isSubscribed reports whether the group reads a topic; a consumer group whose
// subscriptions cannot be read counts as reading everything.
func (g *group) isSubscribed(topic string) bool {
	if g.subscribed == nil {
		return g.protocolType == consumerProtocolType
	}
	_, ok := g.subscribed[topic]
	return ok
}

// readSubscription adds the topics of a ConsumerProtocolSubscription. Version 0
// is a prefix of every version: int16 version, array of string topics.
func readSubscription(b []byte, topics map[string]struct{}) bool {
	if len(b) < 6 || int16(binary.BigEndian.Uint16(b)) < 0 {
		return false
	}
	n := int32(binary.BigEndian.Uint32(b[2:]))
	b = b[6:]
	for ; n > 0; n-- {
		if len(b) < 2 {
			return false
		}
		size := int(int16(binary.BigEndian.Uint16(b)))
		b = b[2:]
		if size < 0 || size > len(b) {
			return false
		}
		topics[string(b[:size])] = struct{}{}
		b = b[size:]
	}
	return n == 0
}
