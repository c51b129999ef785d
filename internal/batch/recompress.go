package batch

import (
	"fmt"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

// KeepCodec is the compression.type "producer": batches stay as they come.
const KeepCodec Attributes = -1

// CodecNamed is the codec of a topic's compression.type; KeepCodec for
// "producer". An unknown name is KeepCodec as well: the caller has checked it.
func CodecNamed(compressionType string) Attributes {
	if compressionType == "uncompressed" {
		return Attributes(compress.None)
	}
	for c := compress.Gzip; c.Valid(); c++ {
		if c.String() == compressionType {
			return Attributes(c)
		}
	}
	return KeepCodec
}

// Recompress returns the batch b, which is exactly one and has been validated,
// with its records under another codec: a topic's compression.type wants it
// (LogValidator). Everything but length, codec and CRC stays. A batch that has
// the codec already is returned as it is.
func Recompress(b []byte, codec Attributes, decompressedMaxBytes int) ([]byte, error) {
	h, raw, _, err := Split(b)
	if err != nil || h.Attributes&AttrCodecMask == codec || codec == KeepCodec {
		return b, err
	}
	body := raw[HeaderSize:]
	if from := h.Codec(); from != compress.None {
		buf := compress.GetBuffer()
		defer compress.PutBuffer(buf)
		if buf.B, err = compress.Decompress(from, buf.B, body, decompressedMaxBytes); err != nil {
			return nil, corruptf("%v payload: %w", from, err)
		}
		body = buf.B
	}
	out := append(make([]byte, 0, HeaderSize+len(body)), raw[:HeaderSize]...)
	if to := compress.Codec(codec); to == compress.None {
		out = append(out, body...)
	} else if out, err = compress.Compress(to, out, body); err != nil {
		return nil, fmt.Errorf("batch: compress with %v: %w", to, err)
	}
	h.Attributes = h.Attributes&^AttrCodecMask | codec
	h.Length = int32(len(out) - lengthOverhead)
	h.put(out)
	UpdateCRC(out)
	return out, nil
}
