//go:build unix

package demo

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminalColumns is the width of the terminal, 80 where it cannot be told.
func terminalColumns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// pauseProcess freezes a process where it stands; resumeProcess lets it go on.
func pauseProcess(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// terminateProcess asks a process to end by itself.
func terminateProcess(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
