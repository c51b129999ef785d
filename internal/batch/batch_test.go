package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

// someBatch is a batch of n records "key", "value" under the given options.
func someBatch(n int, opts BuilderOptions) []byte {
	var b Builder
	b.Reset(opts)
	for range n {
		b.Append(opts.BaseTimestampMs, []byte("key"), []byte("value"), nil)
	}
	return b.Build(nil)
}

func TestVarintsKeepEveryNumber(t *testing.T) {
	for _, v := range []int64{0, -1, 1, 63, -64, 64, -65, 8191, 8192, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		b := appendVarlong(nil, v)
		if got, n := varlong(b); got != v || n != len(b) || n != varlongSize(v) {
			t.Errorf("varlong %d: read %d in %d of %d bytes, size %d", v, got, n, len(b), varlongSize(v))
		}
		if int64(int32(v)) != v {
			continue
		}
		b = appendVarint(nil, int32(v))
		if got, n := varint(b); int64(got) != v || n != len(b) || n != varintSize(int32(v)) {
			t.Errorf("varint %d: read %d in %d of %d bytes, size %d", v, got, n, len(b), varintSize(int32(v)))
		}
	}
}

func TestVarintsThatDoNotFitAreRefused(t *testing.T) {
	for _, b := range [][]byte{nil, {0x80}, {0xff, 0xff, 0xff, 0xff, 0x1f}, {0x80, 0x80, 0x80, 0x80, 0x80, 0}} {
		if _, n := varint(b); n != 0 {
			t.Errorf("varint read %x", b)
		}
	}
	for _, b := range [][]byte{nil, {0x80}, bytes.Repeat([]byte{0xff}, 10), append(bytes.Repeat([]byte{0x80}, 10), 0)} {
		if _, n := varlong(b); n != 0 {
			t.Errorf("varlong read %x", b)
		}
	}
}

func TestSplitWalksABufferAndStopsAtATornBatch(t *testing.T) {
	one := someBatch(2, PlainBatch(1000))
	SetBaseOffset(one, 10)
	two := someBatch(3, PlainBatch(1000))
	SetBaseOffset(two, 12)
	buf := append(bytes.Clone(one), two...)

	h, raw, rest, err := Split(buf)
	if err != nil || !bytes.Equal(raw, one) || h.BaseOffset != 10 || h.LastOffset() != 11 || h.NextOffset() != 12 {
		t.Fatalf("first batch %+v, %d bytes, %v", h, len(raw), err)
	}
	h, raw, rest, err = Split(rest)
	if err != nil || !bytes.Equal(raw, two) || h.Count != 3 || h.Size() != len(two) || len(rest) != 0 {
		t.Fatalf("second batch %+v, %d bytes, %v", h, len(raw), err)
	}
	for cut := range len(two) {
		if _, raw, rest, err := Split(two[:cut]); !errors.Is(err, ErrTruncated) || raw != nil || len(rest) != cut {
			t.Fatalf("a batch cut to %d bytes: %v", cut, err)
		}
	}
}

func TestParseHeaderRefusesWhatWouldMisleadAReader(t *testing.T) {
	good := someBatch(1, PlainBatch(0))
	put32 := func(at int, v int32) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
	}
	for name, breakIt := range map[string]func([]byte){
		"length below the header":  put32(posLength, HeaderSize-lengthOverhead-1),
		"negative length":          put32(posLength, -1),
		"huge length":              put32(posLength, math.MaxInt32),
		"magic 1":                  func(b []byte) { b[posMagic] = 1 },
		"negative span":            put32(posLastOffsetDelta, -1),
		"negative count":           put32(posCount, -1),
		"negative offset":          func(b []byte) { SetBaseOffset(b, -1) },
		"offset that would wrap":   func(b []byte) { SetBaseOffset(b, math.MaxInt64) },
		"magic of a later release": func(b []byte) { b[posMagic] = 3 },
	} {
		b := bytes.Clone(good)
		breakIt(b)
		if _, err := ParseHeader(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSettersLeaveTheCRCRight(t *testing.T) {
	b := someBatch(2, PlainBatch(1000))
	for name, set := range map[string]func(){
		"base offset":  func() { SetBaseOffset(b, 1<<40) },
		"leader epoch": func() { SetPartitionLeaderEpoch(b, 9) },
		"append time":  func() { SetAppendTime(b, 5000) },
		"producer":     func() { SetProducer(b, 7, 3, 12) },
	} {
		set()
		if !CheckCRC(b) {
			t.Errorf("%s broke the CRC", name)
		}
	}
	h, err := ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	if h.BaseOffset != 1<<40 || h.PartitionLeaderEpoch != 9 || !h.IsAppendTime() || h.MaxTimestampMs != 5000 ||
		h.ProducerID != 7 || h.Epoch != 3 || h.LastSequence() != 13 {
		t.Errorf("header %+v", h)
	}
	for r, err := range Records(b) {
		if err != nil || h.TimestampMs(&r) != 5000 {
			t.Errorf("record at %d ms, %v", h.TimestampMs(&r), err)
		}
	}
	b[len(b)-1] ^= 1
	if CheckCRC(b) {
		t.Error("a flipped bit went unnoticed")
	}
}

func TestLastSequenceWrapsAtTheTop(t *testing.T) {
	for _, c := range []struct{ base, delta, want int32 }{
		{0, 0, 0}, {5, 4, 9}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0},
		{math.MaxInt32 - 10, 20, 9}, {NoSequence, 0, NoSequence}, {NoSequence, 5, NoSequence},
	} {
		if got := (Header{BaseSequence: c.base, LastOffsetDelta: c.delta}).LastSequence(); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.base, c.delta, got, c.want)
		}
	}
}

func TestBuilderCompressesOnlyWhatShrinks(t *testing.T) {
	for _, codec := range []compress.Codec{compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		opts := PlainBatch(1000)
		opts.Attributes = Attributes(codec)
		big := someBatch(500, opts)
		h, err := ParseHeader(big)
		if err != nil || h.Codec() != codec || !CheckCRC(big) {
			t.Errorf("%v: 500 like records are %v, %v", codec, h.Codec(), err)
		}
		small := someBatch(1, opts)
		if h, err := ParseHeader(small); err != nil || h.Codec() != compress.None || !CheckCRC(small) {
			t.Errorf("%v: one short record is %v, %v", codec, h.Codec(), err)
		}
	}
}

func TestBuilderBuildsAgainUnderAnotherIdentity(t *testing.T) {
	var b Builder
	b.Reset(BuilderOptions{Attributes: AttrTransactional, ProducerID: 1, Epoch: 2, BaseSequence: 30, BaseTimestampMs: 9})
	b.Append(9, []byte("k"), nil, nil)
	first := b.Build(nil)
	b.SetProducer(1, 3, 0)
	second := b.Build(nil)
	SetProducer(first, 1, 3, 0)
	if !bytes.Equal(first, second) {
		t.Errorf("got %x\nwant %x", second, first)
	}
	if b.Count() != 1 || b.MaxTimestampMs() != 9 {
		t.Errorf("count %d, max timestamp %d", b.Count(), b.MaxTimestampMs())
	}
}

func TestBuilderKeepsOffsetsThatCompactionLeft(t *testing.T) {
	var b Builder
	b.Reset(PlainBatch(0))
	b.AppendAt(2, 0, []byte("a"), nil, nil)
	b.AppendAt(5, 0, []byte("b"), nil, nil)
	b.SetLastOffsetDelta(9)
	raw := b.Build(nil)
	h, err := ParseHeader(raw)
	if err != nil || h.LastOffsetDelta != 9 || h.Count != 2 {
		t.Fatalf("header %+v, %v", h, err)
	}
	var deltas []int32
	for r, err := range Records(raw) {
		if err != nil {
			t.Fatal(err)
		}
		deltas = append(deltas, r.OffsetDelta)
	}
	if len(deltas) != 2 || deltas[0] != 2 || deltas[1] != 5 {
		t.Errorf("offset deltas %v", deltas)
	}
}

func TestAppendingARecordAllocatesNothing(t *testing.T) {
	var b Builder
	opts := PlainBatch(0)
	key, value, headers := []byte("key"), make([]byte, 100), []RecordHeader{{"h", []byte("v")}}
	dst := make([]byte, 0, 64<<10)
	fill := func() {
		b.Reset(opts)
		for range 100 {
			b.Append(1, key, value, headers)
		}
		b.Build(dst)
	}
	fill()
	if n := testing.AllocsPerRun(20, fill); n != 0 {
		t.Errorf("%v allocations for a batch of 100 records", n)
	}
}

func TestRecordsReportsWhatIsBroken(t *testing.T) {
	good := someBatch(2, PlainBatch(0))
	for name, c := range map[string]struct {
		breakIt func([]byte) []byte
		want    string
	}{
		"a record too few": {func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[posCount:], 3)
			return b
		}, "record 2"},
		"a record too many": {func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[posCount:], 1)
			return b
		}, "follow the last record"},
		"a length beyond the batch": {func(b []byte) []byte {
			b[HeaderSize] = 0x7e
			return b
		}, "record 0"},
		"a payload that is not gzip": {func(b []byte) []byte {
			b[posAttributes+1] |= byte(compress.Gzip)
			return b
		}, "gzip"},
		"a codec that does not exist": {func(b []byte) []byte {
			b[posAttributes+1] |= 7
			return b
		}, "codec(7)"},
	} {
		var last error
		for _, err := range Records(c.breakIt(bytes.Clone(good))) {
			last = err
		}
		if !errors.Is(last, ErrCorrupt) || !strings.Contains(last.Error(), c.want) {
			t.Errorf("%s: %v", name, last)
		}
	}
}

func TestOddMarkersAreReadAsKafkaReadsThem(t *testing.T) {
	control := func(key, value []byte) []byte {
		var b Builder
		opts := PlainBatch(0)
		opts.Attributes = AttrControl | AttrTransactional
		b.Reset(opts)
		b.Append(0, key, value, nil)
		return b.Build(nil)
	}
	empty := Header{Length: HeaderSize - lengthOverhead, Magic: magic, Attributes: AttrControl}.AppendTo(nil)
	UpdateCRC(empty)
	if _, _, err := ParseMarker(empty); err != ErrEmptyMarker {
		t.Errorf("a marker emptied by compaction: %v", err)
	}
	if kind, _, err := ParseMarker(control([]byte{0, 0, 0, 3}, nil)); kind != ControlUnknown || err != nil {
		t.Errorf("a type of KRaft: %v, %v", kind, err)
	}
	newer := control([]byte{0, 9, 0, 1, 77}, []byte{0, 9, 0, 0, 0, 5, 77, 77})
	if kind, epoch, err := ParseMarker(newer); kind != ControlCommit || epoch != 5 || err != nil {
		t.Errorf("newer versions: %v, %d, %v", kind, epoch, err)
	}
	for name, b := range map[string][]byte{
		"data":             someBatch(1, PlainBatch(0)),
		"short key":        control([]byte{0, 0, 0}, nil),
		"null key":         control(nil, nil),
		"short value":      control([]byte{0, 0, 0, 1}, []byte{0, 0}),
		"negative version": control([]byte{0xff, 0xff, 0, 1}, []byte{0, 0, 0, 0, 0, 0}),
	} {
		if _, _, err := ParseMarker(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
