//go:build unix

package demo

import (
	"os"
	"syscall"
)

// pauseProcess freezes a process where it stands; resumeProcess lets it go on.
func pauseProcess(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// terminateProcess asks a process to end by itself.
func terminateProcess(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
