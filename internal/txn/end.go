package txn

import "github.com/hanbeon/hanbeon/internal/batch"

// verdict is what EndTxn does in one cell of the tables below: a code, or one of
// the three that are not codes.
type verdict int16

const (
	decideIt verdict = -1 - iota // write Prepare with the wanted outcome
	repeatIt                     // success: answer as the first time
)

const (
	fenced     = verdict(codeProducerFenced)
	badState   = verdict(codeInvalidTxnState)
	concurrent = verdict(codeConcurrentTransactions)
)

// endV1 says what EndTxn v0 to v4 does when pid and epoch are the current ones
// (TransactionCoordinator.endTransactionWithTV1). A repeated request cannot be
// told from a new one here; the client's own order of calls has to do that.
var endV1 = map[State]struct{ abort, commit verdict }{
	Empty:          {badState, badState},
	Ongoing:        {decideIt, decideIt},
	PrepareCommit:  {badState, concurrent},
	PrepareAbort:   {concurrent, badState},
	CompleteCommit: {badState, repeatIt},
	CompleteAbort:  {repeatIt, badState},
}

// endV2 says what EndTxn v5 and above does (KIP-890,
// TransactionCoordinator.endTransaction). Every decided transaction bumps the
// epoch, so the epoch tells a repeated request from the next one.
var endV2 = map[State]struct{ abortRepeated, abort, commitRepeated, commit verdict }{
	Empty:          {fenced, decideIt, fenced, badState},
	Ongoing:        {fenced, decideIt, fenced, decideIt},
	PrepareAbort:   {concurrent, fenced, badState, fenced},
	PrepareCommit:  {badState, fenced, concurrent, fenced},
	CompleteAbort:  {repeatIt, decideIt, badState, badState},
	CompleteCommit: {badState, decideIt, repeatIt, badState},
}

// v2 reports whether the request speaks transaction version 2. The request's
// version counts, not the cluster's level.
func (c EndTxn) v2() bool { return c.Version >= 5 }

// decideEnd is EndTxn.
func (m *Machine) decideEnd(eff *Effects, nowMs int64, c EndTxn) {
	e := m.entries[c.TransactionalID]
	switch {
	case c.TransactionalID == "":
		eff.refuse(c.Token, codeInvalidRequest, "transactional id is empty")
		return
	case e == nil:
		eff.refuse(c.Token, codeInvalidProducerMapping, "transactional id is unknown or has expired")
		return
	}
	switch v := c.judge(e.md); v {
	case decideIt:
		m.end(eff, nowMs, c, e)
	case repeatIt:
		eff.grantEnd(c.Token, c.Version, e.md)
	default:
		if v == badState && m.early(nowMs, c, e.md) {
			v = concurrent
		}
		eff.refuse(c.Token, int16(v), "")
	}
}

// early reports whether a commit may have overtaken what it commits.
func (m *Machine) early(nowMs int64, c EndTxn, md metadata) bool {
	return c.v2() && c.Commit && c.Epoch == md.epoch && c.ProducerID == md.producerID &&
		(md.state == CompleteCommit || md.state == CompleteAbort) &&
		nowMs >= md.updateMs && nowMs-md.updateMs < m.cfg.EarlyCommitMs
}

// judge looks the request up in the table of its version.
func (c EndTxn) judge(md metadata) verdict {
	rotated := c.v2() && c.overflowed(md)
	if c.ProducerID != md.producerID && !rotated {
		return verdict(codeInvalidProducerMapping)
	}
	current := c.Epoch == md.epoch && !rotated
	if !c.v2() {
		cell := endV1[md.state]
		switch {
		case !current:
			return fenced
		case c.Commit:
			return cell.commit
		}
		return cell.abort
	}
	repeated := rotated || c.Epoch >= 0 && c.Epoch < maxEpoch && md.epoch == c.Epoch+1
	cell := endV2[md.state]
	v := fenced
	switch {
	case repeated && c.Commit:
		v = cell.commitRepeated
	case repeated:
		v = cell.abortRepeated
	case current && c.Commit:
		v = cell.commit
	case current:
		v = cell.abort
	}
	if md.epoch == maxEpoch && (v == repeatIt || v == decideIt && c.Commit) {
		// Only a log that Kafka wrote before KAFKA-20090 comes here. No client
		// may hold this epoch or be given it; an abort leads out of it.
		return fenced
	}
	return v
}

// overflowed reports whether the request is the one whose bump exhausted the
// producer id: the client still holds the old id at its last epoch.
func (c EndTxn) overflowed(md metadata) bool {
	return c.ProducerID == md.previousID && md.previousID != md.producerID &&
		c.Epoch == lastClientEpoch && md.epoch == 0
}

// end writes the client's decision, and parks the answer until the markers are
// written.
func (m *Machine) end(eff *Effects, nowMs int64, c EndTxn, e *entry) {
	var version int16
	if c.v2() {
		version = 2
	}
	final, done, ok := m.prepare(eff, nowMs, e, c.Commit, version)
	switch {
	case !ok:
		eff.refuse(c.Token, codeLoadInProgress, "no producer id is free yet")
	case done:
		eff.grantEnd(c.Token, c.Version, final)
	default:
		e.ending = &parkedEnd{token: c.Token, version: c.Version, sinceMs: nowMs}
		m.wake(nowMs + m.cfg.MaxWaitMs)
	}
}

// fence aborts an open transaction on the server's own account, for a timeout or
// a new producer. It acts at the server's level, transaction version 2, whatever
// the client speaks: the marker and all that follow carry the next epoch.
func (m *Machine) fence(eff *Effects, nowMs int64, e *entry) (ok bool) {
	_, _, ok = m.prepare(eff, nowMs, e, false, 2)
	return ok
}

// prepare writes Prepare and sends the markers. A transaction without partitions
// is completed at once: final is then what it ends as. It fails if the bump
// needs a new producer id and none is free; nothing is written then.
func (m *Machine) prepare(eff *Effects, nowMs int64, e *entry, commit bool, version int16) (final metadata, done, ok bool) {
	nextID := batch.NoProducerID
	if version >= 2 && e.md.exhausted() {
		if nextID, ok = m.cfg.NextID(); !ok {
			return metadata{}, false, false
		}
	}
	next := e.md.prepare(commit, version, nextID, nowMs)
	m.write(eff, e.id, e.md, next)
	if len(next.partitions) == 0 {
		final = next.complete(nowMs)
		m.write(eff, e.id, next, final)
		return final, true, true
	}
	eff.Markers = append(eff.Markers, m.markers(e.id, next, next.partitions))
	return metadata{}, false, true
}

// grantEnd answers a finished EndTxn; v5 and above carry the pair to go on with.
func (eff *Effects) grantEnd(t Token, version int16, final metadata) {
	if version < 5 {
		eff.grant(t, batch.NoProducerID, batch.NoEpoch)
		return
	}
	eff.grant(t, final.producerID, final.epoch)
}
