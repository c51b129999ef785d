package broker

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// topicID is a topic's stable id (KIP-516); a recreated topic gets a new one.
type topicID [16]byte

// topicMeta is what the broker keeps of a topic. Values are immutable once
// published.
type topicMeta struct {
	Name    string
	ID      topicID
	LogIDs  []seglog.LogID // one per partition
	Configs map[string]string
}

// metadata is the broker's durable metadata: topics, and the counters that
// must never go back. Its file is written whole and replaced atomically; the
// changes are rare. docs/format/metadata.md has the bytes.
type metadata struct {
	ClusterID      string
	NextLogID      seglog.LogID
	NextProducerID batch.ProducerID
	Starts         int32 // how often the directory was opened; the coordinator epoch
	Topics         map[string]*topicMeta
}

const (
	metadataFile    = "metadata"
	metadataMagic   = "HBMD"
	metadataVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes magic, version, CRC-32C of the body, body.
func (m *metadata) encode() []byte {
	b := append(make([]byte, 0, 256), metadataMagic...)
	b = append(b, metadataVersion, 0, 0, 0, 0)
	b = appendString(b, m.ClusterID)
	b = binary.BigEndian.AppendUint32(b, uint32(m.NextLogID))
	b = binary.BigEndian.AppendUint64(b, uint64(m.NextProducerID))
	b = binary.BigEndian.AppendUint32(b, uint32(m.Starts))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Topics)))
	for _, name := range slices.Sorted(maps.Keys(m.Topics)) {
		t := m.Topics[name]
		b = appendString(b, t.Name)
		b = append(b, t.ID[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(t.LogIDs)))
		for _, id := range t.LogIDs {
			b = binary.BigEndian.AppendUint32(b, uint32(id))
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(t.Configs)))
		for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
			b = appendString(appendString(b, k), t.Configs[k])
		}
	}
	binary.BigEndian.PutUint32(b[5:], crc32.Checksum(b[9:], castagnoli))
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// metaReader reads the body; the first fault sticks. Counts and lengths are
// held against the bytes left before anything is allocated.
type metaReader struct {
	b   []byte
	bad bool
}

func (r *metaReader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *metaReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// count reads a count of things of at least size bytes each.
func (r *metaReader) count(size int) int {
	n := r.u32()
	if uint64(n)*uint64(size) > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *metaReader) str() string { return string(r.take(r.count(1))) }

func decodeMetadata(b []byte) (*metadata, error) {
	switch {
	case len(b) < 9 || string(b[:4]) != metadataMagic:
		return nil, errors.New("not a metadata file of hanbeon")
	case b[4] != metadataVersion:
		return nil, fmt.Errorf("format version %d, this program reads version %d", b[4], metadataVersion)
	case crc32.Checksum(b[9:], castagnoli) != binary.BigEndian.Uint32(b[5:]):
		return nil, fmt.Errorf("%w: checksum differs", seglog.ErrCorrupt)
	}
	r := &metaReader{b: b[9:]}
	m := &metadata{ClusterID: r.str(), NextLogID: seglog.LogID(r.u32()), Topics: map[string]*topicMeta{}}
	if pid := r.take(8); pid != nil {
		m.NextProducerID = batch.ProducerID(binary.BigEndian.Uint64(pid))
	}
	m.Starts = int32(r.u32())
	for n := r.count(28); n > 0 && !r.bad; n-- {
		t := &topicMeta{Name: r.str(), Configs: map[string]string{}}
		copy(t.ID[:], r.take(16))
		for p := r.count(4); p > 0; p-- {
			t.LogIDs = append(t.LogIDs, seglog.LogID(r.u32()))
		}
		for c := r.count(8); c > 0 && !r.bad; c-- {
			k := r.str()
			t.Configs[k] = r.str()
		}
		m.Topics[t.Name] = t
	}
	if r.bad || len(r.b) != 0 {
		return nil, fmt.Errorf("%w: contents do not match their lengths", seglog.ErrCorrupt)
	}
	return m, nil
}

// metaStore guards the metadata and its file.
type metaStore struct {
	fs  vfs.FS
	dir string

	mu  sync.Mutex
	cur *metadata
	err error // a failed write: the file's state is unknown, so no further one
}

func loadMetadata(fsys vfs.FS, dir string) (*metaStore, error) {
	s := &metaStore{fs: fsys, dir: dir}
	path := filepath.Join(dir, metadataFile)
	b, err := vfs.ReadFile(fsys, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.cur = &metadata{NextLogID: 1, Topics: map[string]*topicMeta{}}
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if s.cur, err = decodeMetadata(b); err != nil {
		return nil, fmt.Errorf("read %s: %w (restore the file from a backup, or start with an empty directory)", path, err)
	}
	return s, nil
}

// update changes a copy of the metadata, makes it durable, then publishes it.
func (s *metaStore) update(change func(*metadata) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	next := *s.cur
	next.Topics = maps.Clone(s.cur.Topics)
	if err := change(&next); err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, metadataFile), next.encode()); err != nil {
		s.err = fmt.Errorf("write metadata in %s: %w (restart the broker when the disk is well)", s.dir, err)
		return s.err
	}
	s.cur = &next
	return nil
}

// view is the current metadata; it must not be changed.
func (s *metaStore) view() *metadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur
}

// sortedTopics lists the topics by name.
func (m *metadata) sortedTopics() []*topicMeta {
	return slices.SortedFunc(maps.Values(m.Topics), func(a, b *topicMeta) int { return cmp.Compare(a.Name, b.Name) })
}
