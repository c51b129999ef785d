package serde

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// check writes v behind other bytes, compares with what Kafka's serializer writes, and
// reads it back.
func check[T comparable](t *testing.T, v T, want string) {
	t.Helper()
	s, ok := For[T]()
	if !ok {
		t.Fatalf("no serde for %T", v)
	}
	data, err := s.Append([]byte("prefix"), v)
	if err != nil || string(data) != "prefix"+want {
		t.Errorf("%v: wrote %q, %v; want %q", v, data, err, want)
	}
	if back, err := s.Decode([]byte(want)); err != nil || back != v {
		t.Errorf("%v: read back %v, %v", v, back, err)
	}
}

func TestBytesAreThoseOfKafkasSerializers(t *testing.T) {
	check(t, "", "")
	check(t, "한번", "한번")
	check(t, int64(-2), "\xff\xff\xff\xff\xff\xff\xff\xfe")
	check(t, 258, "\x00\x00\x00\x00\x00\x00\x01\x02")
	check(t, int32(258), "\x00\x00\x01\x02")
	check(t, 1.5, "\x3f\xf8\x00\x00\x00\x00\x00\x00")
	check(t, math.Inf(-1), "\xff\xf0\x00\x00\x00\x00\x00\x00")
	check(t, true, "\x01")
	check(t, false, "\x00")
}

func TestBytesSerdeCopies(t *testing.T) {
	s := Bytes()
	data := []byte("abc")
	got, err := s.Decode(data)
	data[0] = 'x'
	if err != nil || string(got) != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, _ := s.Decode([]byte{}); got == nil {
		t.Error("empty bytes were read as nil")
	}
}

func TestForKnowsExactTypesOnly(t *testing.T) {
	type name string
	if _, ok := For[name](); ok {
		t.Error("a defined type got a serde")
	}
	if _, ok := For[any](); ok {
		t.Error("any got a serde")
	}
	if _, ok := For[uint64](); ok {
		t.Error("uint64 got a serde")
	}
}

func TestDecodeOfOtherDataIsAnErrorThatSaysSo(t *testing.T) {
	for what, err := range map[string]error{
		"has 3 bytes, not 8":         second(Int64().Decode([]byte("abc"))),
		"has 0 bytes, not 4":         second(Int32().Decode(nil)),
		"a boolean is 0 or 1, not 7": second(Bool().Decode([]byte{7})),
		"not UTF-8":                  second(String().Decode([]byte{0xff})),
		"invalid character":          second(JSON[int]().Decode([]byte("x"))),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestNullableIsNilOrTheValue(t *testing.T) {
	s := Nullable(Int64())
	if !s.IsNull(nil) || s.Null() != nil {
		t.Error("nil is not null")
	}
	v := int64(3)
	data, err := s.Append(nil, &v)
	if back, errBack := s.Decode(data); err != nil || errBack != nil || *back != 3 || s.IsNull(back) {
		t.Errorf("%v %v", err, errBack)
	}
	if _, err := s.Decode([]byte("x")); err == nil {
		t.Error("wrong bytes were accepted")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x01\x02"))
	f.Add([]byte(`{"A":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		roundTrip(t, Int64(), data)
		roundTrip(t, Int32(), data)
		roundTrip(t, Int(), data)
		roundTrip(t, Float64(), data)
		roundTrip(t, Bool(), data)
		roundTrip(t, String(), data)
		roundTrip(t, Bytes(), data)
		_, _ = JSON[map[string]int]().Decode(data)
		_, _ = Nullable(JSON[string]()).Decode(data)
	})
}

func roundTrip[T any](t *testing.T, s Serde[T], data []byte) {
	v, err := s.Decode(data)
	if err != nil {
		return
	}
	if again, err := s.Append(nil, v); err != nil || !bytes.Equal(again, data) {
		t.Errorf("%T: %q became %q, %v", s, data, again, err)
	}
}
