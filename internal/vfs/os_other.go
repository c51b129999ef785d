//go:build !linux

package vfs

import "os"

// syncData is os.File.Sync, which on macOS is fcntl F_FULLFSYNC: plain fsync
// there leaves the data in the drive's cache.
func syncData(f *os.File) error { return f.Sync() }
