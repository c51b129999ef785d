package seglog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// The journal's format; see docs/format/journal.md. Everything is big-endian.
const (
	pageBytes = 4096 // groups begin at multiples of this

	groupMagic   = 0x484e424a // "HNBJ"
	groupVersion = 1

	groupHeaderBytes = 48
	entryHeaderBytes = 20

	groupCRCAt = 44
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// groupHeader is the head of one group commit.
type groupHeader struct {
	File       uint64 // number of the journal file, against stale bytes of a recycled one
	Seq        uint64 // 1 for the first group after the start, then consecutive
	DurableSeq uint64 // every group up to this one was synced when this one was written
	Salt       uint64 // random per start, against bytes that merely look like a group
	Length     uint32 // bytes of entries after the header
}

// entryKind says what an entry does to its log.
type entryKind uint8

const (
	entryAppend   entryKind = 1 // payload: one record batch whose base offset is Offset
	entrySetStart entryKind = 2 // no payload: Offset is the new log start
	entryAborted  entryKind = 3 // payload: a transaction index entry whose last offset is Offset
)

func (k entryKind) String() string {
	switch k {
	case entryAppend:
		return "append"
	case entrySetStart:
		return "set-start"
	case entryAborted:
		return "aborted"
	}
	return fmt.Sprintf("entryKind(%d)", uint8(k))
}

// entry is one change of one log.
type entry struct {
	Kind    entryKind
	Log     LogID
	Offset  batch.Offset
	Payload []byte
}

// beginGroup starts a group in dst, which must be empty.
func beginGroup(dst []byte) []byte {
	return append(dst, make([]byte, groupHeaderBytes)...)
}

func appendEntry(dst []byte, e entry) []byte {
	dst = append(dst, byte(e.Kind), 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Log))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.Offset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.Payload)))
	return append(dst, e.Payload...)
}

// finishGroup fills in the header, the checksum and the padding.
func finishGroup(dst []byte, h groupHeader) []byte {
	be := binary.BigEndian
	be.PutUint32(dst, groupMagic)
	dst[4] = groupVersion
	be.PutUint64(dst[8:], h.File)
	be.PutUint64(dst[16:], h.Seq)
	be.PutUint64(dst[24:], h.DurableSeq)
	be.PutUint64(dst[32:], h.Salt)
	be.PutUint32(dst[40:], uint32(len(dst)-groupHeaderBytes))
	be.PutUint32(dst[groupCRCAt:], groupCRC(dst))
	if pad := len(dst) % pageBytes; pad > 0 {
		dst = append(dst, make([]byte, pageBytes-pad)...)
	}
	return dst
}

// groupCRC covers the header before the checksum and the entries.
func groupCRC(group []byte) uint32 {
	crc := crc32.Update(0, castagnoli, group[:groupCRCAt])
	return crc32.Update(crc, castagnoli, group[groupHeaderBytes:])
}

// parseGroupHeader reads a header without checking the checksum.
func parseGroupHeader(b []byte) (groupHeader, error) {
	if len(b) < groupHeaderBytes {
		return groupHeader{}, fmt.Errorf("group header of %d bytes is cut at %d", groupHeaderBytes, len(b))
	}
	be := binary.BigEndian
	if m := be.Uint32(b); m != groupMagic {
		return groupHeader{}, fmt.Errorf("no group begins here (magic %#x)", m)
	}
	if b[4] != groupVersion {
		return groupHeader{}, fmt.Errorf("group of version %d, this program knows %d", b[4], groupVersion)
	}
	if b[5]|b[6]|b[7] != 0 {
		return groupHeader{}, fmt.Errorf("reserved bytes of the group header are not zero")
	}
	return groupHeader{
		File:       be.Uint64(b[8:]),
		Seq:        be.Uint64(b[16:]),
		DurableSeq: be.Uint64(b[24:]),
		Salt:       be.Uint64(b[32:]),
		Length:     be.Uint32(b[40:]),
	}, nil
}

// parseGroup checks a whole group, without its padding, and returns its entries.
func parseGroup(b []byte) (groupHeader, []byte, error) {
	h, err := parseGroupHeader(b)
	if err != nil {
		return h, nil, err
	}
	if int64(h.Length) > int64(len(b)-groupHeaderBytes) {
		return h, nil, fmt.Errorf("group of %d bytes is cut at %d", h.Length, len(b)-groupHeaderBytes)
	}
	b = b[:groupHeaderBytes+int(h.Length)]
	if want, got := binary.BigEndian.Uint32(b[groupCRCAt:]), groupCRC(b); want != got {
		return h, nil, fmt.Errorf("checksum of the group is %#x, its bytes give %#x", want, got)
	}
	return h, b[groupHeaderBytes:], nil
}

// nextEntry cuts the first entry off the entries of a group. The payload
// aliases b.
func nextEntry(b []byte) (entry, []byte, error) {
	if len(b) < entryHeaderBytes {
		return entry{}, nil, fmt.Errorf("entry header of %d bytes is cut at %d", entryHeaderBytes, len(b))
	}
	if b[1]|b[2]|b[3] != 0 {
		return entry{}, nil, fmt.Errorf("reserved bytes of the entry header are not zero")
	}
	be := binary.BigEndian
	e := entry{Kind: entryKind(b[0]), Log: LogID(be.Uint32(b[4:])), Offset: batch.Offset(be.Uint64(b[8:]))}
	n := int64(be.Uint32(b[16:]))
	b = b[entryHeaderBytes:]
	if n > int64(len(b)) {
		return entry{}, nil, fmt.Errorf("%s entry of %d bytes is cut at %d", e.Kind, n, len(b))
	}
	e.Payload, b = b[:n:n], b[n:]
	return e, b, e.check()
}

// check tells whether the payload is what the kind needs.
func (e entry) check() error {
	switch e.Kind {
	case entryAppend:
		h, err := parseHeader(e.Payload)
		if err != nil {
			return err
		}
		if h.base != int64(e.Offset) || h.size != int64(len(e.Payload)) {
			return fmt.Errorf("append entry at offset %d of %d bytes holds a batch at offset %d of %d bytes",
				e.Offset, len(e.Payload), h.base, h.size)
		}
	case entrySetStart:
		if len(e.Payload) != 0 || e.Offset < 0 {
			return fmt.Errorf("set-start entry at offset %d with %d bytes of payload", e.Offset, len(e.Payload))
		}
	case entryAborted:
		t, err := parseAborted(e.Payload)
		if err != nil {
			return err
		}
		if len(e.Payload) != txnEntryBytes || t.LastOffset != e.Offset {
			return fmt.Errorf("aborted entry at offset %d holds a transaction that ends at %d", e.Offset, t.LastOffset)
		}
	default:
		return fmt.Errorf("entry of unknown kind %d", e.Kind)
	}
	return nil
}

// batchHeader is what the store needs of a record batch's header.
type batchHeader struct {
	base, last int64 // offsets
	size       int64 // bytes, header included
	maxTs      int64
}

// parseHeader reads the fixed header of a batch; b may be cut after it.
func parseHeader(b []byte) (batchHeader, error) {
	if len(b) < batch.HeaderSize {
		return batchHeader{}, fmt.Errorf("batch header of %d bytes is cut at %d", batch.HeaderSize, len(b))
	}
	be := binary.BigEndian
	base, length := int64(be.Uint64(b)), int32(be.Uint32(b[8:]))
	delta := int32(be.Uint32(b[23:]))
	h := batchHeader{base: base, last: base + int64(delta), size: int64(length) + 12, maxTs: int64(be.Uint64(b[35:]))}
	if b[16] != 2 {
		return h, fmt.Errorf("batch of magic %d, only 2 is stored", b[16])
	}
	if base < 0 || delta < 0 || h.last < base || h.size < batch.HeaderSize {
		return h, fmt.Errorf("impossible batch header: base offset %d, last offset delta %d, length %d", base, delta, length)
	}
	return h, nil
}

// checkBatchCRC verifies a whole batch.
func checkBatchCRC(b []byte) error {
	want, got := binary.BigEndian.Uint32(b[17:]), crc32.Checksum(b[21:], castagnoli)
	if want != got {
		return fmt.Errorf("checksum of the batch is %#x, its bytes give %#x", want, got)
	}
	return nil
}
