//go:build !unix

package demo

import (
	"errors"
	"os"
	"syscall"
)

var errNoSignals = errors.New("this system cannot stop and continue a process; run the demo on Linux, macOS or another Unix")

func childAttributes() *syscall.SysProcAttr { return nil }

func pauseProcess(*os.Process) error     { return errNoSignals }
func resumeProcess(*os.Process) error    { return errNoSignals }
func terminateProcess(*os.Process) error { return errNoSignals }

// terminalColumns is the width that every terminal has.
func terminalColumns(*os.File) int { return 80 }
