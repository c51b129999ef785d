package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// produceEntriesMax bounds the topics and partitions of one Produce request. A
// request may be of RequestMaxBytes, and an empty partition is six bytes in it,
// but hundreds in memory once it is decoded and answered.
const produceEntriesMax = 100_000

// checkProduceSize counts the topics and partitions of a Produce request's body
// before anything is allocated for them. What it cannot read is an error, as it
// would be for the decoder.
func checkProduceSize(body []byte, version int16) error {
	r := kbin.Reader{Src: body}
	flexible := version >= 9
	array := func() int32 {
		if flexible {
			return r.CompactArrayLen()
		}
		return r.ArrayLen()
	}
	tags := func() {
		if !flexible {
			return
		}
		for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
			r.Uvarint()
			r.Span(int(r.Uvarint()))
		}
	}
	if flexible {
		r.UnsafeCompactNullableString()
	} else {
		r.UnsafeNullableString()
	}
	r.Int16() // acks
	r.Int32() // timeout
	left := int32(produceEntriesMax)
	take := func(n int32) error {
		if left -= max(n, 0); left < 0 {
			return fmt.Errorf("more than %d topics and partitions in one request; send fewer at a time", produceEntriesMax)
		}
		return nil
	}
	topics := array()
	if err := take(topics); err != nil {
		return err
	}
	for ; topics > 0 && r.Ok(); topics-- {
		switch {
		case version >= 13:
			r.Uuid()
		case flexible:
			r.UnsafeCompactString()
		default:
			r.UnsafeString()
		}
		partitions := array()
		if err := take(partitions); err != nil {
			return err
		}
		for ; partitions > 0 && r.Ok(); partitions-- {
			r.Int32()
			if flexible {
				r.CompactNullableBytes()
			} else {
				r.NullableBytes()
			}
			tags()
		}
		tags()
	}
	if !r.Ok() {
		return kbin.ErrNotEnoughData
	}
	return nil
}
