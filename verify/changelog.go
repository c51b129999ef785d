package verify

// Change is one record of a changelog topic: the store now holds Count for
// Word, or nothing if Deleted (a tombstone).
type Change struct {
	Partition int32
	Offset    int64
	Word      string
	Count     int64
	Deleted   bool
}

// ChangelogChecker rebuilds what the stores hold from their changelog, the last
// value of each key, as a restore would. It keeps the partitions apart, because
// a store is one partition. Compaction of the topic does not change the result.
//
// Changes of one partition must be added in offset order.
type ChangelogChecker struct {
	stores  map[int32]Counts
	changes int64
}

// ChangelogResult is the content of the changelog against the independent count.
type ChangelogResult struct {
	Changes int64 `json:"changes"`
	Words   int   `json:"words"`
	Final   Diff  `json:"final"`
	// Shared is the number of words that stand in more than one partition's
	// store: two tasks both count them.
	Shared int `json:"shared"`
}

// NewChangelogChecker returns a checker that has seen nothing.
func NewChangelogChecker() *ChangelogChecker {
	return &ChangelogChecker{stores: make(map[int32]Counts)}
}

// Add takes the next change of a partition.
func (c *ChangelogChecker) Add(ch Change) {
	c.changes++
	store := c.stores[ch.Partition]
	if store == nil {
		store = make(Counts)
		c.stores[ch.Partition] = store
	}
	if ch.Deleted {
		delete(store, ch.Word)
		return
	}
	store[ch.Word] = ch.Count
}

// Result compares the rebuilt stores with the independent count.
func (c *ChangelogChecker) Result(want Counts) ChangelogResult {
	r := ChangelogResult{Changes: c.changes}
	all := make(Counts)
	for _, store := range c.stores {
		for word, n := range store {
			if _, shared := all[word]; shared {
				r.Shared++
			}
			all[word] += n
		}
	}
	r.Words = len(all)
	r.Final = Compare(want, all)
	return r
}

// ExactlyOnce reports whether the changelog holds exactly the wanted counts.
func (r ChangelogResult) ExactlyOnce() bool { return r.Final.Equal() && r.Shared == 0 }

// StoreContent is what a task's store on disk holds, read after its worker has
// stopped, with the changelog offset that it says it stands at.
type StoreContent struct {
	Owner     string // the worker whose state directory it is
	Partition int32
	// Offset is the first changelog offset that the store has not applied.
	Offset int64
	Counts Counts
}

// StoreDiff is one store that is not what its changelog says.
type StoreDiff struct {
	Owner     string `json:"owner"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Diff      Diff   `json:"diff"`
}

// StoreChecker checks the invariant that makes a restart cheap and safe: a store
// on disk is its committed changelog up to the offset stored with it. It never
// runs ahead of that offset, and never behind it.
//
// The changelog may have been compacted since a store was last written: then a
// word's change below the store's offset may be gone, but only because a later
// change of it came, and a count only grows. The store's count is then checked
// to be less than the later one.
type StoreChecker struct {
	stores []storeReplay
}

type storeReplay struct {
	content  StoreContent
	replayed Counts
	later    Counts // the first count of each word at or after the store's offset
}

// StoresResult lists the stores that were compared and those that differ.
type StoresResult struct {
	Stores    int         `json:"stores"`
	Different []StoreDiff `json:"different,omitempty"`
}

// NewStoreChecker returns a checker for the given stores.
func NewStoreChecker(stores []StoreContent) *StoreChecker {
	c := &StoreChecker{}
	for _, s := range stores {
		c.stores = append(c.stores, storeReplay{content: s, replayed: make(Counts), later: make(Counts)})
	}
	return c
}

// Add takes the next committed change of a changelog partition.
func (c *StoreChecker) Add(ch Change) {
	for i := range c.stores {
		s := &c.stores[i]
		switch {
		case s.content.Partition != ch.Partition:
		case ch.Offset >= s.content.Offset:
			if _, seen := s.later[ch.Word]; !seen {
				s.later[ch.Word] = ch.Count
			}
		case ch.Deleted:
			delete(s.replayed, ch.Word)
		default:
			s.replayed[ch.Word] = ch.Count
		}
	}
}

// expected is what the store must hold: the replay, and for words whose change
// was compacted away the store's own count where it can be right.
func (s storeReplay) expected() Counts {
	for word, count := range s.content.Counts {
		later, changedLater := s.later[word]
		if _, replayed := s.replayed[word]; !replayed && changedLater && count < later {
			s.replayed[word] = count
		}
	}
	return s.replayed
}

// Result compares each store with its changelog replayed up to its offset.
func (c *StoreChecker) Result() StoresResult {
	r := StoresResult{Stores: len(c.stores)}
	for _, s := range c.stores {
		if d := Compare(s.expected(), s.content.Counts); !d.Equal() {
			r.Different = append(r.Different, StoreDiff{
				Owner: s.content.Owner, Partition: s.content.Partition, Offset: s.content.Offset, Diff: d,
			})
		}
	}
	return r
}

// Equal reports whether every store is what its changelog says.
func (r StoresResult) Equal() bool { return len(r.Different) == 0 }
