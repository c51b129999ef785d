package hanbeon_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// blocks returns the fenced code blocks of a document in one language.
func blocks(t *testing.T, document, language string) []string {
	t.Helper()
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	rest := string(content)
	for {
		_, after, ok := strings.Cut(rest, "\n```"+language+"\n")
		if !ok {
			return found
		}
		block, after, ok := strings.Cut(after, "\n```\n")
		if !ok {
			t.Fatalf("%s: a block is not closed", document)
		}
		found = append(found, block+"\n")
		rest = "\n" + after
	}
}

// TestProgramOfTheReadmeRuns builds the program as it is printed, runs it, ends
// it, and runs it again: it must count on from where it was.
func TestProgramOfTheReadmeRuns(t *testing.T) {
	programs := blocks(t, "README.md", "go")
	if len(programs) != 1 {
		t.Fatalf("README.md has %d Go programs, want 1", len(programs))
	}
	executable := buildInModule(t, programs[0])
	dir := t.TempDir()
	for run, want := range []string{"be 2", "be 4"} {
		cmd := exec.Command(executable)
		cmd.Dir = dir
		cmd.Stderr = os.Stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		watchdog := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		var lines []string
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines = append(lines, scanner.Text())
			if scanner.Text() == want {
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
		}
		err = cmd.Wait()
		watchdog.Stop()
		if err != nil || !slices.Contains(lines, want) {
			t.Fatalf("run %d: %v, printed %q, want %q among it", run+1, err, lines, want)
		}
	}
}

// buildInModule builds a program as if it were a package of this module, so that
// it uses this version of it, without writing into the source tree.
func buildInModule(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	source, overlay, executable := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "cmd", "readme", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", executable, "./cmd/readme")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	return executable
}

// TestProgramOfTheReadmeIsShort: the promise is a program of about 20 lines.
func TestProgramOfTheReadmeIsShort(t *testing.T) {
	_, body, _ := strings.Cut(blocks(t, "README.md", "go")[0], "func main() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	if lines := strings.Count(body, "\n") + 1; lines > 22 {
		t.Errorf("main has %d lines, want about 20", lines)
	}
}

func TestKoreanReadmeHasTheSamePrograms(t *testing.T) {
	for _, language := range []string{"go", "sh"} {
		english, korean := blocks(t, "README.md", language), blocks(t, "README.ko.md", language)
		if !slices.Equal(english, korean) {
			t.Errorf("the %s blocks of README.ko.md are not those of README.md: %q, %q", language, korean, english)
		}
	}
}

// runBy says where each command of the documents is run: a file, and what stands
// in it.
var runBy = map[string][2]string{
	"go run ./cmd/hanbeon demo":                                      {".ci/run", "go run ./cmd/hanbeon demo\n"},
	"go run ./cmd/hanbeon demo --guarantee at_least_once":            {".ci/run", "go run ./cmd/hanbeon demo --guarantee at_least_once"},
	"go run ./cmd/hanbeon demo --brokers 127.0.0.1:9092":             {"Makefile", "go run ./cmd/hanbeon demo --brokers"},
	"go run ./cmd/hanbeon broker --dir data --listen 127.0.0.1:9092": {"cmd/hanbeon/main_test.go", `"broker", "--dir", dir, "--listen"`},
	"go test ./...":       {".ci/run", "go test ./...\n"},
	"go test -race ./...": {".ci/run", "go test -race -timeout"},
	"bash .ci/run":        {".ci/run", "bash .ci/run"},
	"make lint":           {".ci/run", "make --no-print-directory lint"},
	"make fuzz":           {"Makefile", ".ci/fuzz"},
	"make conformance":    {".ci/run", "make --no-print-directory conformance-tools"},
	"make bench":          {".ci/run", "go run ./conformance/bench"},
}

func TestEveryCommandOfTheDocumentsIsRun(t *testing.T) {
	for _, document := range []string{"README.md", "README.ko.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, block := range blocks(t, document, "sh") {
			for command := range strings.Lines(block) {
				command, _, _ = strings.Cut(command, " #")
				command = strings.TrimSpace(command)
				where, ok := runBy[command]
				if !ok {
					t.Errorf("%s: nothing is known to run %q", document, command)
					continue
				}
				content, err := os.ReadFile(where[0])
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(content), where[1]) {
					t.Errorf("%s: %s is said to run %q, and has no %q", document, where[0], command, where[1])
				}
			}
		}
	}
}

func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	for _, document := range []string{"README.md", "README.ko.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		content, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(withoutBlocks(string(content)), "](")[1:] {
			target, _, _ := strings.Cut(part, ")")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "#") {
				continue
			}
			if _, err := os.Stat(filepath.FromSlash(target)); err != nil {
				t.Error(fmt.Errorf("%s links to %s: %w", document, target, err))
			}
		}
	}
}

// withoutBlocks leaves out the fenced code blocks of a document.
func withoutBlocks(content string) string {
	var text strings.Builder
	for i, part := range strings.Split(content, "\n```") {
		if i%2 == 0 {
			text.WriteString(part)
		}
	}
	return text.String()
}
