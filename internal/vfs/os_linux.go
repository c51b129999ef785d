package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData flushes data and size, but not the modification time: on a file
// whose blocks are allocated that saves a commit of the file system's journal.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return err
		}
	}
}
