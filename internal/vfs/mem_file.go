package vfs

import (
	"io"
	"io/fs"
)

// memFile is an open file of a Mem. It stays usable after its name is gone.
type memFile struct {
	m        *Mem
	n        *memNode
	name     string
	writable bool
	closed   bool
}

func (f *memFile) check(op string, write bool) error {
	if f.closed {
		return pathErr(op, f.name, fs.ErrClosed)
	}
	if write && !f.writable {
		return pathErr(op, f.name, fs.ErrPermission)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.name, fs.ErrInvalid)
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("write", f.name, fs.ErrInvalid)
	}
	if end := off + int64(len(p)); end > int64(len(f.n.data)) {
		f.n.resize(end)
	}
	copy(f.n.data[off:], p)
	f.n.touch(off, off+int64(len(p)))
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathErr("truncate", f.name, fs.ErrInvalid)
	}
	f.n.resize(size)
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.n.sync()
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("size", false); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}

// resize sets the size of data; growth is zeros.
func (n *memNode) resize(size int64) {
	old := int64(len(n.data))
	if size <= old {
		clear(n.data[size:]) // bytes that a later growth must not bring back
		n.data = n.data[:size]
		n.touch(size, old)
		return
	}
	n.data = append(n.data, make([]byte, size-old)...)
	n.touch(old, size)
}

// touch marks the sectors of [from, to) as unsynced.
func (n *memNode) touch(from, to int64) {
	if to <= from {
		return
	}
	for s := from / SectorBytes; s <= (to-1)/SectorBytes; s++ {
		n.dirty[s] = struct{}{}
	}
}

// sync copies the dirty sectors into the durable image.
func (n *memNode) sync() {
	size := int64(len(n.data))
	if int64(len(n.durable)) > size {
		n.durable = n.durable[:size]
	} else {
		n.durable = append(n.durable, make([]byte, size-int64(len(n.durable)))...)
	}
	for s := range n.dirty {
		if from := s * SectorBytes; from < size {
			copy(n.durable[from:], n.data[from:min(from+SectorBytes, size)])
		}
	}
	clear(n.dirty)
}
