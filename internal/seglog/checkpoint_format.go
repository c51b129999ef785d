package seglog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The checkpoint's format; see docs/format/checkpoint.md. Big-endian.
const (
	checkpointMagic   = 0x484e4243 // "HNBC"
	checkpointVersion = 1

	checkpointHeaderBytes = 48
	checkpointRecordBytes = 80

	checkpointClean = 1 // flag: written by a clean shutdown
)

// checkpoint is the state from which the journal is applied.
type checkpoint struct {
	Clean bool
	Epoch int32 // bumped at each start
	Salt  uint64
	File  uint64 // journal file, position and group sequence that come next
	Pos   int64
	Seq   uint64
	Logs  []logRecord // ascending by ID
}

// logRecord is the synced state of one log.
type logRecord struct {
	ID           LogID
	IndexEntries uint32 // of the last segment, as are the next two
	TimeEntries  uint32
	TxnEntries   uint32
	Start        int64 // log start offset
	End          int64 // recovery offset: everything below is synced
	Segment      int64 // base offset of the segment that holds the end; -1 if there is none
	Pos          int64 // size of that segment's file
	MaxTs        int64 // largest timestamp in the segment, -1 if none
	MaxTsOffset  int64 // last offset of the first batch with it
	LastTimeTs   int64 // timestamp of the last time index entry, -1 if none
	SinceIndex   uint32
}

func (c *checkpoint) marshal() []byte {
	be := binary.BigEndian
	b := make([]byte, 0, checkpointHeaderBytes+len(c.Logs)*checkpointRecordBytes+4)
	b = be.AppendUint32(b, checkpointMagic)
	flags := byte(0)
	if c.Clean {
		flags = checkpointClean
	}
	b = append(b, checkpointVersion, flags, 0, 0)
	b = be.AppendUint32(b, uint32(c.Epoch))
	b = be.AppendUint32(b, uint32(len(c.Logs)))
	b = be.AppendUint64(b, c.Salt)
	b = be.AppendUint64(b, c.File)
	b = be.AppendUint64(b, uint64(c.Pos))
	b = be.AppendUint64(b, c.Seq)
	for _, l := range c.Logs {
		b = be.AppendUint32(b, uint32(l.ID))
		b = be.AppendUint32(b, l.IndexEntries)
		b = be.AppendUint32(b, l.TimeEntries)
		b = be.AppendUint32(b, l.TxnEntries)
		for _, v := range []int64{l.Start, l.End, l.Segment, l.Pos, l.MaxTs, l.MaxTsOffset, l.LastTimeTs} {
			b = be.AppendUint64(b, uint64(v))
		}
		b = be.AppendUint32(b, l.SinceIndex)
		b = be.AppendUint32(b, 0)
	}
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseCheckpoint(b []byte) (*checkpoint, error) {
	be := binary.BigEndian
	if len(b) < checkpointHeaderBytes+4 {
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	if m := be.Uint32(b); m != checkpointMagic {
		return nil, fmt.Errorf("not a checkpoint (magic %#x)", m)
	}
	if b[4] != checkpointVersion {
		return nil, fmt.Errorf("version %d, this program knows %d", b[4], checkpointVersion)
	}
	body := b[:len(b)-4]
	if want, got := be.Uint32(b[len(body):]), crc32.Checksum(body, castagnoli); want != got {
		return nil, fmt.Errorf("checksum is %#x, the bytes give %#x", want, got)
	}
	if b[5]&^checkpointClean != 0 || b[6]|b[7] != 0 {
		return nil, fmt.Errorf("unknown flags")
	}
	c := &checkpoint{
		Clean: b[5]&checkpointClean != 0,
		Epoch: int32(be.Uint32(b[8:])),
		Salt:  be.Uint64(b[16:]),
		File:  be.Uint64(b[24:]),
		Pos:   int64(be.Uint64(b[32:])),
		Seq:   be.Uint64(b[40:]),
	}
	count := int64(be.Uint32(b[12:]))
	body = body[checkpointHeaderBytes:]
	if int64(len(body)) != count*checkpointRecordBytes {
		return nil, fmt.Errorf("%d logs in %d bytes", count, len(body))
	}
	if c.Pos < 0 || c.Pos%pageBytes != 0 {
		return nil, fmt.Errorf("journal position %d", c.Pos)
	}
	for ; len(body) > 0; body = body[checkpointRecordBytes:] {
		l, err := parseLogRecord(body)
		if err != nil {
			return nil, err
		}
		if n := len(c.Logs); n > 0 && c.Logs[n-1].ID >= l.ID {
			return nil, fmt.Errorf("log %d after log %d", l.ID, c.Logs[n-1].ID)
		}
		c.Logs = append(c.Logs, l)
	}
	return c, nil
}

func parseLogRecord(b []byte) (logRecord, error) {
	be := binary.BigEndian
	i64 := func(at int) int64 { return int64(be.Uint64(b[at:])) }
	l := logRecord{
		ID:           LogID(be.Uint32(b)),
		IndexEntries: be.Uint32(b[4:]),
		TimeEntries:  be.Uint32(b[8:]),
		TxnEntries:   be.Uint32(b[12:]),
		Start:        i64(16),
		End:          i64(24),
		Segment:      i64(32),
		Pos:          i64(40),
		MaxTs:        i64(48),
		MaxTsOffset:  i64(56),
		LastTimeTs:   i64(64),
		SinceIndex:   be.Uint32(b[72:]),
	}
	switch {
	case be.Uint32(b[76:]) != 0,
		l.Start < 0 || l.End < l.Start,
		l.Segment < -1 || l.Segment > l.End,
		l.Pos < 0 || l.Pos > maxSegmentBytes,
		l.Segment == -1 && l.Pos != 0:
		return l, fmt.Errorf("impossible record of log %d: %+v", l.ID, l)
	}
	return l, nil
}

// byID returns the record of a log.
func (c *checkpoint) byID() map[LogID]logRecord {
	m := make(map[LogID]logRecord, len(c.Logs))
	for _, l := range c.Logs {
		m[l.ID] = l
	}
	return m
}
