package prodstate

import (
	"encoding/binary"
	"fmt"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// A snapshot is Kafka's file <offset>.snapshot (ProducerSnapshot.json), read by
// kafka-dump-log --files:
//
//	0  int16   version 1
//	2  uint32  CRC-32C of what follows
//	6  int32   number of entries, each of 46 bytes:
//	    0  int64  producer id
//	    8  int16  epoch
//	   10  int32  last sequence, or -1
//	   14  int64  last data offset, or -1: the entry has no batch
//	   22  int32  offset delta (last offset - first offset of that batch)
//	   26  int64  timestamp
//	   34  int32  coordinator epoch
//	   38  int64  first offset of the open transaction, or -1
//
// Kafka writes one entry for a producer and so remembers only its last batch
// after a restart. Here a producer has one entry for each remembered batch, the
// oldest first. Kafka's reader puts them into a map by producer id, where the
// last one wins, and so sees exactly the file that Kafka would have written. The
// transaction is in the last entry only, whose timestamp is the producer's; when
// a marker made that differ from the last batch's, the batch is written twice,
// first with its own.
const (
	snapshotVersion    = 1
	snapshotHeaderSize = 10
	snapshotEntrySize  = 46
	snapshotPosCRC     = 2
	snapshotPosBody    = 6
)

// Snapshot returns the state as the content of a snapshot file. The state of
// tokens and of the high watermark is not part of it.
func (m *Machine) Snapshot() []byte {
	out := make([]byte, snapshotHeaderSize, snapshotHeaderSize+len(m.producers)*2*snapshotEntrySize)
	binary.BigEndian.PutUint16(out, snapshotVersion)
	count := uint32(0)
	for _, pid := range m.producerIDs() {
		e := m.producers[pid]
		last := batchMeta{lastSequence: batch.NoSequence, lastOffset: noOffset}
		for i, b := range e.batches[:e.count] {
			if i == int(e.count)-1 {
				last = b
				if b.timestampMs == e.lastTimestampMs {
					break
				}
			}
			out = appendSnapshotEntry(out, pid, e, b, b.timestampMs, noOffset)
			count++
		}
		out = appendSnapshotEntry(out, pid, e, last, e.lastTimestampMs, e.txnFirstOffset)
		count++
	}
	binary.BigEndian.PutUint32(out[snapshotPosBody:], count)
	binary.BigEndian.PutUint32(out[snapshotPosCRC:], batch.CRC(out[snapshotPosBody:]))
	return out
}

func appendSnapshotEntry(dst []byte, pid batch.ProducerID, e *entry, b batchMeta, timestampMs int64, txn batch.Offset) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(pid))
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(b.lastSequence))
	dst = binary.BigEndian.AppendUint64(dst, uint64(b.lastOffset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(b.offsetDelta))
	dst = binary.BigEndian.AppendUint64(dst, uint64(timestampMs))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.coordinatorEpoch))
	return binary.BigEndian.AppendUint64(dst, uint64(txn))
}

// Restore returns the state that a snapshot holds, ours or Kafka's. The error
// wraps batch.ErrCorrupt; the caller then deletes the file and falls back to an
// older one, or to a replay of the whole log.
func Restore(snapshot []byte, opts Options) (*Machine, error) {
	entries, err := snapshotEntries(snapshot)
	if err != nil {
		return nil, err
	}
	m := New(opts)
	for ; len(entries) > 0; entries = entries[snapshotEntrySize:] {
		if err := m.restoreEntry(entries); err != nil {
			return nil, err
		}
	}
	for _, pid := range m.producerIDs() {
		if e := m.producers[pid]; e.isOpen() {
			m.insertOpen(openTxn{firstOffset: e.txnFirstOffset, producerID: pid})
		}
	}
	return m, nil
}

// snapshotEntries checks the frame and returns the bytes of the entries.
func snapshotEntries(b []byte) ([]byte, error) {
	if len(b) < snapshotHeaderSize {
		return nil, fmt.Errorf("producer snapshot of %d bytes is too short: %w", len(b), batch.ErrCorrupt)
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != snapshotVersion {
		return nil, fmt.Errorf("producer snapshot has unknown version %d: %w", v, batch.ErrCorrupt)
	}
	if want, got := binary.BigEndian.Uint32(b[snapshotPosCRC:]), batch.CRC(b[snapshotPosBody:]); got != want {
		return nil, fmt.Errorf("producer snapshot has CRC %08x, its contents %08x: %w", want, got, batch.ErrCorrupt)
	}
	count, entries := binary.BigEndian.Uint32(b[snapshotPosBody:]), b[snapshotHeaderSize:]
	if uint64(len(entries)) != uint64(count)*snapshotEntrySize {
		return nil, fmt.Errorf("producer snapshot of %d entries has %d bytes of them: %w", count, len(entries), batch.ErrCorrupt)
	}
	return entries, nil
}

// restoreEntry merges one entry into the state; a later one of the same producer
// is the newer.
func (m *Machine) restoreEntry(b []byte) error {
	pid := batch.ProducerID(binary.BigEndian.Uint64(b))
	last := batchMeta{
		lastSequence: int32(binary.BigEndian.Uint32(b[10:])),
		lastOffset:   batch.Offset(binary.BigEndian.Uint64(b[14:])),
		offsetDelta:  int32(binary.BigEndian.Uint32(b[22:])),
		timestampMs:  int64(binary.BigEndian.Uint64(b[26:])),
	}
	hasBatch := last.lastOffset >= 0
	if pid <= batch.NoProducerID || hasBatch &&
		(last.offsetDelta < 0 || last.lastSequence < batch.NoSequence || last.firstOffset() < 0) {
		return fmt.Errorf("producer snapshot: the entry of producer %d makes no sense (last sequence %d, last offset %d, offset delta %d): %w",
			pid, last.lastSequence, last.lastOffset, last.offsetDelta, batch.ErrCorrupt)
	}
	e := m.producer(pid)
	e.setEpoch(batch.Epoch(binary.BigEndian.Uint16(b[8:])))
	e.lastTimestampMs = last.timestampMs
	e.coordinatorEpoch = int32(binary.BigEndian.Uint32(b[34:]))
	e.txnFirstOffset = max(batch.Offset(binary.BigEndian.Uint64(b[38:])), noOffset)
	if hasBatch && e.lastDataOffset() != last.lastOffset {
		e.push(last)
	}
	return nil
}
