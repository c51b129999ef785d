package vfs

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// OS is the operating system's file system.
type OS struct{}

type osFile struct{ *os.File }

// Sync is fdatasync where there is one; see File.
func (f osFile) Sync() error {
	if err := syncData(f.File); err != nil {
		return &os.PathError{Op: "sync", Path: f.Name(), Err: err}
	}
	return nil
}

// Size is fstat's size.
func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// OpenFile opens with mode 0644.
func (OS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Rename is os.Rename.
func (OS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

// Remove is os.Remove.
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll is os.RemoveAll.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// MkdirAll makes directories with mode 0755.
func (OS) MkdirAll(name string) error { return os.MkdirAll(name, 0o755) }

// List reads a directory.
func (OS) List(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// Stat is os.Stat.
func (OS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	if st.IsDir() {
		return Info{IsDir: true}, nil
	}
	return Info{Size: st.Size()}, nil
}

// SyncDir opens and fsyncs the directory.
func (OS) SyncDir(dir string) error { return syncDir(dir) }

type osLock struct{ f *os.File }

// Close releases the lock; the file stays, so that two holders can never
// lock two different files under one name.
func (l osLock) Close() error { return l.f.Close() }

// Lock takes the lock and writes this process's id into the file.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	held, err := lockFile(f)
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	if held {
		buf := make([]byte, 64)
		n, _ := f.ReadAt(buf, 0)
		f.Close()
		return nil, &LockedError{Name: name, Holder: strings.TrimSpace(string(buf[:n]))}
	}
	text := fmt.Sprintf("process %d\n", os.Getpid())
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return osLock{f}, nil
}
