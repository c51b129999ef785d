package batch

import (
	"fmt"
	"iter"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

// DecompressedBytesMax is how much one batch may decompress to when the caller
// sets no limit of its own.
const DecompressedBytesMax = 64 << 20

// RecordHeader is one header of a record. Value nil is null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Record is one record of a batch. Its offset is the batch's BaseOffset plus
// OffsetDelta; its time is Header.TimestampMs. Key or Value nil is null.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64 // milliseconds after the batch's BaseTimestampMs
	Key, Value     []byte
	Headers        []RecordHeader
}

// recordSizeMin is the size of the smallest record: length, attributes, two
// deltas, two lengths and the header count, one byte each.
const recordSizeMin = 7

// Records yields the records of b, which is exactly one batch whose CRC the
// caller trusts, control records too. Keys and values alias b, or for a
// compressed batch a buffer of their own, so they stay valid either way. An
// error, which wraps ErrCorrupt, is the last thing yielded. At most
// DecompressedBytesMax are decompressed.
func Records(b []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		h, raw, _, err := Split(b)
		if err != nil {
			yield(Record{}, err)
			return
		}
		body := raw[HeaderSize:]
		if codec := h.Codec(); codec != compress.None {
			if body, err = compress.Decompress(codec, nil, body, DecompressedBytesMax); err != nil {
				yield(Record{}, corruptf("%v payload at offset %d: %w", codec, h.BaseOffset, err))
				return
			}
		}
		for i := range h.Count {
			var r Record
			if body, err = readRecord(body, &r); err != nil {
				yield(Record{}, fmt.Errorf("batch: record %d of the batch at offset %d: %w", i, h.BaseOffset, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if len(body) > 0 {
			yield(Record{}, corruptf("%d bytes follow the last record of the batch at offset %d", len(body), h.BaseOffset))
		}
	}
}

// view is what the checks of a record need, without its headers' contents.
type view struct {
	timestampDelta int64
	offsetDelta    int32
	hasKey         bool
	key, value     []byte
	headerCount    int32
	headers        []byte
}

// readView reads the record that starts b up to its headers, without
// allocating, and returns what follows the record. ok is false when the record
// is malformed; the headers are not looked at.
func readView(b []byte, v *view) (rest []byte, ok bool) {
	size, n := varint(b)
	if n == 0 || size < recordSizeMin-1 || int(size) > len(b)-n {
		return b, false
	}
	rest = b[n+int(size):]
	b = b[n+1 : n+int(size)] // the attributes byte has no meaning yet
	if v.timestampDelta, n = varlong(b); n == 0 {
		return rest, false
	}
	b = b[n:]
	if v.offsetDelta, n = varint(b); n == 0 {
		return rest, false
	}
	if v.key, b, ok = nullableBytes(b[n:]); !ok {
		return rest, false
	}
	if v.value, b, ok = nullableBytes(b); !ok {
		return rest, false
	}
	v.hasKey = v.key != nil
	if v.headerCount, n = varint(b); n == 0 || v.headerCount < 0 {
		return rest, false
	}
	v.headers = b[n:]
	return rest, true
}

// nullableBytes reads a length and that many bytes; any negative length is
// null, as in Kafka. Bytes of length 0 are not nil.
func nullableBytes(b []byte) (field, rest []byte, ok bool) {
	size, n := varint(b)
	switch {
	case n == 0:
		return nil, b, false
	case size < 0:
		return nil, b[n:], true
	case int(size) > len(b)-n:
		return nil, b, false
	}
	end := n + int(size)
	return b[n:end:end], b[end:], true
}

// skipHeaders checks count headers that must fill b, without allocating.
func skipHeaders(b []byte, count int32) bool {
	for ; count > 0; count-- {
		key, rest, ok := nullableBytes(b)
		if !ok || key == nil {
			return false
		}
		if _, b, ok = nullableBytes(rest); !ok {
			return false
		}
	}
	return len(b) == 0
}

func readRecord(b []byte, r *Record) (rest []byte, err error) {
	var v view
	rest, ok := readView(b, &v)
	if !ok || !skipHeaders(v.headers, v.headerCount) {
		return rest, fmt.Errorf("malformed record: %w", ErrCorrupt)
	}
	*r = Record{OffsetDelta: v.offsetDelta, TimestampDelta: v.timestampDelta, Key: v.key, Value: v.value}
	if v.headerCount == 0 {
		return rest, nil
	}
	// The headers were checked to fill their bytes, two at least for each.
	r.Headers = make([]RecordHeader, 0, v.headerCount)
	for b = v.headers; len(b) > 0; {
		var key, value []byte
		key, b, _ = nullableBytes(b)
		value, b, _ = nullableBytes(b)
		r.Headers = append(r.Headers, RecordHeader{Key: string(key), Value: value})
	}
	return rest, nil
}
