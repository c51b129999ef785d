package batch

import (
	"encoding/binary"
	"errors"
)

// ControlType is the kind of a control record.
type ControlType int16

// The kinds that end a transaction. Types 2 to 6 are KRaft's.
const (
	ControlUnknown ControlType = -1
	ControlAbort   ControlType = 0
	ControlCommit  ControlType = 1
)

// String returns ABORT or COMMIT, as kafka-dump-log prints it.
func (t ControlType) String() string {
	switch t {
	case ControlAbort:
		return "ABORT"
	case ControlCommit:
		return "COMMIT"
	}
	return "UNKNOWN"
}

// MarkerSize is the size in bytes of a transaction marker.
const MarkerSize = 78

// ErrEmptyMarker reports a control batch that compaction has emptied. It is
// legal and changes nothing when replayed.
var ErrEmptyMarker = errors.New("batch: control batch holds no record")

// AppendMarker appends a transaction marker, MarkerSize bytes, to dst
// (EndTransactionMarker in Kafka). The base offset is 0 and the partition leader
// epoch -1 until they are set.
func AppendMarker(dst []byte, pid ProducerID, epoch Epoch, t ControlType, coordinatorEpoch int32, nowMs int64) []byte {
	start := len(dst)
	dst = Header{
		Length:               MarkerSize - lengthOverhead,
		PartitionLeaderEpoch: -1,
		Magic:                magic,
		Attributes:           AttrTransactional | AttrControl,
		BaseTimestampMs:      nowMs,
		MaxTimestampMs:       nowMs,
		ProducerID:           pid,
		Epoch:                epoch,
		BaseSequence:         NoSequence,
		Count:                1,
	}.AppendTo(dst)
	dst = append(dst, 16<<1, // size of what follows
		0, 0, 0, // attributes and the two deltas
		4<<1, 0, 0, byte(t>>8), byte(t), // key: version 0, type
		6<<1, 0, 0) // value: version 0, coordinator epoch
	dst = binary.BigEndian.AppendUint32(dst, uint32(coordinatorEpoch))
	dst = append(dst, 0) // no headers
	UpdateCRC(dst[start:])
	return dst
}

// ParseMarker reads the marker b, which is exactly one control batch. A type
// that is not ABORT or COMMIT gives ControlUnknown and no error: such a batch is
// to be ignored. Key and value versions above 0 are read by the prefix that is
// known. The error is ErrEmptyMarker or wraps ErrCorrupt.
func ParseMarker(b []byte) (t ControlType, coordinatorEpoch int32, err error) {
	h, raw, _, err := Split(b)
	if err != nil {
		return ControlUnknown, 0, err
	}
	if !h.IsControl() {
		return ControlUnknown, 0, corruptf("batch at offset %d is not a control batch", h.BaseOffset)
	}
	if h.Count == 0 {
		return ControlUnknown, 0, ErrEmptyMarker
	}
	for r, err := range Records(raw) {
		if err != nil {
			return ControlUnknown, 0, err
		}
		return parseMarkerRecord(h, &r)
	}
	return ControlUnknown, 0, ErrEmptyMarker
}

func parseMarkerRecord(h Header, r *Record) (ControlType, int32, error) {
	if len(r.Key) < 4 {
		return ControlUnknown, 0, corruptf("control record at offset %d has a key of %d bytes, want 4", h.BaseOffset, len(r.Key))
	}
	if v := int16(binary.BigEndian.Uint16(r.Key)); v < 0 {
		return ControlUnknown, 0, corruptf("control record at offset %d has key version %d", h.BaseOffset, v)
	}
	t := ControlType(binary.BigEndian.Uint16(r.Key[2:]))
	if t != ControlAbort && t != ControlCommit {
		return ControlUnknown, 0, nil
	}
	if len(r.Value) < 6 {
		return ControlUnknown, 0, corruptf("marker at offset %d has a value of %d bytes, want 6", h.BaseOffset, len(r.Value))
	}
	if v := int16(binary.BigEndian.Uint16(r.Value)); v < 0 {
		return ControlUnknown, 0, corruptf("marker at offset %d has value version %d", h.BaseOffset, v)
	}
	return t, int32(binary.BigEndian.Uint32(r.Value[2:])), nil
}
