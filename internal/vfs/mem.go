package vfs

import (
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// SectorBytes is the unit in which Mem tears unsynced writes.
const SectorBytes = 512

// Mem is a file system in memory that knows which bytes and which names were
// synced. The zero value is not ready; use NewMem.
type Mem struct {
	mu    sync.Mutex
	root  *memNode
	locks map[string]bool
	// pending are the changes of names not yet made durable, in order.
	pending []dirChange
}

// memNode is a file or a directory.
type memNode struct {
	isDir bool

	// Of a file: the bytes as read, the bytes as of the last sync, and the
	// sectors in which they may differ.
	data, durable []byte
	dirty         map[int64]struct{}

	// Of a directory: the names as seen, and as made durable.
	names, durableNames map[string]*memNode
}

// dirChange is one atomic change of names: a create, remove or rename.
type dirChange struct{ sets []nameSet }

// nameSet makes name in dir mean node; nil removes it.
type nameSet struct {
	dir  *memNode
	name string
	node *memNode
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{root: newMemDir(), locks: map[string]bool{}}
}

func newMemDir() *memNode {
	return &memNode{isDir: true, names: map[string]*memNode{}, durableNames: map[string]*memNode{}}
}

func pathErr(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func split(name string) []string {
	name = strings.Trim(path.Clean(filepath.ToSlash(name)), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// find returns the node of a name, or nil.
func (m *Mem) find(name string) *memNode {
	n := m.root
	for _, part := range split(name) {
		if n == nil || !n.isDir {
			return nil
		}
		n = n.names[part]
	}
	return n
}

// parent returns the directory that holds name, and the last element.
func (m *Mem) parent(op, name string) (*memNode, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", pathErr(op, name, fs.ErrInvalid)
	}
	dir := m.find(strings.Join(parts[:len(parts)-1], "/"))
	if dir == nil || !dir.isDir {
		return nil, "", pathErr(op, name, fs.ErrNotExist)
	}
	return dir, parts[len(parts)-1], nil
}

func (m *Mem) change(sets ...nameSet) {
	for _, s := range sets {
		if s.node == nil {
			delete(s.dir.names, s.name)
		} else {
			s.dir.names[s.name] = s.node
		}
	}
	m.pending = append(m.pending, dirChange{sets})
}

// OpenFile opens or creates a file.
func (m *Mem) OpenFile(name string, flag int) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("open", name)
	if err != nil {
		return nil, err
	}
	n := dir.names[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathErr("open", name, fs.ErrNotExist)
	case n == nil:
		n = &memNode{dirty: map[int64]struct{}{}}
		m.change(nameSet{dir, base, n})
	case n.isDir:
		return nil, pathErr("open", name, syscall.EISDIR)
	case flag&os.O_EXCL != 0 && flag&os.O_CREATE != 0:
		return nil, pathErr("open", name, fs.ErrExist)
	case flag&os.O_TRUNC != 0:
		n.resize(0)
	}
	return &memFile{m: m, n: n, name: name, writable: flag&os.O_RDWR != 0}, nil
}

// Rename moves a file or directory.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, fromBase, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, toBase, err := m.parent("rename", newName)
	if err != nil {
		return err
	}
	n := from.names[fromBase]
	if n == nil {
		return pathErr("rename", oldName, fs.ErrNotExist)
	}
	if old := to.names[toBase]; old != nil && old.isDir && len(old.names) > 0 {
		return pathErr("rename", newName, syscall.ENOTEMPTY)
	}
	m.change(nameSet{from, fromBase, nil}, nameSet{to, toBase, n})
	return nil
}

// Remove removes a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n := dir.names[base]
	if n == nil {
		return pathErr("remove", name, fs.ErrNotExist)
	}
	if n.isDir && len(n.names) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	m.change(nameSet{dir, base, nil})
	return nil
}

// RemoveAll removes a tree from its leaves up.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("removeall", name)
	if err != nil || dir.names[base] == nil {
		return nil
	}
	m.removeTree(dir, base)
	return nil
}

func (m *Mem) removeTree(dir *memNode, base string) {
	n := dir.names[base]
	for _, child := range sortedNames(n.names) {
		m.removeTree(n, child)
	}
	m.change(nameSet{dir, base, nil})
}

func sortedNames(names map[string]*memNode) []string {
	out := make([]string, 0, len(names))
	for name := range names {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// MkdirAll makes the missing directories of a path.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range split(name) {
		next := n.names[part]
		switch {
		case next == nil:
			next = newMemDir()
			m.change(nameSet{n, part, next})
		case !next.isDir:
			return pathErr("mkdir", name, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// List returns the names in a directory.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil || !n.isDir {
		return nil, pathErr("list", dir, fs.ErrNotExist)
	}
	return sortedNames(n.names), nil
}

// Stat describes a file or directory.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return Info{}, pathErr("stat", name, fs.ErrNotExist)
	}
	return Info{Size: int64(len(n.data)), IsDir: n.isDir}, nil
}

// SyncDir makes every change of a name in dir durable. A rename between two
// directories becomes durable as a whole with the first sync of either.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil || !n.isDir {
		return pathErr("syncdir", dir, fs.ErrNotExist)
	}
	kept := m.pending[:0]
	for _, c := range m.pending {
		if slices.ContainsFunc(c.sets, func(s nameSet) bool { return s.dir == n }) {
			c.apply()
		} else {
			kept = append(kept, c)
		}
	}
	m.pending = kept
	return nil
}

// apply makes the change durable.
func (c dirChange) apply() {
	for _, s := range c.sets {
		if s.node == nil {
			delete(s.dir.durableNames, s.name)
		} else {
			s.dir.durableNames[s.name] = s.node
		}
	}
}

type memLock struct {
	m    *Mem
	name string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.locks, l.name)
	})
	return nil
}

// Lock takes a lock that a crash clone does not inherit.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, err := m.parent("lock", name); err != nil {
		return nil, err
	}
	key := strings.Join(split(name), "/")
	if m.locks[key] {
		return nil, &LockedError{Name: name, Holder: "another owner of this in-memory file system"}
	}
	m.locks[key] = true
	return &memLock{m: m, name: key}, nil
}
