package task

import "encoding/binary"

// DefaultPartition is the partition of a keyed record, the same as the Java
// producer's (BuiltInPartitioner.partitionForKey), so that tables written by Java
// and by Go co-partition. Count must be positive.
func DefaultPartition(key []byte, count int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % count
}

// murmur2 is MurmurHash2, 32 bits, little endian, with Kafka's seed.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
	)
	h := uint32(seed) ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data) * m
		k ^= k >> 24
		h = h*m ^ k*m
		data = data[4:]
	}
	if len(data) > 0 {
		for i, b := range data {
			h ^= uint32(b) << (8 * i)
		}
		h *= m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
