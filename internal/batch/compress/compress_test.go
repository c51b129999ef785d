package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

var allCodecs = []Codec{None, Gzip, Snappy, Lz4, Zstd}

func TestEveryCodecReturnsWhatItWasGiven(t *testing.T) {
	inputs := [][]byte{nil, []byte("a"), bytes.Repeat([]byte("hanbeon "), 50_000), pseudoRandom(100_000)}
	for _, codec := range allCodecs {
		for _, in := range inputs {
			packed, err := Compress(codec, []byte("before"), in)
			if err != nil {
				t.Fatalf("%v: compress %d bytes: %v", codec, len(in), err)
			}
			out, err := Decompress(codec, []byte("kept"), packed[len("before"):], len(in))
			if err != nil {
				t.Fatalf("%v: decompress %d bytes: %v", codec, len(in), err)
			}
			if !bytes.Equal(out, append([]byte("kept"), in...)) {
				t.Errorf("%v: %d bytes came back as %d", codec, len(in), len(out)-4)
			}
		}
	}
}

func pseudoRandom(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func TestLimitIsExact(t *testing.T) {
	in := pseudoRandom(10_000)
	for _, codec := range allCodecs {
		packed, err := Compress(codec, nil, in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decompress(codec, nil, packed, len(in)-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: one byte over the limit gave %v", codec, err)
		}
	}
}

func TestBombIsRefusedWithoutAllocatingIt(t *testing.T) {
	in := make([]byte, 64<<20)
	const limit = 1 << 20
	for _, codec := range []Codec{Gzip, Lz4, Snappy, Zstd} {
		packed, err := Compress(codec, nil, in)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = Decompress(codec, nil, packed, limit)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: a bomb gave %v", codec, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 24*limit {
			t.Errorf("%v: refusing a bomb allocated %d bytes", codec, got)
		}
	}
}

// A zstd frame may claim any size; memory follows what is really there.
func TestZstdClaimedSizeIsNotTrusted(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	frame := e.EncodeAll(make([]byte, 1<<20), nil)
	var h zstd.Header
	if err := h.Decode(frame); err != nil || !h.HasFCS {
		t.Fatalf("frame without content size: %+v, %v", h, err)
	}
	out, err := Decompress(Zstd, nil, frame, 1<<20)
	if err != nil || len(out) != 1<<20 {
		t.Fatalf("got %d bytes, %v", len(out), err)
	}
}

func TestXerialFramingIsRead(t *testing.T) {
	in := bytes.Repeat([]byte("framed "), 20_000)
	packed := append([]byte(nil), xerialMagic...)
	packed = binary.BigEndian.AppendUint32(packed, 1)
	packed = binary.BigEndian.AppendUint32(packed, 1)
	for rest := in; len(rest) > 0; {
		n := min(32<<10, len(rest))
		block := snappy.Encode(nil, rest[:n])
		packed = binary.BigEndian.AppendUint32(packed, uint32(len(block)))
		packed = append(packed, block...)
		rest = rest[n:]
	}
	out, err := Decompress(Snappy, nil, packed, len(in))
	if err != nil || !bytes.Equal(out, in) {
		t.Fatalf("got %d bytes, %v", len(out), err)
	}
	if _, err := Decompress(Snappy, nil, packed, len(in)-1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	for cut := range 40 {
		if cut == 0 || cut == xerialHeaderSize {
			continue
		}
		if _, err := Decompress(Snappy, nil, packed[:len(packed)-cut], len(in)); err == nil && cut > 0 {
			t.Errorf("a frame cut by %d bytes was read", cut)
		}
	}
}

func TestUnknownCodecIsNamed(t *testing.T) {
	if _, err := Compress(5, nil, nil); !errors.Is(err, ErrUnknownCodec) {
		t.Error(err)
	}
	if _, err := Decompress(7, nil, nil, 10); !errors.Is(err, ErrUnknownCodec) {
		t.Error(err)
	}
}

func FuzzDecompress(f *testing.F) {
	for _, codec := range allCodecs {
		packed, err := Compress(codec, nil, []byte("some bytes, some bytes"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(int8(codec), packed)
	}
	f.Fuzz(func(t *testing.T, codec int8, packed []byte) {
		out, err := Decompress(Codec(codec), nil, packed, 1<<16)
		if err == nil && len(out) > 1<<16 {
			t.Fatalf("%d bytes are over the limit", len(out))
		}
	})
}

// Java's encoder streams: its frames do not tell their size, and one block may
// expand a hundredfold and more.
func TestZstdFrameOfUnknownSizeThatExpandsMuchIsRead(t *testing.T) {
	want := bytes.Repeat([]byte("hanbeon "), 200_000)
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	for rest := want; len(rest) > 0; {
		n := min(len(rest), 1000)
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if packed.Len()*80 > len(want) {
		t.Fatalf("%d bytes packed into %d: the test needs more than 80 to 1", len(want), packed.Len())
	}
	got, err := Decompress(Zstd, nil, packed.Bytes(), len(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back as %d, error %v", len(want), len(got), err)
	}
	if _, err := Decompress(Zstd, nil, packed.Bytes(), len(want)-1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte over the limit: error %v, want ErrTooLarge", err)
	}
}
