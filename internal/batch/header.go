package batch

// HeaderSize is the size in bytes of a batch's fixed header.
const HeaderSize = 61

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
