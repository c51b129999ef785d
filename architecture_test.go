// Package hanbeon_test holds the checks that look at the whole module: its
// layers, its habits, and that what the documents say is so.
package hanbeon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hanbeon/hanbeon"

// layer is one package: what it may import of this module, and whether it is
// pure (◆): no goroutine, clock, I/O, randomness, logging or lock.
type layer struct {
	dir     string
	pure    bool
	imports []string
}

// layers is the architecture, from the bottom up: a package may import only
// packages that stand above it in this list, and of these only the listed ones.
// Tests may import what they like.
var layers = []layer{
	{dir: "internal/batch/compress"},
	{dir: "internal/batch", pure: true, imports: []string{"internal/batch/compress"}},
	{dir: "internal/vfs"},
	{dir: "internal/faults"},

	// The broker.
	{dir: "internal/prodstate", pure: true, imports: []string{"internal/batch"}},
	{dir: "internal/group", pure: true, imports: []string{"internal/batch"}},
	{dir: "internal/txn", pure: true, imports: []string{"internal/batch"}},
	{dir: "internal/seglog", imports: []string{"internal/batch", "internal/vfs"}},
	{dir: "internal/shard", imports: []string{"internal/batch", "internal/group", "internal/prodstate", "internal/seglog", "internal/txn"}},
	{dir: "broker", imports: []string{"internal/batch", "internal/group", "internal/prodstate", "internal/seglog", "internal/shard", "internal/txn", "internal/vfs"}},

	// The library.
	{dir: "internal/producer/core", pure: true, imports: []string{"internal/batch"}},
	{dir: "internal/producer", imports: []string{"internal/batch", "internal/producer/core"}},
	{dir: "internal/task", pure: true, imports: []string{"internal/batch"}},
	{dir: "internal/store", imports: []string{"internal/task"}},
	{dir: "internal/runtime", imports: []string{"internal/batch", "internal/faults", "internal/producer", "internal/store", "internal/task", "internal/vfs"}},
	{dir: "streams/serde"},
	{dir: "streams", imports: []string{"internal/runtime", "internal/task", "streams/serde"}},
	{dir: "streams/streamstest", imports: []string{"internal/store", "internal/task", "streams", "streams/serde"}},

	// Proof, and the command.
	{dir: "verify"},
	{dir: "internal/demo", imports: []string{"internal/producer", "internal/store", "internal/task", "streams", "streams/serde", "verify"}},
	{dir: "conformance/bench", imports: []string{"streams"}},
	{dir: "cmd/hanbeon", imports: []string{"broker", "internal/demo", "verify"}},
}

// impure are the imports that no pure package may have, with all packages below
// them.
var impure = []string{
	"context", "crypto/rand", "io/fs", "io/ioutil", "log", "math/rand", "net", "os", "sync", "syscall", "time",
	"github.com/cockroachdb/pebble", "github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/kadm", "golang.org/x/sync", "golang.org/x/sys",
}

// sourceFile is one parsed Go file of the module.
type sourceFile struct {
	path string // from the root, with slashes
	dir  string
	test bool
	file *ast.File
}

// sourceFiles parses every Go file of the module.
func sourceFiles(t *testing.T) (*token.FileSet, []sourceFile) {
	t.Helper()
	fileSet := token.NewFileSet()
	var files []sourceFile
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fileSet, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		files = append(files, sourceFile{
			path: slashed, dir: path.Dir(slashed), test: strings.HasSuffix(name, "_test.go"), file: file,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fileSet, files
}

func importsOf(t *testing.T, f sourceFile) []string {
	t.Helper()
	var imports []string
	for _, spec := range f.file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imports = append(imports, name)
	}
	return imports
}

func TestImportsGoOnlyDownward(t *testing.T) {
	place := make(map[string]int)
	for i, l := range layers {
		if _, twice := place[l.dir]; twice {
			t.Errorf("the table lists %s twice", l.dir)
		}
		place[l.dir] = i
		for _, below := range l.imports {
			if j, ok := place[below]; !ok || j >= i {
				t.Errorf("the table lets %s import %s, which does not stand above it", l.dir, below)
			}
		}
	}
	_, files := sourceFiles(t)
	for _, f := range files {
		if f.test {
			continue
		}
		i, ok := place[f.dir]
		if !ok {
			t.Errorf("%s: package %s is not in the table of architecture_test.go", f.path, f.dir)
			continue
		}
		for _, name := range importsOf(t, f) {
			below, ours := strings.CutPrefix(name, module+"/")
			if ours && !slices.Contains(layers[i].imports, below) {
				t.Errorf("%s imports %s, which the table does not allow", f.path, below)
			}
		}
	}
}

func TestPurePackagesHaveNoClockNoIOAndNoGoroutine(t *testing.T) {
	pure := make(map[string]bool)
	for _, l := range layers {
		pure[l.dir] = l.pure
	}
	fileSet, files := sourceFiles(t)
	for _, f := range files {
		if f.test || !pure[f.dir] {
			continue
		}
		for _, name := range importsOf(t, f) {
			if isImpure(name) {
				t.Errorf("%s: pure package %s imports %s", f.path, f.dir, name)
			}
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: pure package %s starts a goroutine", fileSet.Position(n.Pos()), f.dir)
			case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: pure package %s uses a channel", fileSet.Position(n.Pos()), f.dir)
			}
			return true
		})
	}
}

func isImpure(name string) bool {
	return slices.ContainsFunc(impure, func(banned string) bool {
		return name == banned || strings.HasPrefix(name, banned+"/")
	})
}

func TestImpureImportsAreRecognised(t *testing.T) {
	for name, want := range map[string]bool{
		"time": true, "math/rand/v2": true, "sync/atomic": true, "log/slog": true, "net/netip": true, "os/exec": true,
		"math": false, "slices": false, "timeline": false, "github.com/twmb/franz-go/pkg/kmsg": false,
	} {
		if got := isImpure(name); got != want {
			t.Errorf("isImpure(%q) = %v, want %v", name, got, want)
		}
	}
}

// Lines a file may have.
const (
	sourceLinesMax = 600
	testLinesMax   = 1000
)

// longFiles are the files that may be longer, with the reason and the lines they
// may have. The list only shrinks: an entry that is no longer needed fails too.
var longFiles = map[string]struct {
	linesMax int
	reason   string
}{}

func TestFilesAreShort(t *testing.T) {
	fileSet, files := sourceFiles(t)
	seen := make(map[string]bool)
	for _, f := range files {
		lines := fileSet.File(f.file.FileStart).LineCount()
		limit := sourceLinesMax
		if f.test {
			limit = testLinesMax
		}
		exception, excepted := longFiles[f.path]
		switch {
		case excepted && lines <= limit:
			t.Errorf("%s has %d lines and needs no exception any more: take it off the list", f.path, lines)
		case excepted && lines > exception.linesMax:
			t.Errorf("%s has grown to %d lines, its exception is for %d", f.path, lines, exception.linesMax)
		case !excepted && lines > limit:
			t.Errorf("%s has %d lines, more than %d: split it by concept, or list the reason", f.path, lines, limit)
		}
		seen[f.path] = true
	}
	for name, exception := range longFiles {
		if !seen[name] {
			t.Errorf("the exception for %s names no file", name)
		}
		if exception.reason == "" {
			t.Errorf("the exception for %s has no reason", name)
		}
	}
}
