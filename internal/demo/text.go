package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// defaultTextBytesMax bounds how much of the Go toolchain's source is read.
	defaultTextBytesMax = 20 << 20
	// inputBytesMax bounds the text of --input, which is held in memory for the
	// independent count.
	inputBytesMax = 512 << 20
	// lineBytesMax is where a longer line is cut: a record must stay well below
	// the 1 MiB that brokers accept by default.
	lineBytesMax = 64 << 10
)

//go:embed sample.txt
var sampleText string

// text is what a run counts.
type text struct {
	Source string // where it is from, for people
	Lines  []string
	Bytes  int64
	// Whole says that all of it must be fed, however long that takes. The
	// default text is as long as one wants it to be: it is cut when the time is up.
	Whole bool
}

// loadText reads the file or folder input, or, where input is empty, the source
// text of the Go toolchain found on this machine, or else a built-in sample.
func loadText(input string) (text, error) {
	if input != "" {
		t, complete, err := readText(input, func(string) bool { return true }, inputBytesMax)
		switch {
		case err != nil:
			return text{}, fmt.Errorf("reading the text of --input: %w", err)
		case !complete:
			return text{}, fmt.Errorf("--input %s holds more than %d MiB, which the independent count keeps in memory; name a part of it", input, inputBytesMax>>20)
		case len(t.Lines) == 0:
			return text{}, fmt.Errorf("--input %s holds no line of text; name a file or folder with text in it", input)
		}
		t.Source, t.Whole = input, true
		return t, nil
	}
	for _, root := range goRoots() {
		dir := filepath.Join(root, "src")
		isGo := func(path string) bool { return strings.HasSuffix(path, ".go") }
		if t, _, err := readText(dir, isGo, defaultTextBytesMax); err == nil && len(t.Lines) > 1000 {
			t.Source = "the Go source text in " + dir
			return t, nil
		}
	}
	t := text{Source: "the built-in sample", Whole: true}
	t.add([]byte(sampleText))
	return t, nil
}

// goRoots lists where the Go toolchain may be, the likeliest first.
func goRoots() []string {
	var roots []string
	if root := os.Getenv("GOROOT"); root != "" {
		roots = append(roots, root)
	}
	if goCommand, err := exec.LookPath("go"); err == nil {
		if out, err := exec.Command(goCommand, "env", "GOROOT").Output(); err == nil {
			roots = append(roots, strings.TrimSpace(string(out)))
		}
	}
	return roots
}

// readText reads the files under path that wanted accepts, in lexical order, as
// long as they fit in bytesMax; complete says that none was left out for its
// size. Files that hold a zero byte are taken for binary and left out.
func readText(path string, wanted func(path string) bool, bytesMax int64) (t text, complete bool, err error) {
	complete = true
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != path && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		info, err := os.Stat(file) // follows a link that --input names
		if err != nil || !info.Mode().IsRegular() || (file != path && !wanted(file)) {
			return err
		}
		if info.Size() > bytesMax-t.Bytes {
			complete = false
			return fs.SkipAll
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.IndexByte(content, 0) < 0 {
			t.add(content)
		}
		return nil
	})
	return t, complete, err
}

// add appends the lines of content that are not blank.
func (t *text) add(content []byte) {
	t.Bytes += int64(len(content))
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\r\n")
		for len(line) > lineBytesMax {
			t.Lines = append(t.Lines, line[:lineBytesMax])
			line = line[lineBytesMax:]
		}
		if strings.TrimSpace(line) != "" {
			t.Lines = append(t.Lines, line)
		}
	}
}
