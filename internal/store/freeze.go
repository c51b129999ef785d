package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// freezeFS stands between Pebble and the file system, because Pebble ends the process
// when its log cannot be written, as on a full disk. The first change that fails
// freezes the disk as it is, like a power cut: later changes seem to succeed but go to
// memory, until the store, whose next use reports the failure, is closed. What stays
// on the disk is what a crash at that moment would have left.
type freezeFS struct {
	vfs.FS
	damage *damage
	armed  atomic.Bool // errors while a store is opened are returned as they are
	frozen atomic.Bool
	after  *vfs.MemFS // files made after the freeze
}

func newFreezeFS(disk vfs.FS, d *damage) *freezeFS {
	return &freezeFS{FS: disk, damage: d, after: vfs.NewMem()}
}

// absorb says whether a failed change is to be taken as the end of the disk.
func (f *freezeFS) absorb(name string, err error) bool {
	if err == nil || !f.armed.Load() || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return false
	}
	f.damage.set(fmt.Errorf("write %s: %w; the store is as after the last complete commit: make room or mend the disk, and start again", name, err))
	f.frozen.Store(true)
	return true
}

// change runs a change of the disk that has no result.
func (f *freezeFS) change(name string, do func() error) error {
	if f.frozen.Load() {
		return nil
	}
	if err := do(); err != nil && !f.absorb(name, err) {
		return err
	}
	return nil
}

// create runs a change that makes a file.
func (f *freezeFS) create(name string, category vfs.DiskWriteCategory, do func() (vfs.File, error)) (vfs.File, error) {
	if !f.frozen.Load() {
		file, err := do()
		if err == nil {
			return &freezeFile{File: file, fs: f, name: name}, nil
		}
		if !f.absorb(name, err) {
			return nil, err
		}
	}
	if err := f.after.MkdirAll(f.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return f.after.Create(name, category)
}

// Create implements vfs.FS.
func (f *freezeFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.create(name, category, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

// ReuseForWrite implements vfs.FS.
func (f *freezeFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.create(newname, category, func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, category) })
}

// Open implements vfs.FS.
func (f *freezeFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if f.frozen.Load() {
		if file, err := f.after.Open(name, opts...); err == nil {
			return file, nil
		}
	}
	return f.FS.Open(name, opts...)
}

// OpenReadWrite implements vfs.FS.
func (f *freezeFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.create(name, category, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir implements vfs.FS; a directory is opened to be synced.
func (f *freezeFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &freezeFile{File: file, fs: f, name: name}, nil
}

// Link implements vfs.FS.
func (f *freezeFS) Link(oldname, newname string) error {
	return f.change(newname, func() error { return f.FS.Link(oldname, newname) })
}

// Remove implements vfs.FS. Nothing is removed from a frozen disk: what is on it
// may need the file.
func (f *freezeFS) Remove(name string) error {
	return f.change(name, func() error { return f.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (f *freezeFS) RemoveAll(name string) error {
	return f.change(name, func() error { return f.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (f *freezeFS) Rename(oldname, newname string) error {
	if f.frozen.Load() {
		_ = f.after.Rename(oldname, newname) // it may be a file of the disk, which stays
		return nil
	}
	return f.change(newname, func() error { return f.FS.Rename(oldname, newname) })
}

// MkdirAll implements vfs.FS.
func (f *freezeFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.change(dir, func() error { return f.FS.MkdirAll(dir, perm) })
}

// Stat implements vfs.FS.
func (f *freezeFS) Stat(name string) (vfs.FileInfo, error) {
	if f.frozen.Load() {
		if info, err := f.after.Stat(name); err == nil {
			return info, nil
		}
	}
	return f.FS.Stat(name)
}

// Unwrap implements vfs.FS.
func (f *freezeFS) Unwrap() vfs.FS { return f.FS }

// freezeFile is a file that was opened before the freeze.
type freezeFile struct {
	vfs.File
	fs   *freezeFS
	name string
}

func (f *freezeFile) Write(p []byte) (int, error) {
	return len(p), f.fs.change(f.name, func() error { _, err := f.File.Write(p); return err })
}

func (f *freezeFile) WriteAt(p []byte, off int64) (int, error) {
	return len(p), f.fs.change(f.name, func() error { _, err := f.File.WriteAt(p, off); return err })
}

// Preallocate is a hint, which some file systems refuse.
func (f *freezeFile) Preallocate(offset, length int64) error {
	if f.fs.frozen.Load() {
		return nil
	}
	return f.File.Preallocate(offset, length)
}

func (f *freezeFile) Sync() error { return f.fs.change(f.name, f.File.Sync) }

func (f *freezeFile) SyncData() error { return f.fs.change(f.name, f.File.SyncData) }

func (f *freezeFile) SyncTo(length int64) (fullSync bool, err error) {
	err = f.fs.change(f.name, func() error { fullSync, err = f.File.SyncTo(length); return err })
	return fullSync, err
}

// Close never fails after the freeze.
func (f *freezeFile) Close() error {
	err := f.File.Close()
	if f.fs.frozen.Load() {
		return nil
	}
	if f.fs.absorb(f.name, err) {
		return nil
	}
	return err
}
