//go:build unix

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// lockFile reports whether another open file holds the lock. flock belongs to
// the open file, so it also keeps out a second opener in this process.
func lockFile(f *os.File) (held bool, err error) {
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch err {
		case unix.EINTR:
			continue
		case unix.EWOULDBLOCK:
			return true, nil
		}
		return false, err
	}
}
