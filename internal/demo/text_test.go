package demo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInputFolderIsReadInOrderWithoutBinaryAndHiddenFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.txt", "third\r\n\n   \nfourth")
	write(t, dir, "a/one.txt", "first\nsecond\n")
	write(t, dir, "c.bin", "zero\x00byte\n")
	write(t, dir, ".git/config", "hidden\n")
	got, err := loadText(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"first", "second", "third", "fourth"}; !slices.Equal(got.Lines, want) || !got.Whole {
		t.Errorf("loadText = %q, whole %v, want %q, whole", got.Lines, got.Whole, want)
	}
}

func TestInputFileIsReadEvenIfItLooksLikeNothingInParticular(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "notes", "only line")
	got, err := loadText(filepath.Join(dir, "notes"))
	if err != nil || len(got.Lines) != 1 {
		t.Fatalf("loadText = %q, %v", got.Lines, err)
	}
}

func TestLongLinesAreCutToWhatARecordCanHold(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "long.txt", strings.Repeat("x", 3*lineBytesMax)+"\n")
	got, err := loadText(dir)
	if err != nil || len(got.Lines) != 3 {
		t.Fatalf("%d lines, %v; want 3", len(got.Lines), err)
	}
}

func TestUnusableInputIsNamed(t *testing.T) {
	empty := t.TempDir()
	for _, input := range []string{empty, filepath.Join(empty, "missing")} {
		_, err := loadText(input)
		if err == nil || !strings.Contains(err.Error(), input) {
			t.Errorf("loadText(%s) = %v, want an error that names it", input, err)
		}
	}
}

func TestWithoutGoSourceTheSampleIsCounted(t *testing.T) {
	t.Setenv("GOROOT", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	got, err := loadText("")
	if err != nil || len(got.Lines) < 10 || !strings.Contains(got.Source, "sample") {
		t.Fatalf("loadText = %d lines of %s, %v", len(got.Lines), got.Source, err)
	}
}

func TestDefaultTextIsBounded(t *testing.T) {
	got, err := loadText("")
	if err != nil {
		t.Fatal(err)
	}
	if got.Bytes > defaultTextBytesMax {
		t.Errorf("the default text has %d bytes, more than %d", got.Bytes, defaultTextBytesMax)
	}
}
