package batch

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

// HeaderSize is the size in bytes of a batch's fixed header.
const HeaderSize = 61

// Positions in the header (DefaultRecordBatch in Kafka). The CRC-32C covers
// everything from the attributes on, so the fields before it can be set without
// hashing again.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posEpoch           = 51
	posBaseSequence    = 53
	posCount           = 57
)

const (
	// lengthOverhead is the part of a batch that Length does not count.
	lengthOverhead = 12
	// magic is the only record format here.
	magic = 2
	// SizeMax bounds a batch in bytes; a length field beyond it is corruption.
	SizeMax = 1 << 30
)

// NoTimestampMs is the timestamp of a record or a batch that has none.
const NoTimestampMs int64 = -1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Attributes are the 16 attribute bits of a batch.
type Attributes int16

// The bits of Attributes; the codec is bits 0 to 2.
const (
	AttrCodecMask     Attributes = 0x07
	AttrAppendTime    Attributes = 0x08
	AttrTransactional Attributes = 0x10
	AttrControl       Attributes = 0x20
	AttrDeleteHorizon Attributes = 0x40
)

// Header is the fixed part of a record batch.
type Header struct {
	BaseOffset           Offset
	Length               int32 // bytes after this field
	PartitionLeaderEpoch int32
	Magic                int8
	CRC                  uint32
	Attributes           Attributes
	LastOffsetDelta      int32
	BaseTimestampMs      int64
	MaxTimestampMs       int64
	ProducerID           ProducerID
	Epoch                Epoch
	BaseSequence         int32
	Count                int32
}

// ParseHeader reads the header that starts b. It checks what a reader must know
// to find its way (the length, the magic and that counts are not negative) but
// not the CRC, and b may end after the header. The error is ErrTruncated when b
// has less than HeaderSize bytes, else it wraps ErrCorrupt.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, ErrTruncated
	}
	h := readHeader(b)
	switch {
	case h.Magic != magic:
		return h, corruptf("magic %d, want %d (older formats are not stored)", h.Magic, magic)
	case h.Length < HeaderSize-lengthOverhead || h.Length > SizeMax-lengthOverhead:
		return h, corruptf("length %d is outside [%d, %d]", h.Length, HeaderSize-lengthOverhead, SizeMax-lengthOverhead)
	case h.LastOffsetDelta < 0:
		return h, corruptf("last offset delta %d is negative", h.LastOffsetDelta)
	case h.Count < 0:
		return h, corruptf("record count %d is negative", h.Count)
	case h.BaseOffset < 0 || h.BaseOffset > math.MaxInt64-Offset(h.LastOffsetDelta)-1:
		return h, corruptf("base offset %d is out of range", h.BaseOffset)
	}
	return h, nil
}

// readHeader reads the fields of a buffer of at least HeaderSize bytes.
func readHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		BaseOffset:           Offset(binary.BigEndian.Uint64(b[posBaseOffset:])),
		Length:               int32(binary.BigEndian.Uint32(b[posLength:])),
		PartitionLeaderEpoch: int32(binary.BigEndian.Uint32(b[posLeaderEpoch:])),
		Magic:                int8(b[posMagic]),
		CRC:                  binary.BigEndian.Uint32(b[posCRC:]),
		Attributes:           Attributes(binary.BigEndian.Uint16(b[posAttributes:])),
		LastOffsetDelta:      int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:])),
		BaseTimestampMs:      int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])),
		MaxTimestampMs:       int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])),
		ProducerID:           ProducerID(binary.BigEndian.Uint64(b[posProducerID:])),
		Epoch:                Epoch(binary.BigEndian.Uint16(b[posEpoch:])),
		BaseSequence:         int32(binary.BigEndian.Uint32(b[posBaseSequence:])),
		Count:                int32(binary.BigEndian.Uint32(b[posCount:])),
	}
}

// put writes the header over the first HeaderSize bytes of b.
func (h Header) put(b []byte) {
	_ = b[HeaderSize-1]
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[posLength:], uint32(h.Length))
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(h.PartitionLeaderEpoch))
	b[posMagic] = byte(h.Magic)
	binary.BigEndian.PutUint32(b[posCRC:], h.CRC)
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[posLastOffsetDelta:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[posBaseTimestamp:], uint64(h.BaseTimestampMs))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(h.MaxTimestampMs))
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[posEpoch:], uint16(h.Epoch))
	binary.BigEndian.PutUint32(b[posBaseSequence:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[posCount:], uint32(h.Count))
}

// AppendTo appends the header's HeaderSize bytes to dst as they are; the length
// and the CRC are the caller's. Compaction uses it to keep an emptied batch.
func (h Header) AppendTo(dst []byte) []byte {
	n := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	h.put(dst[n:])
	return dst
}

// Size is the size in bytes of the whole batch.
func (h Header) Size() int { return lengthOverhead + int(h.Length) }

// LastOffset is the offset of the last record that the batch held when it was
// written, whether or not compaction removed it since.
func (h Header) LastOffset() Offset { return h.BaseOffset + Offset(h.LastOffsetDelta) }

// NextOffset is the offset after the batch.
func (h Header) NextOffset() Offset { return h.LastOffset() + 1 }

// LastSequence is the sequence number of the last record, or NoSequence.
// Sequences wrap from 2^31-1 to 0.
func (h Header) LastSequence() int32 {
	if h.BaseSequence == NoSequence {
		return NoSequence
	}
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & math.MaxInt32)
}

// HasProducer tells whether the batch is idempotent.
func (h Header) HasProducer() bool { return h.ProducerID > NoProducerID }

// IsTransactional tells whether the batch belongs to a transaction, as data or
// as its marker.
func (h Header) IsTransactional() bool { return h.Attributes&AttrTransactional != 0 }

// IsControl tells whether the batch is a marker instead of data.
func (h Header) IsControl() bool { return h.Attributes&AttrControl != 0 }

// IsAppendTime tells whether MaxTimestampMs, set by the broker, is the time of
// every record.
func (h Header) IsAppendTime() bool { return h.Attributes&AttrAppendTime != 0 }

// Codec returns how the records are compressed.
func (h Header) Codec() compress.Codec { return compress.Codec(h.Attributes & AttrCodecMask) }

// TimestampMs returns the time of one of the batch's records.
func (h Header) TimestampMs(r *Record) int64 {
	if h.IsAppendTime() {
		return h.MaxTimestampMs
	}
	return h.BaseTimestampMs + r.TimestampDelta
}

// Split cuts the first batch from b. The error is ErrTruncated when b is empty
// or ends inside the batch, else it wraps ErrCorrupt. The CRC is not checked.
func Split(b []byte) (h Header, raw, rest []byte, err error) {
	if h, err = ParseHeader(b); err != nil {
		return h, nil, b, err
	}
	n := h.Size()
	if n > len(b) {
		return h, nil, b, ErrTruncated
	}
	return h, b[:n:n], b[n:], nil
}

// SetBaseOffset assigns the offset of the first record of the batch that starts
// b. The CRC does not cover it.
func SetBaseOffset(b []byte, o Offset) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(o))
}

// SetPartitionLeaderEpoch assigns the epoch of the partition's leader. The CRC
// does not cover it.
func SetPartitionLeaderEpoch(b []byte, epoch int32) {
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(epoch))
}

// SetAppendTime marks b, which is exactly one batch, as stamped by the broker
// at ms and computes the CRC again.
func SetAppendTime(b []byte, ms int64) {
	attributes := binary.BigEndian.Uint16(b[posAttributes:]) | uint16(AttrAppendTime)
	binary.BigEndian.PutUint16(b[posAttributes:], attributes)
	setMaxTimestamp(b, ms)
}

func setMaxTimestamp(b []byte, ms int64) {
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	UpdateCRC(b)
}

// SetProducer gives b, which is exactly one batch, another producer identity
// and computes the CRC again. A producer needs it when its epoch was bumped
// after the batch was built (KIP-360).
func SetProducer(b []byte, pid ProducerID, epoch Epoch, baseSequence int32) {
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(pid))
	binary.BigEndian.PutUint16(b[posEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[posBaseSequence:], uint32(baseSequence))
	UpdateCRC(b)
}

// UpdateCRC computes and stores the CRC of b, which is exactly one batch.
func UpdateCRC(b []byte) {
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
}

// CheckCRC tells whether the CRC-32C of b, which is exactly one batch, is right.
func CheckCRC(b []byte) bool {
	return len(b) >= HeaderSize &&
		crc32.Checksum(b[posAttributes:], castagnoli) == binary.BigEndian.Uint32(b[posCRC:])
}
