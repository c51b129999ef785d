// Package compress holds the codecs of record batches, pooled: gzip, snappy
// (raw and in xerial's framing), lz4 frames and zstd.
//
// It is apart from package batch because pools need sync, and batch is pure. A
// call's result depends on its arguments only, so the pools do not show.
package compress

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the number of a compression type, as in the low three bits of a
// batch's attributes.
type Codec int8

// The codecs of Kafka (CompressionType).
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	Lz4    Codec = 3
	Zstd   Codec = 4
)

// Valid tells whether c is one of Kafka's codecs. Values 5 to 7 fit in the
// attributes but mean nothing.
func (c Codec) Valid() bool { return c >= None && c <= Zstd }

// String returns the name that compression.type uses.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case Lz4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", int8(c))
}

// Errors of Decompress.
var (
	// ErrTooLarge: the payload decompresses to more than the limit.
	ErrTooLarge = errors.New("compress: decompressed size is over the limit")
	// ErrUnknownCodec: the codec is not one of Kafka's.
	ErrUnknownCodec = errors.New("compress: unknown codec")
)

// zstdWindowMax is the largest window accepted, 128 MiB, which is what level 22
// uses. Decoding in one piece needs no memory for the window itself.
const zstdWindowMax = 1 << 27

var (
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Writers  = sync.Pool{New: func() any { return newLz4Writer() }}
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}

	// One zstd coder of each kind serves all callers at once: EncodeAll and
	// DecodeAll keep a set of states and start no goroutine.
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // constant options
		}
		return e
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowMax), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(err) // constant options
		}
		return d
	})
)

// newLz4Writer makes blocks of 64 KiB, the size that Kafka's Java client writes
// and that every reader accepts.
func newLz4Writer() *lz4.Writer {
	w := lz4.NewWriter(nil)
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ConcurrencyOption(1)); err != nil {
		panic(err) // constant options
	}
	return w
}

// Compress appends src, compressed, to dst. The only error is ErrUnknownCodec.
// Snappy is written as one raw block, which Java's reader tells from its own
// framing by the missing magic.
func Compress(codec Codec, dst, src []byte) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		out := bytes.NewBuffer(dst)
		w.Reset(out)
		return finish(dst, out, w, src)
	case Snappy:
		room := snappy.MaxEncodedLen(len(src))
		if room < 0 {
			return dst, fmt.Errorf("compress: %d bytes are too many for a snappy block", len(src))
		}
		dst = append(dst, make([]byte, room)...)
		block := snappy.Encode(dst[len(dst)-room:], src)
		return dst[:len(dst)-room+len(block)], nil
	case Lz4:
		w := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(w)
		out := bytes.NewBuffer(dst)
		w.Reset(out)
		return finish(dst, out, w, src)
	case Zstd:
		return zstdEncoder().EncodeAll(src, dst), nil
	}
	return dst, fmt.Errorf("%w %d", ErrUnknownCodec, codec)
}

type writeCloser interface {
	Write([]byte) (int, error)
	Close() error
}

func finish(dst []byte, out *bytes.Buffer, w writeCloser, src []byte) ([]byte, error) {
	if _, err := w.Write(src); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}
