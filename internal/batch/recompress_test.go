package batch

import (
	"bytes"
	"fmt"
	"testing"
)

func TestRecompressKeepsEverythingButTheCodec(t *testing.T) {
	var b Builder
	for from := range Attributes(5) {
		b.Reset(BuilderOptions{Attributes: from | AttrTransactional, ProducerID: 7, Epoch: 3, BaseSequence: 11, BaseTimestampMs: 1000})
		for i := range 20 {
			b.Append(1000+int64(i), fmt.Append(nil, "k", i), bytes.Repeat([]byte("value "), 20), []RecordHeader{{Key: "h"}})
		}
		source := b.Build(nil)
		SetBaseOffset(source, 42)
		want, _ := ParseHeader(source)
		for _, name := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
			got, err := Recompress(bytes.Clone(source), CodecNamed(name), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			h, raw, rest, err := Split(got)
			if err != nil || len(rest) != 0 || !CheckCRC(raw) || h.Attributes&AttrCodecMask != CodecNamed(name) {
				t.Fatalf("%v to %s: %+v, %d bytes left, %v", from, name, h, len(rest), err)
			}
			h.Length, h.Attributes, h.CRC = want.Length, want.Attributes, want.CRC
			if h != want {
				t.Errorf("%v to %s: header %+v, want %+v", from, name, h, want)
			}
			if !sameRecords(t, source, got) {
				t.Errorf("%v to %s: other records", from, name)
			}
		}
		if kept, err := Recompress(source, CodecNamed("producer"), 0); err != nil || &kept[0] != &source[0] {
			t.Errorf("producer: %v, or a copy", err)
		}
	}
}

func sameRecords(t *testing.T, a, b []byte) bool {
	t.Helper()
	list := func(raw []byte) (out []string) {
		for r, err := range Records(raw) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%+v", r))
		}
		return out
	}
	return fmt.Sprint(list(a)) == fmt.Sprint(list(b))
}

func TestRecompressOfAPayloadBeyondTheLimitIsAnError(t *testing.T) {
	var b Builder
	b.Reset(BuilderOptions{Attributes: 1, ProducerID: -1, Epoch: -1, BaseSequence: -1})
	b.Append(0, nil, make([]byte, 10_000), nil)
	if _, err := Recompress(b.Build(nil), 0, 1000); err == nil {
		t.Error("no error")
	}
}
