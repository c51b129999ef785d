package batch

import "math/bits"

// Records use zigzag varints (ByteUtils.readVarint, readVarlong in Kafka), at
// most 5 bytes for an int32 and 10 for an int64. Both readers return the number
// of bytes read, 0 when b ends too early or the number does not fit.

func varint(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		u := uint32(b[0])
		return int32(u>>1) ^ -int32(u&1), 1
	}
	return varintLong(b)
}

func varintLong(b []byte) (int32, int) {
	var u uint32
	for i := range min(len(b), 5) {
		c := b[i]
		if i == 4 && c > 0x0f {
			return 0, 0
		}
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, 0
}

func varlong(b []byte) (v int64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		u := uint64(b[0])
		return int64(u>>1) ^ -int64(u&1), 1
	}
	return varlongLong(b)
}

func varlongLong(b []byte) (int64, int) {
	var u uint64
	for i := range min(len(b), 10) {
		c := b[i]
		if i == 9 && c > 0x01 {
			return 0, 0
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}

func appendVarint(dst []byte, v int32) []byte {
	u := uint32(v)<<1 ^ uint32(v>>31)
	for ; u >= 0x80; u >>= 7 {
		dst = append(dst, byte(u)|0x80)
	}
	return append(dst, byte(u))
}

func appendVarlong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for ; u >= 0x80; u >>= 7 {
		dst = append(dst, byte(u)|0x80)
	}
	return append(dst, byte(u))
}

func varintSize(v int32) int {
	return (bits.Len32(uint32(v)<<1^uint32(v>>31)|1) + 6) / 7
}

func varlongSize(v int64) int {
	return (bits.Len64(uint64(v)<<1^uint64(v>>63)|1) + 6) / 7
}
