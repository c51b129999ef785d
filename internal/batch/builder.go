package batch

import (
	"hash/crc32"
	"math"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

// BuilderOptions describe the batch that a Builder is to build.
type BuilderOptions struct {
	// Attributes hold the codec and the transactional bit. The append-time and
	// delete-horizon bits are a broker's.
	Attributes   Attributes
	ProducerID   ProducerID // NoProducerID: not idempotent
	Epoch        Epoch
	BaseSequence int32
	// BaseTimestampMs is what the records' times are stored relative to; the
	// first record's time is a good choice.
	BaseTimestampMs int64
}

// PlainBatch describes a batch without a producer.
func PlainBatch(baseTimestampMs int64) BuilderOptions {
	return BuilderOptions{
		ProducerID:      NoProducerID,
		Epoch:           NoEpoch,
		BaseSequence:    NoSequence,
		BaseTimestampMs: baseTimestampMs,
	}
}

// Builder builds record batches. Its buffer is kept from one batch to the next,
// so that appending a record allocates nothing. The zero value is empty; call
// Reset before the first record.
type Builder struct {
	opts            BuilderOptions
	records         []byte
	count           int32
	lastOffsetDelta int32
	maxTimestampMs  int64
}

// Reset drops the records and starts another batch.
func (b *Builder) Reset(opts BuilderOptions) {
	b.opts = opts
	b.records = b.records[:0]
	b.count = 0
	b.lastOffsetDelta = -1
	b.maxTimestampMs = NoTimestampMs
}

// SetProducer changes the identity under which the batch will be built.
func (b *Builder) SetProducer(pid ProducerID, epoch Epoch, baseSequence int32) {
	b.opts.ProducerID, b.opts.Epoch, b.opts.BaseSequence = pid, epoch, baseSequence
}

// Count is the number of records appended since Reset.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size in bytes of the batch before compression.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// MaxTimestampMs is the greatest time appended, or NoTimestampMs.
func (b *Builder) MaxTimestampMs() int64 { return b.maxTimestampMs }

// RecordSize is by how much Append would make the batch grow.
func (b *Builder) RecordSize(timestampMs int64, key, value []byte, headers []RecordHeader) int {
	size := recordBodySize(timestampMs-b.opts.BaseTimestampMs, b.lastOffsetDelta+1, key, value, headers)
	return varintSize(int32(size)) + size
}

// Append appends a record with the next offset delta. Nil keys and values are
// null. What is passed is copied. The batch must stay under SizeMax bytes and
// 2^31-1 records, far beyond what any broker accepts.
func (b *Builder) Append(timestampMs int64, key, value []byte, headers []RecordHeader) {
	b.AppendAt(b.lastOffsetDelta+1, timestampMs, key, value, headers)
}

// AppendAt appends a record with an offset delta above the last one. Compaction
// uses it to keep offsets where records before them went.
func (b *Builder) AppendAt(offsetDelta int32, timestampMs int64, key, value []byte, headers []RecordHeader) {
	delta := timestampMs - b.opts.BaseTimestampMs
	dst := appendVarint(b.records, int32(recordBodySize(delta, offsetDelta, key, value, headers)))
	dst = append(dst, 0) // attributes
	dst = appendVarlong(dst, delta)
	dst = appendVarint(dst, offsetDelta)
	dst = appendNullable(dst, key)
	dst = appendNullable(dst, value)
	dst = appendVarint(dst, int32(len(headers)))
	for i := range headers {
		dst = appendVarint(dst, int32(len(headers[i].Key)))
		dst = append(dst, headers[i].Key...)
		dst = appendNullable(dst, headers[i].Value)
	}
	b.records = dst
	b.count++
	b.lastOffsetDelta = offsetDelta
	b.maxTimestampMs = max(b.maxTimestampMs, timestampMs)
}

// SetLastOffsetDelta sets the span of the batch when its last records are gone
// (compaction keeps the span that was written).
func (b *Builder) SetLastOffsetDelta(delta int32) { b.lastOffsetDelta = max(b.lastOffsetDelta, delta) }

func recordBodySize(timestampDelta int64, offsetDelta int32, key, value []byte, headers []RecordHeader) int {
	n := 1 + varlongSize(timestampDelta) + varintSize(offsetDelta) +
		nullableSize(key) + nullableSize(value) + varintSize(int32(len(headers)))
	for i := range headers {
		n += varintSize(int32(len(headers[i].Key))) + len(headers[i].Key) + nullableSize(headers[i].Value)
	}
	return n
}

func nullableSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int32(len(b))) + len(b)
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // zigzag of -1
	}
	return append(appendVarint(dst, int32(len(b))), b...)
}

// Build appends the batch to dst, compressed and with its CRC, base offset 0 and
// partition leader epoch -1. When compression does not make the records smaller
// they are stored plain, which every reader accepts. The builder keeps its
// records: building again after SetProducer gives the same records under the new
// identity. At least one record must have been appended.
func (b *Builder) Build(dst []byte) []byte {
	if b.count == 0 {
		panic("batch: Build without a record")
	}
	start := len(dst)
	attributes := b.opts.Attributes
	dst = append(dst, make([]byte, HeaderSize)...)
	body := len(dst)
	if codec := compress.Codec(attributes & AttrCodecMask); codec != compress.None {
		var err error
		if dst, err = compress.Compress(codec, dst, b.records); err != nil || len(dst)-body >= len(b.records) {
			dst = dst[:body]
			attributes &^= AttrCodecMask
		}
	}
	if attributes&AttrCodecMask == 0 {
		dst = append(dst, b.records...)
	}
	size := len(dst) - start
	if size > SizeMax || size > math.MaxInt32 {
		panic("batch: a batch of more than SizeMax bytes was built")
	}
	raw := dst[start:]
	Header{
		Length:               int32(size - lengthOverhead),
		PartitionLeaderEpoch: -1,
		Magic:                magic,
		Attributes:           attributes,
		LastOffsetDelta:      b.lastOffsetDelta,
		BaseTimestampMs:      b.opts.BaseTimestampMs,
		MaxTimestampMs:       b.maxTimestampMs,
		ProducerID:           b.opts.ProducerID,
		Epoch:                b.opts.Epoch,
		BaseSequence:         b.opts.BaseSequence,
		Count:                b.count,
	}.put(raw)
	UpdateCRC(raw)
	return dst
}

// CRC returns the CRC-32C of b, the checksum that Kafka's batches and producer
// snapshots use.
func CRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
