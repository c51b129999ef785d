package demo

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C
// reaches only the parent, which then ends its children in order; and has the
// kernel kill the child when the parent dies in any way, a panic or kill -9
// included. A stopped child is killed too.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
