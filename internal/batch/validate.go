package batch

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

// recordErrorsMax bounds the per-record faults that are reported for one batch.
const recordErrorsMax = 1000

// The smallest length field of any format and the bytes up to the magic: what
// Kafka looks at before it believes that there is a batch at all.
const (
	lengthMin     = 14
	sizeToMagic   = 17
	zstdFirstWith = 7 // Produce version
)

// ValidateOptions are the topic's and the request's side of Validate. A size of
// 0 means no limit, except MaxDecompressedBytes, where it means
// DecompressedBytesMax.
type ValidateOptions struct {
	NowMs                int64
	BeforeMaxMs          int64 // message.timestamp.before.max.ms
	AfterMaxMs           int64 // message.timestamp.after.max.ms
	AppendTime           bool  // message.timestamp.type is LogAppendTime
	Compacted            bool  // cleanup.policy contains compact
	MaxMessageBytes      int   // max.message.bytes
	SegmentBytes         int   // segment.bytes
	MaxDecompressedBytes int
	ProduceVersion       int16
}

// RecordError is the fault of one record of a batch.
type RecordError struct {
	Index   int32 // in the batch
	Message string
}

// Invalid says why the records of one partition were refused.
type Invalid struct {
	Code    int16 // a Kafka error code
	Message string
	// Records are the faults of single records, at most the first 1,000.
	Records []RecordError
}

// Error makes an Invalid usable as an error.
func (v *Invalid) Error() string {
	return fmt.Sprintf("batch: invalid produce data (code %d): %s", v.Code, v.Message)
}

func invalidf(err *kerr.Error, format string, args ...any) *Invalid {
	return &Invalid{Code: err.Code, Message: fmt.Sprintf(format, args...)}
}

// Validate checks b, the records that a client produced to one partition, in
// Kafka's order (ProduceRequest.validateRecords, UnifiedLog, LogValidator). A nil
// Invalid means that b is exactly one batch that may be stored after the offset,
// the leader epoch and, where the topic wants it, the append time are set.
//
// Stricter than Kafka: a transactional batch without a producer, a producer id
// without an epoch, the delete-horizon bit, offset deltas other than 0..n-1 and
// bytes after the batch are INVALID_RECORD; codecs 5 to 7 are
// UNSUPPORTED_COMPRESSION_TYPE. Code that needs the request or the topic's name
// (authorisation, internal topics, one producer per request) is the caller's.
//
// A wrong maxTimestamp is corrected in b, and in the header returned, as Kafka
// does: the time index depends on it. So is the append-time bit where the topic
// goes by create time.
func Validate(b []byte, opts ValidateOptions) (Header, *Invalid) {
	h, invalid := validateFraming(b, opts)
	if invalid != nil {
		return h, invalid
	}
	if invalid := validateHeader(h); invalid != nil {
		return h, invalid
	}
	if invalid := validateRecords(b, &h, opts); invalid != nil {
		return h, invalid
	}
	if opts.SegmentBytes > 0 && len(b) > opts.SegmentBytes {
		return h, invalidf(kerr.RecordListTooLarge,
			"batch of %d bytes exceeds the topic's segment.bytes of %d", len(b), opts.SegmentBytes)
	}
	return h, nil
}

// validateFraming finds the batch: from the length field to the CRC.
func validateFraming(b []byte, opts ValidateOptions) (Header, *Invalid) {
	size, present, invalid := nextBatch(b)
	if invalid != nil {
		return Header{}, invalid
	}
	if !present {
		return Header{}, invalidf(kerr.InvalidRecord, "the partition's records hold no complete batch")
	}
	if b[posMagic] != magic {
		return Header{}, invalidf(kerr.InvalidRecord, "the batch has magic %d, but only magic 2 may be produced", b[posMagic])
	}
	codec := compress.Codec(b[posAttributes+1] & byte(AttrCodecMask))
	if !codec.Valid() || codec == compress.Zstd && opts.ProduceVersion < zstdFirstWith {
		return Header{}, invalidf(kerr.UnsupportedCompressionType,
			"compression codec %v may not be used with Produce version %d", codec, opts.ProduceVersion)
	}
	if size < len(b) {
		if _, _, invalid := nextBatch(b[size:]); invalid != nil {
			return Header{}, invalid
		}
		return Header{}, invalidf(kerr.InvalidRecord,
			"%d bytes follow the batch: a partition takes exactly one batch in a request", len(b)-size)
	}
	if base := int64(binary.BigEndian.Uint64(b)); base != 0 {
		return Header{}, invalidf(kerr.InvalidRecord, "the base offset of a produced batch must be 0, not %d", base)
	}
	if opts.MaxMessageBytes > 0 && size > opts.MaxMessageBytes {
		return Header{}, invalidf(kerr.MessageTooLarge,
			"batch of %d bytes exceeds the topic's max.message.bytes of %d", size, opts.MaxMessageBytes)
	}
	if size < HeaderSize {
		return Header{}, invalidf(kerr.CorruptMessage, "batch of %d bytes is smaller than a header", size)
	}
	if !CheckCRC(b) {
		return Header{}, invalidf(kerr.CorruptMessage, "the batch's CRC does not match its contents")
	}
	return readHeader(b), nil
}

// nextBatch tells the size of the batch that starts b and whether b holds all of
// it. A length or a magic that cannot be is CORRUPT_MESSAGE
// (ByteBufferLogInputStream).
func nextBatch(b []byte) (size int, present bool, invalid *Invalid) {
	if len(b) < lengthOverhead {
		return 0, false, nil
	}
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	if length < lengthMin {
		return 0, false, invalidf(kerr.CorruptMessage, "batch length %d is below the minimum of %d", length, lengthMin)
	}
	if len(b) < sizeToMagic {
		return 0, false, nil
	}
	if m := int8(b[posMagic]); m < 0 || m > magic {
		return 0, false, invalidf(kerr.CorruptMessage, "batch magic %d is unknown", m)
	}
	if int(length) > len(b)-lengthOverhead {
		return 0, false, nil
	}
	return lengthOverhead + int(length), true, nil
}

// validateHeader checks what a client may say about a batch as a whole.
func validateHeader(h Header) *Invalid {
	switch {
	case h.Count <= 0 || h.LastOffsetDelta < 0:
		return invalidf(kerr.InvalidRecord, "record count %d and last offset delta %d: a batch needs a record", h.Count, h.LastOffsetDelta)
	case h.LastOffsetDelta != h.Count-1:
		return invalidf(kerr.InvalidRecord, "last offset delta %d does not fit %d records", h.LastOffsetDelta, h.Count)
	case h.IsControl():
		return invalidf(kerr.InvalidRecord, "clients may not write control records")
	case h.Attributes&AttrDeleteHorizon != 0:
		return invalidf(kerr.InvalidRecord, "clients may not set a delete horizon")
	case h.HasProducer() && h.BaseSequence < 0:
		return invalidf(kerr.InvalidRecord, "base sequence %d with producer id %d", h.BaseSequence, h.ProducerID)
	case h.HasProducer() && h.Epoch < 0:
		return invalidf(kerr.InvalidRecord, "producer epoch %d with producer id %d", h.Epoch, h.ProducerID)
	case h.IsTransactional() && !h.HasProducer():
		return invalidf(kerr.InvalidRecord, "a transactional batch needs a producer id")
	}
	return nil
}

// validateRecords checks the records and sets h.MaxTimestampMs.
func validateRecords(b []byte, h *Header, opts ValidateOptions) *Invalid {
	body := b[HeaderSize:]
	if codec := h.Codec(); codec != compress.None {
		limit := opts.MaxDecompressedBytes
		if limit <= 0 {
			limit = DecompressedBytesMax
		}
		buf := compress.GetBuffer()
		defer compress.PutBuffer(buf)
		var err error
		if buf.B, err = compress.Decompress(codec, buf.B, body, limit); err != nil {
			return invalidf(kerr.InvalidRecord, "%v payload cannot be decompressed within %d bytes: %v", codec, limit, err)
		}
		body = buf.B
	}
	c := checker{opts: opts, h: *h, maxTimestampMs: NoTimestampMs}
	c.earliestMs, c.latestMs = timeBounds(opts)
	if invalid := c.checkAll(body); invalid != nil {
		return invalid
	}
	if !opts.AppendTime && (c.maxTimestampMs != h.MaxTimestampMs || h.IsAppendTime()) {
		b[posAttributes+1] &^= byte(AttrAppendTime) // the topic says whose clock counts
		setMaxTimestamp(b, c.maxTimestampMs)
		*h = readHeader(b)
	}
	return nil
}

// timeBounds returns the inclusive bounds of a create time.
func timeBounds(opts ValidateOptions) (earliestMs, latestMs int64) {
	earliestMs, latestMs = opts.NowMs-opts.BeforeMaxMs, opts.NowMs+opts.AfterMaxMs
	if opts.BeforeMaxMs > 0 && earliestMs > opts.NowMs || opts.BeforeMaxMs == math.MaxInt64 {
		earliestMs = math.MinInt64
	}
	if opts.AfterMaxMs > 0 && latestMs < opts.NowMs {
		latestMs = math.MaxInt64
	}
	return earliestMs, latestMs
}

// checker walks the records of one batch and collects their faults.
type checker struct {
	opts                 ValidateOptions
	h                    Header
	earliestMs, latestMs int64
	maxTimestampMs       int64
	faults               []RecordError
	faultCount           int
	timestampFault       bool
}

func (c *checker) checkAll(body []byte) *Invalid {
	var v view
	for i := range c.h.Count {
		// What follows a broken record cannot be trusted; as in Kafka the batch
		// is refused as a whole, and no record is named as the faulty one.
		var ok bool
		if body, ok = readView(body, &v); !ok || !skipHeaders(v.headers, v.headerCount) {
			return invalidf(kerr.InvalidRecord, "record %d of %d is malformed or missing", i, c.h.Count)
		}
		if v.offsetDelta != i {
			return invalidf(kerr.InvalidRecord, "record %d has offset delta %d", i, v.offsetDelta)
		}
		c.check(i, &v)
	}
	if len(body) > 0 {
		return invalidf(kerr.InvalidRecord, "%d bytes follow the last of %d records", len(body), c.h.Count)
	}
	return c.verdict()
}

// check judges one well-formed record; a record has one fault at most, and the
// key is looked at first.
func (c *checker) check(i int32, v *view) {
	timestampMs := c.h.BaseTimestampMs + v.timestampDelta
	c.maxTimestampMs = max(c.maxTimestampMs, timestampMs)
	switch {
	case c.opts.Compacted && !v.hasKey:
		c.fault(i, false, "a compacted topic takes no record without a key")
	case c.opts.AppendTime && c.h.IsAppendTime():
		c.fault(i, true, "producers may not set the timestamp type to LogAppendTime")
	case c.opts.AppendTime || timestampMs == NoTimestampMs:
	case timestampMs < c.earliestMs || timestampMs > c.latestMs:
		c.fault(i, true, fmt.Sprintf("timestamp %d is outside [%d, %d]", timestampMs, c.earliestMs, c.latestMs))
	}
}

func (c *checker) fault(i int32, timestamp bool, message string) {
	c.faultCount++
	c.timestampFault = c.timestampFault || timestamp
	if len(c.faults) < recordErrorsMax {
		c.faults = append(c.faults, RecordError{Index: i, Message: message})
	}
}

func (c *checker) verdict() *Invalid {
	if c.faultCount == 0 {
		return nil
	}
	err := kerr.InvalidRecord
	if c.timestampFault {
		err = kerr.InvalidTimestamp
	}
	v := invalidf(err, "%d of %d records were refused; the first, record %d: %s",
		c.faultCount, c.h.Count, c.faults[0].Index, c.faults[0].Message)
	v.Records = c.faults
	return v
}
