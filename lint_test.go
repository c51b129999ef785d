package hanbeon_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// sleepers are the tests that may sleep, beside those that run against a real
// cluster (build tag conformance). Everything else uses testing/synctest.
var sleepers = []string{}

func TestNoTestSleeps(t *testing.T) {
	fileSet, files := sourceFiles(t)
	inBubbles := make(map[string]bool) // packages whose tests run in synctest bubbles, where a sleep takes no time
	for _, f := range files {
		if f.test && slices.Contains(importsOf(t, f), "testing/synctest") {
			inBubbles[f.dir] = true
		}
	}
	for _, f := range files {
		if !f.test || slices.Contains(sleepers, f.path) || hasBuildTag(f, "conformance") || inBubbles[f.dir] {
			continue
		}
		for _, call := range callsOf(f, "time", "Sleep") {
			t.Errorf("%s: a test that needs a sleep is in the wrong rung: use testing/synctest or wait for an event", fileSet.Position(call))
		}
	}
}

// skippers are the files with a test that is skipped in the ordinary run, and why.
var skippers = map[string]string{
	"internal/seglog/index_test.go": "leaves files for Kafka's tools where the environment names a directory",
}

func TestNoTestIsSkipped(t *testing.T) {
	fileSet, files := sourceFiles(t)
	for _, f := range files {
		// A conformance test needs a peer, and says by its build tag that it is
		// not part of the ordinary run.
		if _, listed := skippers[f.path]; !f.test || listed || hasBuildTag(f, "conformance") {
			continue
		}
		for _, name := range []string{"Skip", "Skipf", "SkipNow"} {
			for _, call := range callsOf(f, "t", name) {
				t.Errorf("%s: a skipped test is no test", fileSet.Position(call))
			}
		}
	}
}

func TestLibrariesPrintNothingAndHaveNoInit(t *testing.T) {
	fileSet, files := sourceFiles(t)
	for _, f := range files {
		if f.test || f.file.Name.Name == "main" {
			continue
		}
		for _, name := range []string{"Print", "Printf", "Println"} {
			for _, call := range slices.Concat(callsOf(f, "fmt", name), callsOf(f, "log", name)) {
				t.Errorf("%s: a library prints nothing", fileSet.Position(call))
			}
		}
		for _, decl := range f.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: a library has no init side effects", fileSet.Position(fn.Pos()))
			}
		}
	}
}

func TestExportedNamesHaveDocComments(t *testing.T) {
	fileSet, files := sourceFiles(t)
	for _, f := range files {
		if f.test || f.file.Name.Name == "main" {
			continue
		}
		for _, decl := range f.file.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s: exported %s has no doc comment", fileSet.Position(name.Pos()), name.Name)
			}
		}
	}
}

// undocumented returns the exported names of a declaration that have no comment
// of their own and none of their group.
func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !implementsWellKnown(d.Name.Name) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		if d.Doc != nil {
			return nil
		}
		var names []*ast.Ident
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil {
					names = append(names, s.Name)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() && s.Doc == nil && s.Comment == nil {
						names = append(names, name)
					}
				}
			}
		}
		return names
	}
	return nil
}

// exportedReceiver reports whether d is a function or a method of an exported
// type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return true
		}
	}
}

// implementsWellKnown: the meaning of these methods is their interface's.
func implementsWellKnown(name string) bool {
	return slices.Contains([]string{"Error", "Unwrap", "String", "Is", "Len", "Less", "Swap", "Close", "Read", "Write", "MarshalText", "UnmarshalText"}, name)
}

// callsOf finds the calls receiver.name(…), by the receiver's name as written.
func callsOf(f sourceFile, receiver, name string) []token.Pos {
	var found []token.Pos
	ast.Inspect(f.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == receiver {
				found = append(found, call.Pos())
			}
		}
		return true
	})
	return found
}

func hasBuildTag(f sourceFile, tag string) bool {
	for _, group := range f.file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:build") && strings.Contains(c.Text, tag) {
				return true
			}
		}
	}
	return false
}
