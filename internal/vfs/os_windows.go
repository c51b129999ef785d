package vfs

import (
	"os"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: Windows has no sync of a directory, NTFS journals
// names itself.
func syncDir(string) error { return nil }

func lockFile(f *os.File) (held bool, err error) {
	// One byte far past the text, so that another process can read the text.
	ol := &windows.Overlapped{Offset: 1 << 30}
	err = windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, ol)
	if err == windows.ERROR_LOCK_VIOLATION {
		return true, nil
	}
	return false, err
}
