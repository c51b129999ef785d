// Package vfs is the small file system interface under everything that is
// durable, with three implementations: [OS], the real one; [Mem], which keeps
// track of what was synced and can be crashed as by a power cut; and
// [Faulty], which wraps either and counts, fails or observes every mutating
// operation.
//
// The contract follows POSIX at its strictest. Bytes written to a file are
// safe only after File.Sync. A name created, removed or renamed is safe only
// after FS.SyncDir on its directory, whether or not the file was synced.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is a file system. Names are slash separated paths. Missing files are
// reported as errors that match fs.ErrNotExist.
type FS interface {
	// OpenFile opens a file with the flags of package os: O_RDONLY or
	// O_RDWR, with O_CREATE, O_EXCL and O_TRUNC.
	OpenFile(name string, flag int) (File, error)
	// Rename replaces newName atomically if it exists.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree; a missing one is no error.
	RemoveAll(name string) error
	// MkdirAll makes a directory and its parents.
	MkdirAll(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, creating it. It never waits:
	// a lock held elsewhere is reported as a *LockedError. Closing the
	// result releases it.
	Lock(name string) (io.Closer, error)
}

// File is an open file. All methods may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Truncate sets the size in bytes; growth reads as zeros.
	Truncate(size int64) error
	// Sync makes the file's bytes and size durable (fdatasync; F_FULLFSYNC
	// on macOS). After an error the state of earlier writes is unknown: it
	// must not be retried (the kernel may have dropped the dirty pages).
	Sync() error
	// Size is the current size in bytes.
	Size() (int64, error)
	io.Closer
}

// Info describes a file or directory.
type Info struct {
	Size  int64 // bytes; 0 for a directory
	IsDir bool
}

// ErrLocked matches a *LockedError.
var ErrLocked = errors.New("vfs: locked")

// LockedError reports that a lock file is held by another process, or by
// another owner in this one.
type LockedError struct {
	Name   string // the lock file
	Holder string // what the holder wrote into it, such as "process 4711"; may be empty
}

// Error names the directory, the holder and the remedy.
func (e *LockedError) Error() string {
	holder := "another process"
	if e.Holder != "" {
		holder = e.Holder
	}
	return fmt.Sprintf("directory %s is in use by %s (lock file %s is held): stop it first, or choose another directory",
		filepath.Dir(e.Name), holder, filepath.Base(e.Name))
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// ReadFile returns the whole content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err == io.EOF {
		err = nil
	}
	return data[:n], err
}

// WriteFileAtomic replaces a file so that, whatever happens, its name holds
// either the old or the new content: it writes name+".tmp", syncs it, renames
// it over name and syncs the directory.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	if err := WriteFileRename(fsys, name, data); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// WriteFileRename is WriteFileAtomic without the last step: the new name is
// whole if it is there after a crash, but it may not be there.
func WriteFileRename(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return fsys.Rename(tmp, name)
}

// MkdirAllSync makes a directory and its missing parents, durably.
func MkdirAllSync(fsys FS, dir string) error {
	var missing []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		_, err := fsys.Stat(d)
		if err == nil || d == filepath.Dir(d) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for _, d := range missing {
		if err := fsys.SyncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return nil
}
