package seglog

import (
	"encoding/binary"
	"fmt"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// appendAborted encodes a transaction index entry as Kafka's AbortedTxn.
func appendAborted(b []byte, t AbortedTxn) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, 0) // version
	b = be.AppendUint64(b, uint64(t.ProducerID))
	b = be.AppendUint64(b, uint64(t.FirstOffset))
	b = be.AppendUint64(b, uint64(t.LastOffset))
	return be.AppendUint64(b, uint64(t.LastStableOffset))
}

func parseAborted(b []byte) (AbortedTxn, error) {
	if len(b) < txnEntryBytes {
		return AbortedTxn{}, fmt.Errorf("transaction index entry of %d bytes is cut at %d", txnEntryBytes, len(b))
	}
	be := binary.BigEndian
	if v := be.Uint16(b); v != 0 {
		return AbortedTxn{}, fmt.Errorf("transaction index entry of version %d, this program knows 0", v)
	}
	t := AbortedTxn{
		ProducerID:       batch.ProducerID(be.Uint64(b[2:])),
		FirstOffset:      batch.Offset(be.Uint64(b[10:])),
		LastOffset:       batch.Offset(be.Uint64(b[18:])),
		LastStableOffset: batch.Offset(be.Uint64(b[26:])),
	}
	if t.FirstOffset < 0 || t.LastOffset < t.FirstOffset {
		return t, fmt.Errorf("impossible transaction index entry %+v", t)
	}
	return t, nil
}

// AppendAborted adds an aborted transaction to the transaction index of the
// segment that holds its marker. The owner calls it right after it appended
// the marker.
//
// The entry goes through the journal behind its marker, so a crash can keep
// the marker and lose the entry, but then the marker is the log's last batch
// and no producer snapshot is newer. Therefore the owner also calls it for
// every ABORT marker it replays at its start; an entry that is there already
// is left alone.
func (l *Log) AppendAborted(t AbortedTxn) error {
	if err := l.usable(); err != nil {
		return l.wrap("index aborted transaction of", int64(t.LastOffset), err)
	}
	if t.FirstOffset < 0 || t.LastOffset < t.FirstOffset || int64(t.LastOffset) >= l.w.end {
		return l.wrap("index aborted transaction of", int64(t.LastOffset),
			fmt.Errorf("%w: transaction [%d, %d], log ends at %d", ErrOffsetOutOfRange, t.FirstOffset, t.LastOffset, l.w.end))
	}
	if !l.indexAborted(t) {
		return nil
	}
	it := item{kind: entryAborted, log: l, offset: t.LastOffset, payload: appendAborted(nil, t), after: l.w}
	if _, err := l.s.queue.put(it); err != nil {
		return l.wrap("index aborted transaction of", int64(t.LastOffset), err)
	}
	return nil
}

// indexAborted reports whether the entry was missing. One whose marker lies in
// a sealed segment never is: a later batch of the log followed it in the
// journal.
func (l *Log) indexAborted(t AbortedTxn) bool {
	if int64(t.LastOffset) < l.w.seg.base || int64(t.LastOffset) <= l.w.lastAbort {
		return false
	}
	l.w.seg.txns.add(appendAborted(nil, t))
	l.w.txnN = l.w.seg.txns.entries()
	l.w.lastAbort = int64(t.LastOffset)
	return true
}

// AbortedIn returns the aborted transactions that a read_committed reader of
// [from, upTo) must know: those whose marker is at or after from and that
// began below upTo, in the order of their markers (Kafka's
// TransactionIndex.collectAbortedTxns).
func (l *Log) AbortedIn(from, upTo batch.Offset) ([]AbortedTxn, error) {
	var out []AbortedTxn
	for _, g := range l.find(int64(from)) {
		i, _, err := g.txns.search(func(b []byte) bool {
			return int64(binary.BigEndian.Uint64(b[18:])) >= int64(from)
		})
		var entries []byte
		if err == nil {
			entries, err = g.txns.from(i)
		}
		if err != nil && from < l.Start() { // the segment was deleted meanwhile
			err = ErrOffsetOutOfRange
		}
		if err = l.stillThere(err); err != nil {
			return nil, l.wrap("read transaction index of", int64(from), err)
		}
		for ; len(entries) > 0; entries = entries[txnEntryBytes:] {
			t, err := parseAborted(entries)
			if err != nil {
				return nil, l.wrap("read transaction index of", int64(from), &CorruptError{File: g.txns.name, Reason: err.Error()})
			}
			if t.FirstOffset < upTo {
				out = append(out, t)
			}
			if t.LastStableOffset >= upTo {
				return out, nil
			}
		}
	}
	return out, nil
}
