package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// firstGuessBytesMin is the smallest buffer that a decompression starts with.
const firstGuessBytesMin = 4 << 10

// Decompress appends src, decompressed, to dst. It gives up with ErrTooLarge
// once the result would exceed maxBytes, and never allocates much more than
// twice what it has really decompressed, whatever sizes src claims. Trailing
// bytes after a complete stream are an error for snappy and are read as another
// stream by the other codecs.
func Decompress(codec Codec, dst, src []byte, maxBytes int) ([]byte, error) {
	switch codec {
	case None:
		if len(src) > maxBytes {
			return dst, ErrTooLarge
		}
		return append(dst, src...), nil
	case Gzip:
		return gunzip(dst, src, maxBytes)
	case Snappy:
		return unsnappy(dst, src, maxBytes)
	case Lz4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer func() {
			r.Reset(eof{})
			lz4Readers.Put(r)
		}()
		r.Reset(bytes.NewReader(src))
		return readAll(dst, r, len(src), maxBytes)
	case Zstd:
		return unzstd(dst, src, maxBytes)
	}
	return dst, fmt.Errorf("%w %d", ErrUnknownCodec, codec)
}

// eof lets pooled readers drop what they read last.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

func gunzip(dst, src []byte, maxBytes int) ([]byte, error) {
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, err
	}
	return readAll(dst, r, len(src), maxBytes)
}

// readAll appends all of r to dst, at most maxBytes.
func readAll(dst []byte, r io.Reader, compressed, maxBytes int) ([]byte, error) {
	start := len(dst)
	dst = grow(dst, min(max(4*compressed, firstGuessBytesMin), maxBytes)+1)
	for {
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst)-start > maxBytes {
			return dst[:start], ErrTooLarge
		}
		switch {
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst[:start], err
		case len(dst) == cap(dst):
			dst = grow(dst, max(min(len(dst)-start, maxBytes-(len(dst)-start))+1, 512))
		}
	}
}

// grow makes room for n more bytes.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	bigger := make([]byte, len(dst), len(dst)+n)
	copy(bigger, dst)
	return bigger
}

// unzstd decodes in one piece into what room there is and tries again with more
// when that was too little: the decoder stops at the capacity of its output.
// When the frame tells its size, a try that cannot succeed costs nothing.
func unzstd(dst, src []byte, maxBytes int) ([]byte, error) {
	start := len(dst)
	for room := max(4*len(src), firstGuessBytesMin); ; room *= 4 {
		dst = grow(dst[:start], min(room, maxBytes))
		room = cap(dst) - start
		out, err := zstdDecoder().DecodeAll(src, dst)
		switch {
		case err == nil && len(out)-start > maxBytes:
			return dst[:start], ErrTooLarge
		case err == nil:
			return out, nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded) && room >= zstdRoomMax(src):
			return dst[:start], err
		case room >= maxBytes:
			return dst[:start], ErrTooLarge
		}
	}
}

// zstdRoomMax is more than src can decode to: a block takes 3 bytes at least and
// makes 128 KiB at most. Below it, an error may only mean that the room ended in
// the middle of a block: of a frame that does not tell its size, as Java's are,
// the decoder then says that the block is too big, not that the room is too small.
func zstdRoomMax(src []byte) int { return (len(src)/3 + 1) * (128 << 10) }

// xerialMagic starts the framing of snappy-java: magic, two int32 versions, then
// blocks that each follow their int32 size.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderSize = 16

func unsnappy(dst, src []byte, maxBytes int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return snappyBlock(dst, src, maxBytes)
	}
	if len(src) < xerialHeaderSize {
		return dst, snappy.ErrCorrupt
	}
	start := len(dst)
	for src = src[xerialHeaderSize:]; len(src) > 0; {
		if len(src) < 4 {
			return dst[:start], snappy.ErrCorrupt
		}
		size := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(size) > uint64(len(src)) {
			return dst[:start], snappy.ErrCorrupt
		}
		var err error
		if dst, err = snappyBlock(dst, src[:size], maxBytes-(len(dst)-start)); err != nil {
			return dst[:start], err
		}
		src = src[size:]
	}
	return dst, nil
}

// snappyExpansionMax bounds how much longer than its bytes a snappy block can
// be: a copy of 3 bytes yields at most 64.
const snappyExpansionMax = 64

func snappyBlock(dst, src []byte, maxBytes int) ([]byte, error) {
	size, err := snappy.DecodedLen(src)
	switch {
	case err != nil:
		return dst, err
	case size > maxBytes:
		return dst, ErrTooLarge
	case size > snappyExpansionMax*len(src):
		return dst, snappy.ErrCorrupt
	}
	dst = grow(dst, size)
	out, err := snappy.Decode(dst[len(dst):len(dst)+size], src)
	if err != nil {
		return dst, err
	}
	return dst[:len(dst)+len(out)], nil
}

// Buffer is a pooled byte slice.
type Buffer struct{ B []byte }

// bufferBytesMax is the largest buffer kept: one giant batch must not pin its
// memory for ever.
const bufferBytesMax = 4 << 20

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// GetBuffer returns an empty buffer; give it back with PutBuffer.
func GetBuffer() *Buffer { return buffers.Get().(*Buffer) }

// PutBuffer gives back b, which must not be used any more.
func PutBuffer(b *Buffer) {
	if cap(b.B) > bufferBytesMax {
		return
	}
	b.B = b.B[:0]
	buffers.Put(b)
}
