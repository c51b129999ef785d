package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/hanbeon/hanbeon/internal/task"
)

// opener makes a store and reopens it after a close or a crash.
type opener struct {
	name string
	open func(t testing.TB) (s Store, reopen func(crash bool, random *rand.Rand) Store)
}

func openers() []opener {
	return []opener{
		{"memory", func(testing.TB) (Store, func(bool, *rand.Rand) Store) { return NewMemory(), nil }},
		{"pebble", func(t testing.TB) (Store, func(bool, *rand.Rand) Store) { return openCrashable(t, 4<<10) }},
		{"pebble without read cache", func(t testing.TB) (Store, func(bool, *rand.Rand) Store) { return openCrashable(t, -1) }},
	}
}

// openCrashable opens a store on a file system that can lose what was not synced.
func openCrashable(t testing.TB, readCacheBytes int) (Store, func(bool, *rand.Rand) Store) {
	disk := vfs.NewCrashableMem()
	var current Store
	open := func() Store {
		s, err := OpenPebble("state/0_1/counts", PebbleOptions{FS: disk, ReadCacheBytes: readCacheBytes, MemTableBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		current = s
		return s
	}
	return open(), func(crash bool, random *rand.Rand) Store {
		if crash {
			after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
			current.Close()
			disk = after
		} else if err := current.Close(); err != nil {
			t.Fatal(err)
		}
		return open()
	}
}

type modelRow struct {
	value       string
	timestampMs int64
}

// model is the naive store: every layer a map, every commit a copy.
type model struct {
	layers  []map[string]*modelRow // committed, sealed (when sealed), active; nil row: deleted
	history []map[string]modelRow  // committed states, by commit
	offsets []int64
	sealed  bool
}

func newModel() *model {
	return &model{layers: []map[string]*modelRow{{}, {}}}
}

func (m *model) view() map[string]modelRow {
	seen := map[string]modelRow{}
	for _, layer := range m.layers {
		for k, r := range layer {
			if r == nil {
				delete(seen, k)
			} else {
				seen[k] = *r
			}
		}
	}
	return seen
}

func (m *model) put(key string, r *modelRow) { m.layers[len(m.layers)-1][key] = r }

func (m *model) seal() {
	if !m.sealed {
		m.layers, m.sealed = append(m.layers, map[string]*modelRow{}), true
	}
}

func (m *model) commit(offset int64) {
	m.seal()
	for k, r := range m.layers[1] {
		m.layers[0][k] = r
		if r == nil {
			delete(m.layers[0], k)
		}
	}
	m.layers, m.sealed = []map[string]*modelRow{m.layers[0], m.layers[2]}, false
	m.remember(offset)
}

func (m *model) remember(offset int64) {
	state := map[string]modelRow{}
	for k, r := range m.layers[0] {
		state[k] = *r
	}
	m.history, m.offsets = append(m.history, state), append(m.offsets, offset)
}

func (m *model) rollback() {
	m.layers, m.sealed = []map[string]*modelRow{m.layers[0], {}}, false
}

// back returns to the newest commit that shows this state with this offset.
func (m *model) back(state map[string]modelRow, offset int64, known bool) bool {
	for i := len(m.history) - 1; i >= 0; i-- {
		if known && m.offsets[i] == offset && maps.Equal(m.history[i], state) {
			m.history, m.offsets = m.history[:i+1], m.offsets[:i+1]
			m.reset(state)
			return true
		}
	}
	if !known && len(state) == 0 {
		m.history, m.offsets = nil, nil
		m.reset(state)
		return true
	}
	return false
}

func (m *model) reset(state map[string]modelRow) {
	m.layers, m.sealed = []map[string]*modelRow{{}, {}}, false
	for k, r := range state {
		m.layers[0][k] = &r
	}
}

func contents(t rapid.TB, s Store, from, to []byte) ([]string, map[string]modelRow) {
	var keys []string
	rows := map[string]modelRow{}
	for e, err := range s.Range(from, to) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, string(e.Key))
		rows[string(e.Key)] = modelRow{string(e.Value), e.TimestampMs}
	}
	return keys, rows
}

// TestStoreBehavesLikeAModelThroughCommitsRollbacksAndCrashes drives each store and
// the model side by side. After a crash the store must show some earlier commit,
// with exactly that commit's offset.
func TestStoreBehavesLikeAModelThroughCommitsRollbacksAndCrashes(t *testing.T) {
	for _, o := range openers() {
		t.Run(o.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s, reopen := o.open(t)
				defer func() { s.Close() }()
				m := newModel()
				offset := int64(0)
				key := rapid.Custom(func(t *rapid.T) string {
					return rapid.SampledFrom([]string{"", "a", "b", "ba", "c", "\x00", "\xff", "\xff\xff", "long key that does not fit anywhere"}).Draw(t, "key")
				})
				must := func(err error) {
					if err != nil {
						rt.Fatal(err)
					}
				}
				rt.Repeat(map[string]func(*rapid.T){
					"put": func(rt *rapid.T) {
						k := key.Draw(rt, "key")
						v := rapid.StringN(0, 40, -1).Draw(rt, "value")
						ts := rapid.Int64Range(-1, 1<<40).Draw(rt, "ms")
						must(s.Put([]byte(k), []byte(v), ts))
						m.put(k, &modelRow{v, ts})
					},
					"delete": func(rt *rapid.T) {
						k := key.Draw(rt, "key")
						must(s.Delete([]byte(k)))
						m.put(k, nil)
					},
					"append to what Get returned": func(rt *rapid.T) {
						k := key.Draw(rt, "key")
						v, ts, ok, err := s.Get([]byte(k))
						must(err)
						if ok {
							must(s.Put([]byte(k), v[:len(v)/2], ts+1))
							m.put(k, &modelRow{string(v[:len(v)/2]), ts + 1})
						}
					},
					"get": func(rt *rapid.T) {
						k := key.Draw(rt, "key")
						v, ts, ok, err := s.Get([]byte(k))
						must(err)
						want, has := m.view()[k]
						if ok != has || ok && (v == nil || string(v) != want.value || ts != want.timestampMs) {
							rt.Fatalf("Get(%q) = %q, %d, %v; want %v, %v", k, v, ts, ok, want, has)
						}
					},
					"range": func(rt *rapid.T) {
						var from, to []byte
						if rapid.Bool().Draw(rt, "from") {
							from = []byte(key.Draw(rt, "from"))
						}
						if rapid.Bool().Draw(rt, "to") {
							to = []byte(key.Draw(rt, "to"))
						}
						keys, rows := contents(rt, s, from, to)
						want := m.view()
						maps.DeleteFunc(want, func(k string, _ modelRow) bool { return !within([]byte(k), from, to) })
						if !slices.Equal(keys, slices.Sorted(maps.Keys(want))) || !maps.Equal(rows, want) {
							rt.Fatalf("Range(%q, %q) = %v; want %v", from, to, rows, want)
						}
					},
					"seal": func(rt *rapid.T) {
						if m.sealed != (s.Seal() == ErrSealed) {
							rt.Fatal("Seal disagrees")
						}
						m.seal()
					},
					"commit": func(rt *rapid.T) {
						offset += rapid.Int64Range(0, 3).Draw(rt, "records")
						must(s.Commit(offset))
						m.commit(offset)
					},
					"rollback": func(*rapid.T) {
						s.Rollback()
						m.rollback()
					},
					"restore": func(rt *rapid.T) {
						s.Rollback()
						m.rollback()
						k := key.Draw(rt, "key")
						records := []task.Record{{Key: []byte(k), Value: []byte("1"), TimestampMs: 1}, {Key: []byte(k), Value: []byte("22"), TimestampMs: 2}, {Key: []byte("gone")}}
						offset += 3
						must(s.Restore(records, offset))
						m.layers[0][k] = &modelRow{"22", 2}
						m.remember(offset)
					},
					"wipe": func(rt *rapid.T) {
						if rapid.IntRange(0, 9).Draw(rt, "rarely") > 0 {
							return
						}
						must(s.Wipe())
						*m = *newModel()
						if _, known := s.Offset(); known {
							rt.Fatal("a wiped store has an offset")
						}
						// So that a crash cannot bring back what the model forgot.
						if reopen != nil {
							s = reopen(false, nil)
						}
					},
					"reopen": func(rt *rapid.T) {
						if reopen == nil {
							return
						}
						crash := rapid.Bool().Draw(rt, "crash")
						s = reopen(crash, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)))
						_, rows := contents(rt, s, nil, nil)
						at, known := s.Offset()
						commits := len(m.history)
						if !m.back(rows, at, known) {
							rt.Fatalf("reopened with offset %d (%v) and rows %v, which is no commit of %v", at, known, rows, m.offsets)
						}
						if !crash && len(m.history) != commits {
							rt.Fatal("a commit was lost by a clean close")
						}
					},
					"": func(*rapid.T) {
						if dirty := len(m.layers[1]) > 0 || m.sealed && len(m.layers[2]) > 0; s.Dirty() != dirty {
							rt.Fatalf("Dirty = %v, want %v", s.Dirty(), dirty)
						}
						if s.Dirty() != (s.UncommittedBytes() > 0) {
							rt.Fatalf("UncommittedBytes = %d, Dirty %v", s.UncommittedBytes(), s.Dirty())
						}
					},
				})
			})
		})
	}
}

// TestCommitsBeforeAPowerCutAreKeptInOrder makes many commits, larger than Pebble's
// memory, and cuts the power: what is left must be a prefix of the commits.
func TestCommitsBeforeAPowerCutAreKeptInOrder(t *testing.T) {
	for seed := range uint64(8) {
		s, reopen := openCrashable(t, 1<<10)
		value := bytes.Repeat([]byte("v"), 1000)
		const commits = 100
		for n := range int64(commits) {
			for key := range 5 {
				value = fmt.Appendf(value[:0], "%d %0*d", n, 1000, 0)
				if err := s.Put(fmt.Append(nil, key), value, n); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Commit(n * 5); err != nil {
				t.Fatal(err)
			}
		}
		s = reopen(true, rand.New(rand.NewPCG(seed, 2)))
		offset, known := s.Offset()
		rows := 0
		for e, err := range s.Range(nil, nil) {
			if err != nil {
				t.Fatal(err)
			}
			rows++
			if e.TimestampMs*5 != offset {
				t.Fatalf("row %s is of commit %d, the offset says %d", e.Key, e.TimestampMs, offset/5)
			}
		}
		if known && rows != 5 || !known && rows != 0 {
			t.Fatalf("offset %d (%v), %d rows", offset, known, rows)
		}
		s.Close()
	}
}

// TestChangesRebuildTheStore takes changes at any moment, some of them only in part,
// and replays what a transactional changelog would hold: it must be the store.
func TestChangesRebuildTheStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := NewMemory()
		s.TrackChanges()
		log := map[string]modelRow{} // committed, and then open
		committed := map[string]modelRow{}
		unlogged := map[string]bool{}
		key := rapid.SampledFrom([]string{"", "a", "b", "c"})
		take := func(max int) {
			for e := range s.Changes() {
				if max--; max < 0 {
					return
				}
				if !unlogged[string(e.Key)] {
					rt.Fatalf("%q was yielded twice", e.Key)
				}
				delete(unlogged, string(e.Key))
				delete(log, string(e.Key))
				if e.Value != nil {
					log[string(e.Key)] = modelRow{string(e.Value), e.TimestampMs}
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				k := key.Draw(rt, "key")
				if err := s.Put([]byte(k), []byte(rapid.StringN(0, 9, -1).Draw(rt, "value")), 1); err != nil {
					rt.Fatal(err)
				}
				unlogged[k] = true
			},
			"delete": func(rt *rapid.T) {
				k := key.Draw(rt, "key")
				if err := s.Delete([]byte(k)); err != nil {
					rt.Fatal(err)
				}
				unlogged[k] = true
			},
			"some changes": func(rt *rapid.T) { take(rapid.IntRange(0, 3).Draw(rt, "max")) },
			"commit too early": func(rt *rapid.T) {
				if len(unlogged) == 0 {
					return
				}
				if err := s.Commit(0); !errors.Is(err, ErrUnlogged) {
					rt.Fatalf("commit of unlogged changes: %v", err)
				}
				s.Rollback() // Commit has sealed
				log, unlogged = maps.Clone(committed), map[string]bool{}
			},
			"commit": func(rt *rapid.T) {
				if rapid.Bool().Draw(rt, "seal") {
					if err := s.Seal(); err != nil {
						rt.Fatal(err)
					}
				}
				take(1000)
				if err := s.Commit(0); err != nil {
					rt.Fatal(err)
				}
				committed = maps.Clone(log)
				if _, rows := contents(rt, s, nil, nil); !maps.Equal(rows, committed) {
					rt.Fatalf("the changelog gives %v, the store has %v", committed, rows)
				}
			},
			"rollback": func(*rapid.T) {
				s.Rollback()
				log, unlogged = maps.Clone(committed), map[string]bool{}
			},
			"": func(rt *rapid.T) {
				if (s.ChangedBytes() > 0) != (len(unlogged) > 0) {
					rt.Fatalf("ChangedBytes = %d, unlogged %v", s.ChangedBytes(), unlogged)
				}
			},
		})
	})
}
