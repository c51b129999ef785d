package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startDemo starts a demo, waits until its processes run, and returns their ids.
func startDemo(t *testing.T) (cmd *exec.Cmd, tempDir string, children []int) {
	t.Helper()
	cmd, tempDir = command(t, "demo", "--duration", "1m")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "counting the words") {
			go io.Copy(io.Discard, stdout)
			if children = childrenOf(t, cmd.Process.Pid); len(children) < 4 {
				t.Fatalf("the demo has %d children, want a broker and 3 workers", len(children))
			}
			return cmd, tempDir, children
		}
	}
	t.Fatalf("the demo did not start: %v", cmd.Wait())
	return nil, "", nil
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	cmd, tempDir, children := startDemo(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if status := exitStatus(t, cmd.Wait()); status != exitFailed {
		t.Errorf("exit status %d, want %d", status, exitFailed)
	}
	awaitEnd(t, children)
	if left, _ := filepath.Glob(filepath.Join(tempDir, "*")); len(left) > 0 {
		t.Errorf("the run left %q", left)
	}
}

// TestDemoThatNobodyReadsLeavesNothing: as in hanbeon demo | head.
func TestDemoThatNobodyReadsLeavesNothing(t *testing.T) {
	cmd, tempDir := command(t, "demo", "--duration", "1m")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	if status := exitStatus(t, cmd.Wait()); status != exitFailed || !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("exit status %d and %q, want %d and a broken pipe", status, stderr.String(), exitFailed)
	}
	if left, _ := filepath.Glob(filepath.Join(tempDir, "*")); len(left) > 0 {
		t.Errorf("the run left %q", left)
	}
}

func TestKilledDemoTakesItsProcessesWithIt(t *testing.T) {
	cmd, _, children := startDemo(t)
	// One of them is stopped, as a zombie to be is: it must go too.
	if err := syscall.Kill(children[len(children)-1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	awaitEnd(t, children)
}

// childrenOf lists the processes that pid has started, by the kernel's list.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, task := range tasks {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
	}
	return children
}

// awaitEnd waits until none of the processes runs any more.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for _, pid := range pids {
		for runs(pid) {
			select {
			case <-deadline:
				t.Fatalf("process %d outlived the demo", pid)
			case <-poll.C:
			}
		}
	}
}

// runs reports whether a process is there and has not ended. One that has ended
// and was not yet waited for by its new parent counts as ended.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
