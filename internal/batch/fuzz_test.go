package batch

import (
	"bytes"
	"errors"
	"testing"
)

// seed adds what Kafka wrote to a fuzz target that takes bytes.
func seed(f *testing.F) {
	for _, b := range golden(f) {
		f.Add(b)
	}
}

// withCRC makes the CRC right, so that the fuzzer gets past it.
func withCRC(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) >= HeaderSize {
		UpdateCRC(b)
	}
	return b
}

// What Validate lets in must be readable by everything that reads it later.
func FuzzValidate(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = withCRC(b)
		opts := lenient()
		opts.MaxDecompressedBytes = 1 << 20
		h, invalid := Validate(b, opts)
		if invalid != nil {
			if invalid.Code == 0 || invalid.Message == "" {
				t.Fatalf("%+v", invalid)
			}
			return
		}
		parsed, raw, rest, err := Split(b)
		if err != nil || parsed != h || len(rest) != 0 || !CheckCRC(raw) {
			t.Fatalf("split of a valid batch: %+v, %d left, %v", parsed, len(rest), err)
		}
		var n int32
		for r, err := range Records(raw) {
			if err != nil || r.OffsetDelta != n {
				t.Fatalf("record %d of a valid batch: offset delta %d, %v", n, r.OffsetDelta, err)
			}
			n++
		}
		if n != h.Count {
			t.Fatalf("%d records in a valid batch of %d", n, h.Count)
		}
	})
}

func FuzzRecords(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, err := range Records(b) {
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTruncated) {
				t.Fatal(err)
			}
		}
	})
}

func FuzzParseMarker(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, epoch, err := ParseMarker(b)
		if err != nil || kind == ControlUnknown {
			return
		}
		h, err := ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		again := AppendMarker(nil, h.ProducerID, h.Epoch, kind, epoch, 0)
		if k, e, err := ParseMarker(again); k != kind || e != epoch || err != nil {
			t.Fatalf("%v %d came back as %v %d, %v", kind, epoch, k, e, err)
		}
	})
}

// Every internal record that can be read comes back the same when written.
func FuzzInternalRecords(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := UnmarshalTxnValue(b); err == nil {
			again, err := UnmarshalTxnValue(MarshalTxnValue(s, 1))
			if err != nil || len(again.Partitions) != len(s.Partitions) && s.Status != TxnEmpty {
				t.Fatalf("%+v came back as %+v, %v", s, again, err)
			}
		}
		if v, err := UnmarshalOffsetValue(b); err == nil {
			if _, err := UnmarshalOffsetValue(MarshalOffsetValue(v)); err != nil {
				t.Fatalf("%+v: %v", v, err)
			}
		}
		if v, err := UnmarshalGroupValue(b); err == nil {
			again, err := UnmarshalGroupValue(MarshalGroupValue(v))
			if err != nil || len(again.Members) != len(v.Members) {
				t.Fatalf("%+v came back as %+v, %v", v, again, err)
			}
		}
		if id, err := ParseTxnKey(b); err == nil {
			if again, err := ParseTxnKey(TxnKey(id)); err != nil || again != id {
				t.Fatalf("%q came back as %q, %v", id, again, err)
			}
		}
		if k, err := ParseOffsetKey(b); err == nil {
			if again, err := ParseOffsetKey(MarshalOffsetKey(k)); err != nil || again != k {
				t.Fatalf("%+v came back as %+v, %v", k, again, err)
			}
		}
		if g, err := ParseGroupKey(b); err == nil {
			if again, err := ParseGroupKey(MarshalGroupKey(g)); err != nil || again != g {
				t.Fatalf("%q came back as %q, %v", g, again, err)
			}
		}
	})
}
