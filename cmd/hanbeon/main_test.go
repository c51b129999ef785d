package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/internal/demo"
	"github.com/hanbeon/hanbeon/verify"
)

// asCommand makes this test binary be the hanbeon command. It starts itself
// again as broker and as workers, which inherit it.
const asCommand = "HANBEON_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// command is the hanbeon command with args, with a temporary directory of its
// own to leave things in.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, tempDir string) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tempDir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, executable, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+tempDir)
	cmd.WaitDelay = 10 * time.Second
	return cmd, tempDir
}

func exitStatus(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		t.Fatal(err)
		return 0
	}
}

func TestDemoKillsEverythingAndProvesExactlyOnce(t *testing.T) {
	cmd, tempDir := command(t, "demo", "--duration", "5s", "--workers", "2", "--partitions", "2", "--json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if status := exitStatus(t, cmd.Run()); status != 0 {
		t.Fatalf("exit status %d\n%s%s", status, stderr.String(), stdout.String())
	}
	var result demo.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v in %q", err, stdout.String())
	}
	e := result.Evidence
	if result.Outcome != verify.OutcomeKept || result.Lost != 0 || result.Twice != 0 || result.Words == 0 {
		t.Errorf("outcome %s of %d words: %d lost, %d twice, broken %q", result.Outcome, result.Words, result.Lost, result.Twice, result.Broken)
	}
	if e.WorkerKills < 1 || e.BrokerKills < 1 || e.ZombiesFenced < 1 {
		t.Errorf("evidence %+v: want a worker killed, the broker killed and a zombie fenced\n%s", e, stderr.String())
	}
	if left, _ := filepath.Glob(filepath.Join(tempDir, "*")); len(left) > 0 {
		t.Errorf("the run left %q", left)
	}
}

func TestDemoRefusesBadOptions(t *testing.T) {
	for _, args := range [][]string{
		{"demo", "--guarantee", "exactly_twice"},
		{"demo", "--workers", "-1"},
		{"demo", "--workers", "0"},
		{"demo", "--partitions", "0"},
		{"demo", "--duration", "0s"},
		{"demo", "--input", "/nonexistent/text"},
		{"demo", "surplus"},
		{"demo", "--no-such-flag"},
	} {
		cmd, _ := command(t, args...)
		out, err := cmd.CombinedOutput()
		if status := exitStatus(t, err); status != exitFailed || !bytes.HasPrefix(out, []byte("hanbeon: ")) {
			t.Errorf("hanbeon %q: exit status %d, %s; want %d and a message", args, status, out, exitFailed)
		}
	}
}

func TestBrokerRunsUntilItIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := command(t, "broker", "--dir", dir, "--listen", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening on 127.0.0.1:") {
		t.Fatalf("the broker said %q, %v", line, err)
	}

	second, _ := command(t, "broker", "--dir", dir, "--listen", "127.0.0.1:0")
	out, err := second.CombinedOutput()
	if status := exitStatus(t, err); status != exitFailed || !strings.Contains(string(out), dir) {
		t.Errorf("a second broker on the directory: exit status %d, %s; want %d and an error that names it", status, out, exitFailed)
	}

	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if status := exitStatus(t, cmd.Wait()); status != 0 {
		t.Errorf("exit status %d after an interrupt, want 0", status)
	}
}

func TestVersionIsOneLine(t *testing.T) {
	cmd, _ := command(t, "version")
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "hanbeon ") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("version: %q, %v", out, err)
	}
}
