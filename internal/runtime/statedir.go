package runtime

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// ErrStateDirInUse says that another process, or another App of this process,
// uses the state directory.
var ErrStateDirInUse = errors.New("state directory is in use")

// stateDir is the directory of one instance of an application:
//
//	<StateDir>/<application>/lock       held while the App runs
//	<StateDir>/<application>/instance   the instance id
//	<StateDir>/<application>/<task>/<store>/...
//
// The instance id lives here so that a restarted process takes the same
// transactional ids and thereby fences its predecessor at once.
type stateDir struct {
	fs       vfs.FS
	dir      string
	lock     io.Closer
	instance string
}

// openStateDir locks the directory and finds or makes the instance id; a
// given id is used as it is.
func openStateDir(fs vfs.FS, root, application, instance string) (*stateDir, error) {
	dir := filepath.Join(root, application)
	if err := fs.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("create state directory %s: %w", dir, err)
	}
	lock, err := fs.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s: %w; give each process its own StateDir", ErrStateDirInUse, dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock state directory %s: %w", dir, err)
	}
	s := &stateDir{fs: fs, dir: dir, lock: lock, instance: instance}
	if instance == "" {
		if s.instance, err = s.loadInstance(); err != nil {
			lock.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *stateDir) loadInstance() (string, error) {
	name := filepath.Join(s.dir, "instance")
	data, err := vfs.ReadFile(s.fs, name)
	if err == nil {
		id := strings.TrimSpace(string(data))
		if id == "" || len(id) > 128 {
			return "", fmt.Errorf("instance id file %s holds no id; remove it, and a new id is made", name)
		}
		return id, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read instance id: %w", err)
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("make an instance id: %w", err)
	}
	id := hex.EncodeToString(random[:])
	if err := vfs.WriteFileAtomic(s.fs, name, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("write instance id %s: %w", name, err)
	}
	return id, nil
}

// storeDir is where a store of a task lies.
func (s *stateDir) storeDir(id task.ID, store string) string {
	return filepath.Join(s.dir, id.String(), store)
}

// prepareTask makes the directory of a task.
func (s *stateDir) prepareTask(id task.ID) error {
	dir := filepath.Join(s.dir, id.String())
	if err := s.fs.MkdirAll(dir); err != nil {
		return fmt.Errorf("create directory of task %s: %w", id, err)
	}
	return nil
}

// tasks lists the tasks that have a directory, in order. A directory that
// cannot be listed counts as empty: the list is only a preference.
func (s *stateDir) tasks() []task.ID {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil
	}
	var ids []task.ID
	for _, name := range names {
		if id, err := task.ParseID(name); err == nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, task.ID.Compare)
	return ids
}

func (s *stateDir) close() error { return s.lock.Close() }
