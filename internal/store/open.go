package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Shared is memory that all stores of a process share: one cache of blocks of table
// files, and one of open files. Close it after the stores.
type Shared struct {
	blocks *pebble.Cache
	files  *pebble.FileCache
}

// NewShared makes shared caches: blockCacheBytes of table blocks (0 means 64 MiB)
// and at most maxOpenFiles open table files (0 means 1,000).
func NewShared(blockCacheBytes int64, maxOpenFiles int) *Shared {
	if blockCacheBytes <= 0 {
		blockCacheBytes = 64 << 20
	}
	if maxOpenFiles <= 0 {
		maxOpenFiles = 1000
	}
	return &Shared{blocks: pebble.NewCache(blockCacheBytes), files: pebble.NewFileCache(4, maxOpenFiles)}
}

// Close gives up the caches; they go when the last store that uses them is closed.
func (s *Shared) Close() {
	s.files.Unref()
	s.blocks.Unref()
}

// OpenPebble opens the store in a directory of its own, and makes it where there is
// none. Errors: ErrLocked when it is open elsewhere, ErrForeign when the directory
// holds something else, ErrCorrupt when the store is damaged.
func OpenPebble(dir string, opts PebbleOptions) (s Store, err error) {
	filesystem := opts.FS
	if filesystem == nil {
		filesystem = vfs.Default
	}
	if err := filesystem.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open state store: %w", err)
	}
	if err := refuseForeignFiles(dir, filesystem); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, filesystem)
	if err != nil {
		// A lock file that cannot be made is no sign of another user.
		if path := (*fs.PathError)(nil); errors.Is(err, fs.ErrPermission) || errors.As(err, &path) {
			return nil, fmt.Errorf("open state store %s: %w", dir, err)
		}
		return nil, fmt.Errorf("%w: %s: %w; stop the other process, or give this one another state directory", ErrLocked, dir, err)
	}
	p := &pebbleBase{dir: dir, lock: lock, valueBuf: make([]byte, 0, 64)}
	if err := p.open(filesystem, opts); err != nil {
		if !p.damage.stuck.Load() {
			_ = lock.Close() // the first error says more
		}
		return nil, err
	}
	return newStore(p), nil
}

func (p *pebbleBase) open(filesystem vfs.FS, opts PebbleOptions) (err error) {
	shared := opts.Shared
	if shared == nil {
		shared = NewShared(8<<20, 100)
		p.shared = shared
	}
	defer func() {
		if r := recover(); r != nil {
			p.damage.stuck.Store(true)
			err = corrupt(p.dir, fmt.Errorf("%v", r))
		}
		if err != nil && p.shared != nil && !p.damage.stuck.Load() {
			p.shared.Close()
		}
	}()
	cacheBytes := opts.ReadCacheBytes
	if cacheBytes == 0 {
		cacheBytes = defaultReadCacheBytes
	}
	p.cache = newReadCache(max(cacheBytes, 0))
	disk := newFreezeFS(filesystem, &p.damage)
	p.db, err = pebble.Open(p.dir, p.pebbleOptions(disk, shared, opts))
	if err != nil {
		return p.openFailed(err)
	}
	if err := p.load(); err != nil {
		_ = p.db.Close() // the first error says more
		return err
	}
	disk.armed.Store(true)
	return nil
}

func (p *pebbleBase) pebbleOptions(filesystem vfs.FS, shared *Shared, opts PebbleOptions) *pebble.Options {
	memTableBytes := opts.MemTableBytes
	if memTableBytes <= 0 {
		memTableBytes = defaultMemTableBytes
	}
	po := &pebble.Options{
		FS:                 filesystem,
		Lock:               p.lock,
		Cache:              shared.blocks,
		FileCache:          shared.files,
		MemTableSize:       uint64(memTableBytes),
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             &pebbleLogger{log: opts.Logger, damage: &p.damage},
		EventListener:      &pebble.EventListener{DataCorruption: p.damaged},
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return po
}

// openFailed sorts the errors of opening: damage, a file system that refuses, and
// the rest, which is damage that Pebble does not mark, such as a missing file.
func (p *pebbleBase) openFailed(err error) error {
	var path *fs.PathError
	switch {
	case pebble.IsCorruptionError(err):
		return corrupt(p.dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return corrupt(p.dir, err)
	case errors.As(err, &path):
		return fmt.Errorf("open state store %s: %w", p.dir, err)
	}
	return corrupt(p.dir, err)
}

// load reads format version, offset and time, or marks an empty database as a store.
func (p *pebbleBase) load() error {
	format, err := p.meta(keyFormat)
	if err != nil {
		return err
	}
	if format == nil {
		return p.initialise()
	}
	version, ours := bytes.CutPrefix(format, []byte(formatMagic))
	if !ours || len(version) != 1 {
		return foreign(p.dir, "its format mark is "+fmt.Sprintf("%q", format))
	}
	if version[0] != formatVersion {
		return foreign(p.dir, fmt.Sprintf("it has format version %d, this program knows %d", version[0], formatVersion))
	}
	if p.changelog, p.known, err = p.number(keyOffset); err != nil {
		return err
	}
	p.caughtUpAt, _, err = p.number(keyTime)
	return err
}

// number reads one of the store's own numbers, which may be missing.
func (p *pebbleBase) number(key []byte) (n int64, ok bool, err error) {
	value, err := p.meta(key)
	if err != nil || value == nil {
		return 0, false, err
	}
	if len(value) != 8 {
		return 0, false, corrupt(p.dir, fmt.Errorf("its %s has %d bytes, not 8", key[1:], len(value)))
	}
	return int64(binary.BigEndian.Uint64(value)), true, nil
}

// initialise marks the database; a crash before may have left it empty.
func (p *pebbleBase) initialise() error {
	it, err := p.db.NewIter(nil)
	if err != nil {
		return p.failed("open", err)
	}
	inUse := it.First()
	if err := it.Close(); err != nil {
		return p.failed("open", err)
	}
	if inUse {
		return foreign(p.dir, "it is a Pebble database without a format mark")
	}
	if err := p.db.Set(keyFormat, append([]byte(formatMagic), formatVersion), pebble.Sync); err != nil {
		return p.failed("open", err)
	}
	return nil
}

func (p *pebbleBase) meta(key []byte) ([]byte, error) {
	value, closer, err := p.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, p.failed("open", err)
	}
	value = bytes.Clone(value)
	if err := closer.Close(); err != nil {
		return nil, p.failed("open", err)
	}
	return value, nil
}

// refuseForeignFiles keeps OpenPebble from making a store among other files. Names
// that Pebble uses pass: they may be a store that was not finished.
func refuseForeignFiles(dir string, filesystem vfs.FS) error {
	names, err := filesystem.List(dir)
	if err != nil {
		return fmt.Errorf("open state store: %w", err)
	}
	for _, name := range names {
		if !pebbleName(name) {
			return foreign(dir, "it holds "+name)
		}
	}
	return nil
}

func pebbleName(name string) bool {
	for _, prefix := range []string{"MANIFEST-", "OPTIONS-", "marker.", "LOCK", "CURRENT", "temporary."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{".log", ".sst", ".dbtmp", ".blob"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

func foreign(dir, what string) error {
	return fmt.Errorf("%w: %s: %s; give the store an empty directory", ErrForeign, dir, what)
}
