// Package serde turns keys and values into the bytes of records and back.
//
// String, Bytes, Int64, Int32, Float64 and Bool write what Kafka's own serializers
// write (StringSerializer, LongSerializer, …), so Java programs read them.
package serde

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// Serde writes and reads values of one type. It must be safe for use by several
// goroutines. Kafka's null never reaches it, see NullSerde.
type Serde[T any] interface {
	// Append writes v behind dst and returns the longer slice, like append.
	Append(dst []byte, v T) ([]byte, error)
	// Decode reads a value. It must not change data or keep it after it returns.
	Decode(data []byte) (T, error)
}

// NullSerde is a Serde for a type that has a value for Kafka's null. See Nullable.
type NullSerde[T any] interface {
	Serde[T]
	// IsNull says whether v is written as null.
	IsNull(v T) bool
	// Null is what null is read as.
	Null() T
}

// For gives the serde of a type that has an obvious one: string, []byte, int64,
// int32, int (as int64), float64 and bool. The type must be exactly one of these.
func For[T any]() (Serde[T], bool) {
	var s any
	switch any((*T)(nil)).(type) {
	case *string:
		s = String()
	case *[]byte:
		s = Bytes()
	case *int64:
		s = Int64()
	case *int32:
		s = Int32()
	case *int:
		s = Int()
	case *float64:
		s = Float64()
	case *bool:
		s = Bool()
	}
	found, ok := s.(Serde[T])
	return found, ok
}

// Func makes a serde of two functions, see Serde for what they must do.
func Func[T any](appendValue func(dst []byte, v T) ([]byte, error), decode func(data []byte) (T, error)) Serde[T] {
	return funcSerde[T]{appendValue, decode}
}

type funcSerde[T any] struct {
	append func([]byte, T) ([]byte, error)
	decode func([]byte) (T, error)
}

func (s funcSerde[T]) Append(dst []byte, v T) ([]byte, error) { return s.append(dst, v) }
func (s funcSerde[T]) Decode(data []byte) (T, error)          { return s.decode(data) }

// String writes UTF-8, as Kafka's StringSerializer does. Reading refuses bytes that
// are not UTF-8; use Bytes for those.
func String() Serde[string] { return stringSerde{} }

type stringSerde struct{}

func (stringSerde) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

func (stringSerde) Decode(data []byte) (string, error) {
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%d bytes are not UTF-8 text (they begin with %q); read them as []byte or with a serde of your own", len(data), data[:min(len(data), 16)])
	}
	return string(data), nil
}

// Bytes writes the bytes as they are and reads a copy of them. A nil slice is
// written as an empty one; wrap it in Nullable to tell null from empty.
func Bytes() Serde[[]byte] { return bytesSerde{} }

type bytesSerde struct{}

func (bytesSerde) Append(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil }

func (bytesSerde) Decode(data []byte) ([]byte, error) { return append([]byte{}, data...), nil }

// Int64 writes 8 bytes, big endian (Kafka's LongSerializer).
func Int64() Serde[int64] { return intSerde[int64]{} }

// Int writes an int as Int64 does.
func Int() Serde[int] { return intSerde[int]{} }

type intSerde[T int | int64] struct{}

func (intSerde[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
}

func (intSerde[T]) Decode(data []byte) (T, error) {
	if err := wantBytes(data, 8, "a 64-bit integer"); err != nil {
		return 0, err
	}
	v := int64(binary.BigEndian.Uint64(data))
	if int64(T(v)) != v {
		return 0, fmt.Errorf("%d does not fit into an int on this machine; use int64", v)
	}
	return T(v), nil
}

// Int32 writes 4 bytes, big endian (Kafka's IntegerSerializer).
func Int32() Serde[int32] { return int32Serde{} }

type int32Serde struct{}

func (int32Serde) Append(dst []byte, v int32) ([]byte, error) {
	return binary.BigEndian.AppendUint32(dst, uint32(v)), nil
}

func (int32Serde) Decode(data []byte) (int32, error) {
	if err := wantBytes(data, 4, "a 32-bit integer"); err != nil {
		return 0, err
	}
	return int32(binary.BigEndian.Uint32(data)), nil
}

// Float64 writes the IEEE 754 bits in 8 bytes, big endian (Kafka's DoubleSerializer).
func Float64() Serde[float64] { return float64Serde{} }

type float64Serde struct{}

func (float64Serde) Append(dst []byte, v float64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v)), nil
}

func (float64Serde) Decode(data []byte) (float64, error) {
	if err := wantBytes(data, 8, "a 64-bit float"); err != nil {
		return 0, err
	}
	return math.Float64frombits(binary.BigEndian.Uint64(data)), nil
}

// Bool writes one byte, 0 or 1 (Kafka's BooleanSerializer).
func Bool() Serde[bool] { return boolSerde{} }

type boolSerde struct{}

func (boolSerde) Append(dst []byte, v bool) ([]byte, error) {
	if v {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}

func (boolSerde) Decode(data []byte) (bool, error) {
	if err := wantBytes(data, 1, "a boolean"); err != nil {
		return false, err
	}
	if data[0] > 1 {
		return false, fmt.Errorf("a boolean is 0 or 1, not %d", data[0])
	}
	return data[0] == 1, nil
}

func wantBytes(data []byte, n int, what string) error {
	if len(data) == n {
		return nil
	}
	return fmt.Errorf("%s has %d bytes, not %d; the data was written with another serde", what, len(data), n)
}

// JSON writes values with encoding/json.
func JSON[T any]() Serde[T] { return jsonSerde[T]{} }

type jsonSerde[T any] struct{}

func (jsonSerde[T]) Append(dst []byte, v T) ([]byte, error) {
	data, err := json.Marshal(v)
	return append(dst, data...), err
}

func (jsonSerde[T]) Decode(data []byte) (T, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}

// Nullable adds Kafka's null to a serde: it is a nil pointer. With it, functions of
// a stream are called for records without a value, and can make such records.
func Nullable[T any](s Serde[T]) NullSerde[*T] { return nullable[T]{s} }

type nullable[T any] struct{ serde Serde[T] }

func (n nullable[T]) IsNull(v *T) bool { return v == nil }
func (n nullable[T]) Null() *T         { return nil }

func (n nullable[T]) Append(dst []byte, v *T) ([]byte, error) {
	if v == nil {
		return dst, nil
	}
	return n.serde.Append(dst, *v)
}

func (n nullable[T]) Decode(data []byte) (*T, error) {
	v, err := n.serde.Decode(data)
	if err != nil {
		return nil, err
	}
	return &v, nil
}
