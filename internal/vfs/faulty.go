package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// OpKind names a mutating operation.
type OpKind string

// The operations a Faulty's hook sees.
const (
	OpCreate    OpKind = "create"
	OpWrite     OpKind = "write"
	OpTruncate  OpKind = "truncate"
	OpSync      OpKind = "sync"
	OpRename    OpKind = "rename"
	OpRemove    OpKind = "remove"
	OpRemoveAll OpKind = "removeall"
	OpMkdir     OpKind = "mkdir"
	OpSyncDir   OpKind = "syncdir"
)

// Op is one mutating operation about to happen.
type Op struct {
	N    int64 // running number of the Faulty, from 1
	Kind OpKind
	Name string
	Off  int64 // of a write; the size of a truncate
	Len  int   // of a write
}

// String is for a test's message.
func (o Op) String() string {
	return fmt.Sprintf("op %d: %s %s [%d,+%d]", o.N, o.Kind, o.Name, o.Off, o.Len)
}

// PartialError, returned by a hook for a write, lets the first N bytes
// through and fails with Err, as a full disk does.
type PartialError struct {
	N   int
	Err error
}

// Error is Err's text.
func (e *PartialError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *PartialError) Unwrap() error { return e.Err }

// Faulty wraps a file system and calls Hook before every mutating operation,
// on the caller's goroutine. If the hook returns an error the operation does
// not happen and fails with it.
type Faulty struct {
	FS
	Hook func(Op) error // must be safe for concurrent use; nil never fails

	n atomic.Int64
}

// Ops returns how many mutating operations have begun.
func (f *Faulty) Ops() int64 { return f.n.Load() }

func (f *Faulty) hook(op Op) error {
	op.N = f.n.Add(1)
	if f.Hook == nil {
		return nil
	}
	if err := f.Hook(op); err != nil {
		return fmt.Errorf("%s %s: %w", op.Kind, op.Name, err)
	}
	return nil
}

// OpenFile counts as an operation if it may create or truncate.
func (f *Faulty) OpenFile(name string, flag int) (File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := f.hook(Op{Kind: OpCreate, Name: name}); err != nil {
			return nil, err
		}
	}
	file, err := f.FS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, f: f, name: name}, nil
}

// Rename is an operation named after the new name.
func (f *Faulty) Rename(oldName, newName string) error {
	if err := f.hook(Op{Kind: OpRename, Name: newName}); err != nil {
		return err
	}
	return f.FS.Rename(oldName, newName)
}

// Remove is an operation.
func (f *Faulty) Remove(name string) error {
	if err := f.hook(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// RemoveAll is one operation.
func (f *Faulty) RemoveAll(name string) error {
	if err := f.hook(Op{Kind: OpRemoveAll, Name: name}); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

// MkdirAll is one operation.
func (f *Faulty) MkdirAll(name string) error {
	if err := f.hook(Op{Kind: OpMkdir, Name: name}); err != nil {
		return err
	}
	return f.FS.MkdirAll(name)
}

// SyncDir is an operation.
func (f *Faulty) SyncDir(dir string) error {
	if err := f.hook(Op{Kind: OpSyncDir, Name: dir}); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

// Lock is passed through.
func (f *Faulty) Lock(name string) (io.Closer, error) { return f.FS.Lock(name) }

type faultyFile struct {
	File
	f    *Faulty
	name string
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.f.hook(Op{Kind: OpWrite, Name: f.name, Off: off, Len: len(p)})
	if err == nil {
		return f.File.WriteAt(p, off)
	}
	n := 0
	var part *PartialError
	if errors.As(err, &part) && part.N > 0 {
		n, _ = f.File.WriteAt(p[:min(part.N, len(p))], off)
	}
	return n, err
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.f.hook(Op{Kind: OpTruncate, Name: f.name, Off: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.f.hook(Op{Kind: OpSync, Name: f.name}); err != nil {
		return err
	}
	return f.File.Sync()
}
