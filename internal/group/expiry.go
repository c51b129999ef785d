package group

import "github.com/hanbeon/hanbeon/internal/batch"

// expire drops offsets whose retention is over, and empty groups of which
// nothing is left (§5.2; OffsetMetadataManager.cleanupExpiredOffsets).
func (d *decision) expire() {
	var records []Record
	for _, id := range d.groupIDs() {
		g := d.groups[id]
		doomed, all := d.expired(g)
		records = append(records, tombstones(id, doomed)...)
		// A group with an open transaction stays, and so does one that has just
		// handed out a member id.
		if all && g.state == Empty && g.stored != nil && len(g.pending) == 0 && len(g.pendingJoin) == 0 {
			records = append(records, Record{Key: batch.MarshalGroupKey(id)})
		}
	}
	d.appendBulk(records)
	if len(d.groups) > 0 {
		d.timers.set(d.expiry, d.nowMs+d.cfg.ExpiryIntervalMs)
	}
}

// expired are the partitions whose offsets may go, and whether those are all.
func (d *decision) expired(g *group) (doomed []batch.TopicPartition, all bool) {
	sinceEmpty := false
	switch {
	case g.protocolType == "": // offsets only: each by its commit time
	case g.state == Empty:
		sinceEmpty = g.stateSinceMs >= 0
	case g.state == Stable && g.protocolType == consumerProtocolType && g.subscribed != nil:
	default: // not known who reads what
		return nil, false
	}
	for _, tp := range sortedKeys(g.offsets) {
		c := g.offsets[tp]
		baseMs := c.CommitMs
		if sinceEmpty {
			baseMs = g.stateSinceMs
		}
		over := d.nowMs-baseMs >= d.cfg.OffsetRetentionMs
		if c.ExpireMs >= 0 {
			over = d.nowMs >= c.ExpireMs
		}
		if over && !g.isSubscribed(tp.Topic) && !g.hasPending(tp) {
			doomed = append(doomed, tp)
		}
	}
	return doomed, len(doomed) == len(g.offsets)
}
