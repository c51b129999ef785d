package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch/compress"
)

const nowMs = kafkaBaseMs + 10_000

func lenient() ValidateOptions {
	return ValidateOptions{NowMs: nowMs, BeforeMaxMs: math.MaxInt64, AfterMaxMs: 3_600_000, ProduceVersion: 11}
}

func producer(attributes Attributes, pid ProducerID, epoch Epoch, sequence int32) BuilderOptions {
	return BuilderOptions{Attributes: attributes, ProducerID: pid, Epoch: epoch, BaseSequence: sequence, BaseTimestampMs: nowMs}
}

// alter changes a batch and makes its CRC right again.
func alter(b []byte, f func([]byte)) []byte {
	b = bytes.Clone(b)
	f(b)
	UpdateCRC(b)
	return b
}

func put32(b []byte, at int, v int32) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }

func TestValidateRowsOfTheWholeBatch(t *testing.T) {
	good := someBatch(3, PlainBatch(nowMs))
	with := func(f func(*ValidateOptions)) ValidateOptions {
		o := lenient()
		f(&o)
		return o
	}
	zstd := PlainBatch(nowMs)
	zstd.Attributes = Attributes(compress.Zstd)
	zstdBatch := someBatch(100, zstd)
	short := bytes.Clone(good[:HeaderSize-1])
	put32(short, posLength, int32(len(short)-lengthOverhead))

	for _, c := range []struct {
		name string
		b    []byte
		opts ValidateOptions
		code int16 // 0: valid
	}{
		{"valid", good, lenient(), 0},
		{"length below the minimum", alter(good, func(b []byte) { put32(b, posLength, 13) }), lenient(), 2},
		{"negative length", alter(good, func(b []byte) { put32(b, posLength, -5) }), lenient(), 2},
		{"magic 3", alter(good, func(b []byte) { b[posMagic] = 3 }), lenient(), 2},
		{"magic -1", alter(good, func(b []byte) { b[posMagic] = 0xff }), lenient(), 2},
		{"nothing", nil, lenient(), 87},
		{"eleven bytes", good[:11], lenient(), 87},
		{"cut off before the magic", good[:sizeToMagic-1], lenient(), 87},
		{"cut off by a byte", good[:len(good)-1], lenient(), 87},
		{"two batches", append(bytes.Clone(good), good...), lenient(), 87},
		{"bytes after the batch", append(bytes.Clone(good), 0), lenient(), 87},
		{"a corrupt second batch", append(bytes.Clone(good), make([]byte, 20)...), lenient(), 2},
		{"magic 1", alter(good, func(b []byte) { b[posMagic] = 1 }), lenient(), 87},
		{"magic 0", alter(good, func(b []byte) { b[posMagic] = 0 }), lenient(), 87},
		{"zstd in Produce v6", zstdBatch, with(func(o *ValidateOptions) { o.ProduceVersion = 6 }), 76},
		{"zstd in Produce v7", zstdBatch, with(func(o *ValidateOptions) { o.ProduceVersion = 7 }), 0},
		{"codec 5", alter(good, func(b []byte) { b[posAttributes+1] = 5 }), lenient(), 76},
		{"codec 7", alter(good, func(b []byte) { b[posAttributes+1] = 7 }), lenient(), 76},
		{"base offset 1", alter(good, func(b []byte) { SetBaseOffset(b, 1) }), lenient(), 87},
		{"base offset before size", alter(good, func(b []byte) { SetBaseOffset(b, 1) }),
			with(func(o *ValidateOptions) { o.MaxMessageBytes = 1 }), 87},
		{"just within max.message.bytes", good, with(func(o *ValidateOptions) { o.MaxMessageBytes = len(good) }), 0},
		{"over max.message.bytes", good, with(func(o *ValidateOptions) { o.MaxMessageBytes = len(good) - 1 }), 10},
		{"size before CRC", append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1),
			with(func(o *ValidateOptions) { o.MaxMessageBytes = 1 }), 10},
		{"smaller than a header", short, lenient(), 2},
		{"wrong CRC", append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), lenient(), 2},
		{"count 0", alter(good, func(b []byte) { put32(b, posCount, 0) }), lenient(), 87},
		{"count -1", alter(good, func(b []byte) { put32(b, posCount, -1) }), lenient(), 87},
		{"last offset delta -1", alter(good, func(b []byte) { put32(b, posLastOffsetDelta, -1) }), lenient(), 87},
		{"span and count differ", alter(good, func(b []byte) { put32(b, posLastOffsetDelta, 3) }), lenient(), 87},
		{"control batch", AppendMarker(nil, 1, 1, ControlCommit, 0, nowMs), lenient(), 87},
		{"producer without sequence", someBatch(1, producer(0, 1, 0, -1)), lenient(), 87},
		{"producer without epoch", someBatch(1, producer(0, 1, -1, 0)), lenient(), 87},
		{"idempotent", someBatch(1, producer(0, 1, 0, 0)), lenient(), 0},
		{"transactional", someBatch(1, producer(AttrTransactional, 1, 0, 0)), lenient(), 0},
		{"transactional without producer", someBatch(1, producer(AttrTransactional, -1, -1, -1)), lenient(), 87},
		{"delete horizon", alter(good, func(b []byte) { b[posAttributes+1] |= byte(AttrDeleteHorizon) }), lenient(), 87},
		{"over segment.bytes", good, with(func(o *ValidateOptions) { o.SegmentBytes = len(good) - 1 }), 18},
		{"just within segment.bytes", good, with(func(o *ValidateOptions) { o.SegmentBytes = len(good) }), 0},
	} {
		_, invalid := Validate(bytes.Clone(c.b), c.opts)
		if got := code(invalid); got != c.code {
			t.Errorf("%s: code %d, want %d (%v)", c.name, got, c.code, invalid)
		}
	}
}

func code(v *Invalid) int16 {
	if v == nil {
		return 0
	}
	return v.Code
}

func TestValidateRowsOfTheRecordsInEveryCodec(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		// build makes n records; f may spoil the plain records before they are packed.
		build := func(n int, fill func(b *Builder, i int), f func(*Builder)) []byte {
			var b Builder
			opts := PlainBatch(nowMs)
			opts.Attributes = Attributes(codec)
			b.Reset(opts)
			for i := range n {
				fill(&b, i)
			}
			if f != nil {
				f(&b)
			}
			return b.Build(nil)
		}
		value := bytes.Repeat([]byte("v"), 200)
		plain := func(b *Builder, _ int) { b.Append(nowMs, []byte("k"), value, nil) }
		keyless := func(b *Builder, i int) {
			if i%2 == 0 {
				plain(b, i)
			} else {
				b.Append(nowMs, nil, value, nil)
			}
		}
		early := func(b *Builder, i int) { b.Append(nowMs-int64(i)*1000, nil, value, nil) }
		late := func(b *Builder, i int) { b.Append(nowMs+int64(i)*3_600_000, []byte("k"), value, nil) }
		window := lenient()
		window.BeforeMaxMs = 1000
		compacted := lenient()
		compacted.Compacted = true
		both := window
		both.Compacted = true
		appendTime := window
		appendTime.AppendTime = true

		for _, c := range []struct {
			name   string
			b      []byte
			opts   ValidateOptions
			code   int16
			faults []int32
		}{
			{"good", build(10, plain, nil), lenient(), 0, nil},
			{"bytes left over", build(4, plain, func(b *Builder) { b.records = append(b.records, 0) }), lenient(), 87, nil},
			{"record cut off", build(4, plain, func(b *Builder) { b.records = b.records[:len(b.records)-1] }), lenient(), 87, nil},
			{"a record too few", build(4, plain, func(b *Builder) { b.count, b.lastOffsetDelta = 5, 4 }), lenient(), 87, nil},
			{"a record too many", build(4, plain, func(b *Builder) { b.count, b.lastOffsetDelta = 3, 2 }), lenient(), 87, nil},
			{"offset deltas with a hole", build(2, func(b *Builder, i int) { b.AppendAt(int32(2*i), nowMs, nil, value, nil) },
				func(b *Builder) { b.lastOffsetDelta = 1 }), lenient(), 87, nil},
			{"keyless in a compacted topic", build(4, keyless, nil), compacted, 87, []int32{1, 3}},
			{"keyless elsewhere", build(4, keyless, nil), lenient(), 0, nil},
			{"too early", build(4, early, nil), window, 32, []int32{2, 3}},
			{"too late", build(3, late, nil), window, 32, []int32{2}},
			{"keyless and too early: the key counts, the code is the timestamp's",
				build(4, func(b *Builder, i int) {
					if i == 3 {
						b.Append(nowMs-2000, []byte("k"), value, nil)
					} else {
						early(b, i)
					}
				}, nil), both, 32, []int32{0, 1, 2, 3}},
			{"no timestamp", build(2, func(b *Builder, _ int) { b.Append(NoTimestampMs, nil, value, nil) }, nil), window, 0, nil},
			{"append-time topic takes any time", build(4, early, nil), appendTime, 0, nil},
			{"marked append-time", stamped(build(2, plain, nil)), lenient(), 0, nil},
			{"marked append-time to such a topic", stamped(build(2, plain, nil)), appendTime, 32, []int32{0, 1}},
		} {
			before := bytes.Clone(c.b)
			_, invalid := Validate(c.b, c.opts)
			if got := code(invalid); got != c.code {
				t.Errorf("%v, %s: code %d, want %d (%v)", codec, c.name, got, c.code, invalid)
				continue
			}
			if invalid == nil {
				continue
			}
			if !bytes.Equal(before, c.b) {
				t.Errorf("%v, %s: a refused batch was changed", codec, c.name)
			}
			var faults []int32
			for _, r := range invalid.Records {
				faults = append(faults, r.Index)
			}
			if len(faults) != len(c.faults) {
				t.Errorf("%v, %s: faults at %v, want %v", codec, c.name, faults, c.faults)
				continue
			}
			for i := range faults {
				if faults[i] != c.faults[i] {
					t.Errorf("%v, %s: faults at %v, want %v", codec, c.name, faults, c.faults)
				}
			}
		}
	}
}

func stamped(b []byte) []byte {
	SetAppendTime(b, nowMs)
	return b
}

func TestMalformedRecordsAreRefused(t *testing.T) {
	for name, record := range map[string][]byte{
		"negative size":            {1},
		"size too small":           {5 << 1, 0, 0, 0, 1, 1},
		"key longer than record":   {6 << 1, 0, 0, 0, 9 << 1, 1, 0},
		"value longer than record": {6 << 1, 0, 0, 0, 1, 9 << 1, 0},
		"negative header count":    {6 << 1, 0, 0, 0, 1, 1, 1},
		"headers missing":          {6 << 1, 0, 0, 0, 1, 1, 1 << 1},
		"null header key":          {8 << 1, 0, 0, 0, 1, 1, 1 << 1, 1, 1},
		"bytes after the headers":  {7 << 1, 0, 0, 0, 1, 1, 0, 0},
		"huge header count":        {10 << 1, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f},
	} {
		var b Builder
		b.Reset(PlainBatch(nowMs))
		b.Append(nowMs, nil, nil, nil)
		b.records = append(b.records[:0], record...)
		raw := b.Build(nil)
		if _, invalid := Validate(raw, lenient()); code(invalid) != 87 {
			t.Errorf("%s: %v", name, invalid)
		}
		for _, err := range Records(raw) {
			if err == nil {
				t.Errorf("%s: read", name)
			}
		}
	}
}

func TestAWrongMaxTimestampIsCorrected(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.Lz4} {
		opts := PlainBatch(nowMs)
		opts.Attributes = Attributes(codec)
		b := alter(someBatch(50, opts), func(b []byte) { binary.BigEndian.PutUint64(b[posMaxTimestamp:], 1) })
		h, invalid := Validate(b, lenient())
		if invalid != nil || h.MaxTimestampMs != nowMs || !CheckCRC(b) {
			t.Errorf("%v: max timestamp %d, CRC %v, %v", codec, h.MaxTimestampMs, CheckCRC(b), invalid)
		}
		if again, err := ParseHeader(b); err != nil || again != h {
			t.Errorf("%v: header %+v, batch %+v", codec, h, again)
		}
	}
}

func TestABombIsAnInvalidRecord(t *testing.T) {
	var b Builder
	opts := PlainBatch(nowMs)
	opts.Attributes = Attributes(compress.Zstd)
	b.Reset(opts)
	b.Append(nowMs, nil, make([]byte, 8<<20), nil)
	bomb := b.Build(nil)
	limited := lenient()
	limited.MaxMessageBytes, limited.MaxDecompressedBytes = 1<<20, 1<<20
	if _, invalid := Validate(bomb, limited); code(invalid) != 87 {
		t.Errorf("%d bytes that unpack to 8 MiB: %v", len(bomb), invalid)
	}
	if _, invalid := Validate(bomb, lenient()); invalid != nil {
		t.Errorf("within the default limit: %v", invalid)
	}
}

func TestRecordFaultsAreBounded(t *testing.T) {
	opts := lenient()
	opts.Compacted = true
	var b Builder
	b.Reset(PlainBatch(nowMs))
	for range 5000 {
		b.Append(nowMs, nil, nil, nil)
	}
	_, invalid := Validate(b.Build(nil), opts)
	if code(invalid) != 87 || len(invalid.Records) != recordErrorsMax {
		t.Errorf("%v with %d faults", invalid, len(invalid.Records))
	}
}

// kibibytes64 is about 64 KiB of records with values of 100 bytes.
func kibibytes64() []byte {
	var b Builder
	b.Reset(producer(0, 1, 0, 0))
	for b.Size() < 64<<10 {
		b.Append(nowMs, nil, make([]byte, 100), nil)
	}
	return b.Build(nil)
}

func TestValidatingPlainRecordsAllocatesNothing(t *testing.T) {
	b := kibibytes64()
	opts := lenient()
	n := testing.AllocsPerRun(20, func() {
		if _, invalid := Validate(b, opts); invalid != nil {
			t.Error(invalid)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkValidate64KiB(b *testing.B) {
	raw := kibibytes64()
	opts := lenient()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, invalid := Validate(raw, opts); invalid != nil {
			b.Fatal(invalid)
		}
	}
}

func BenchmarkValidateLz4(b *testing.B) {
	var build Builder
	build.Reset(producer(Attributes(compress.Lz4), 1, 0, 0))
	for build.Size() < 64<<10 {
		build.Append(nowMs, nil, make([]byte, 100), nil)
	}
	size := build.Size()
	raw := build.Build(nil)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, invalid := Validate(raw, lenient()); invalid != nil {
			b.Fatal(invalid)
		}
	}
}

func BenchmarkBuilder64KiB(b *testing.B) {
	var build Builder
	value := make([]byte, 100)
	var dst []byte
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		build.Reset(producer(0, 1, 0, 0))
		for build.Size() < 64<<10 {
			build.Append(nowMs, nil, value, nil)
		}
		dst = build.Build(dst[:0])
	}
}
