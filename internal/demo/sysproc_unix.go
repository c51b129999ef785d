//go:build unix && !linux

package demo

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C
// reaches only the parent, which then ends its children in order. A child that
// outlives its parent ends when its standard input closes.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
