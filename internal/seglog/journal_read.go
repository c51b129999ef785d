package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/hanbeon/hanbeon/internal/vfs"
)

// journalReader walks the valid groups of a journal from a checkpoint on.
type journalReader struct {
	fs   vfs.FS
	dir  string
	salt uint64

	number uint64
	file   vfs.File // nil before the first file and after the last
	size   int64
	pos    int64
	seq    uint64 // of the group expected at pos
	buf    []byte
	reason string // why the group expected at pos is not there
	torn   bool   // because a group that begins there is not whole
}

func newJournalReader(fsys vfs.FS, dir string, cp *checkpoint) *journalReader {
	return &journalReader{fs: fsys, dir: dir, salt: cp.Salt, number: cp.File, pos: cp.Pos, seq: cp.Seq}
}

func (r *journalReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// open opens a file of the journal and reports whether it exists.
func (r *journalReader) open(number uint64) (bool, error) {
	r.close()
	file, err := r.fs.OpenFile(journalName(r.dir, number), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	size, err := file.Size()
	if err != nil {
		file.Close()
		return false, err
	}
	r.file, r.number, r.size = file, number, size
	return true, nil
}

// next returns the entries of the next group, valid until the call after, or
// nil at the end of the valid part.
func (r *journalReader) next() ([]byte, error) {
	if r.file == nil {
		if ok, err := r.open(r.number); err != nil || !ok {
			r.reason = "the file does not exist"
			return nil, err
		}
	}
	h, entries, err := r.groupAt(r.pos)
	if err != nil {
		return nil, err
	}
	if entries == nil || h.Seq != r.seq {
		// The file may be full: then the next group opens the next file.
		number, pos, reason, torn := r.number, r.pos, r.reason, r.torn
		ok, err := r.open(number + 1)
		if err != nil {
			return nil, err
		}
		if ok {
			h, entries, err = r.groupAt(0)
			if err != nil {
				return nil, err
			}
		}
		if !ok || entries == nil || h.Seq != r.seq {
			r.pos, r.reason, r.torn = pos, reason, torn
			_, err := r.open(number)
			return nil, err
		}
		r.pos = 0
	}
	r.pos += groupBytes(h)
	r.seq++
	return entries, nil
}

// wrong reports a group whose checksum is right and whose entries are not.
func (r *journalReader) wrong(cause error) error {
	return &CorruptError{File: journalName(r.dir, r.number), Pos: r.pos, Reason: "in the group before: " + cause.Error(),
		Remedy: "the journal was written wrongly, please report it; restore the directory from a copy"}
}

// groupBytes is the room a group takes in its file.
func groupBytes(h groupHeader) int64 {
	n := int64(groupHeaderBytes) + int64(h.Length)
	return (n + pageBytes - 1) / pageBytes * pageBytes
}

// groupAt reads the group of this file and salt at a position; entries is nil
// and r.reason is set if there is none. The error is of the disk.
func (r *journalReader) groupAt(pos int64) (h groupHeader, entries []byte, err error) {
	r.torn = false
	if pos+groupHeaderBytes > r.size {
		r.reason = "the file ends"
		return h, nil, nil
	}
	r.buf = sized(r.buf, groupHeaderBytes)
	if _, err := r.file.ReadAt(r.buf, pos); err != nil && err != io.EOF {
		return h, nil, err
	}
	h, perr := parseGroupHeader(r.buf)
	switch {
	case perr != nil:
		r.reason = perr.Error()
		return h, nil, nil
	case h.File != r.number || h.Salt != r.salt:
		r.reason = "a group from an earlier use of the file"
		return h, nil, nil
	case int64(h.Length) > r.size-pos-groupHeaderBytes: // before memory is allocated
		r.torn = true
		r.reason = fmt.Sprintf("a group of %d bytes is cut by the end of the file", h.Length)
		return h, nil, nil
	}
	r.buf = sized(r.buf, groupHeaderBytes+int(h.Length))
	if _, err := r.file.ReadAt(r.buf, pos); err != nil && err != io.EOF {
		return h, nil, err
	}
	h, entries, perr = parseGroup(r.buf)
	if perr != nil {
		r.torn = true
		r.reason = perr.Error()
		return h, nil, nil
	}
	if entries == nil {
		entries = []byte{}
	}
	return h, entries, nil
}

func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// rot looks past the end of the valid part for proof that the group missing
// there had been synced: a later group that says so. A torn tail has none,
// because a group is written only when (or with a note that) the groups before
// it are synced. It returns nil if there is no proof.
func (r *journalReader) rot() (*CorruptError, error) {
	missing, number, pos, reason := r.seq, r.number, r.pos, r.reason
	defer r.close()
	for ok := r.file != nil; ok; {
		found, err := r.proof(missing)
		if err != nil {
			return nil, err
		}
		if found >= 0 {
			return &CorruptError{
				File: journalName(r.dir, number), Pos: pos,
				Reason: fmt.Sprintf("%s, but %s holds at byte %d a valid group written after group %d was synced",
					reason, journalName(r.dir, r.number), found, missing),
				Remedy: "acknowledged data is damaged and nothing was changed: restore the journal from a copy, " +
					"or start once with salvage to lose everything from this group on",
			}, nil
		}
		if ok, err = r.open(r.number + 1); err != nil {
			return nil, err
		}
		r.pos = 0
	}
	return nil, nil
}

// proof returns the position of a group that was written when group seq was
// durable, or -1.
func (r *journalReader) proof(seq uint64) (int64, error) {
	const chunk = 1 << 20 // a multiple of the page
	var heads []byte
	for at := r.pos; at < r.size; at += chunk {
		heads = sized(heads, int(min(chunk, r.size-at)))
		if _, err := r.file.ReadAt(heads, at); err != nil && err != io.EOF {
			return -1, err
		}
		for off := 0; off < len(heads); off += pageBytes {
			h, err := parseGroupHeader(heads[off:])
			if err != nil || h.File != r.number || h.Salt != r.salt || h.DurableSeq < seq {
				continue
			}
			h, entries, err := r.groupAt(at + int64(off))
			if err != nil {
				return -1, err
			}
			if entries != nil && h.DurableSeq >= seq {
				return at + int64(off), nil
			}
		}
	}
	return -1, nil
}
