package verify

// Update is one record of the sink topic: word has now been seen Count times.
type Update struct {
	Partition int32
	Offset    int64
	Word      string
	Count     int64
}

// SinkChecker follows the updates of every word through the sink topic. A word
// count that processes each occurrence exactly once, with no cache in front of
// the sink, emits the counts 1, 2, …, n of a word in this order and each once.
// So a word counted twice or lost is seen even where a later update hides it
// from a reader who looks only at the last value.
//
// Updates of one partition must be added in offset order.
type SinkChecker struct {
	words   map[string]*wordHistory
	updates int64
	result  SinkResult
}

// wordHistory is what has been seen of one word.
type wordHistory struct {
	next      int64 // the count that must come next
	last      int64 // the last count read, what a reader of the topic ends with
	partition int32
}

// SinkResult is what a reader of the sink topic saw.
type SinkResult struct {
	// Updates is the number of records read, Words that of distinct words.
	Updates int64 `json:"updates"`
	Words   int   `json:"words"`
	// Final compares the last value of each word with the independent count.
	Final Diff `json:"final"`
	// Repeated is the number of updates whose count had been emitted before,
	// Skipped the number of counts that were never emitted in their turn.
	Repeated int64 `json:"repeated"`
	Skipped  int64 `json:"skipped"`
	// Moved is the number of updates that came on another partition than the
	// word's first one: the partitioner sent one key to two places.
	Moved int64 `json:"moved"`
	// FirstRepeated and FirstSkipped name one place each to look at.
	FirstRepeated *Update `json:"first_repeated,omitempty"`
	FirstSkipped  *Update `json:"first_skipped,omitempty"`
}

// NewSinkChecker returns a checker that has seen nothing.
func NewSinkChecker() *SinkChecker {
	return &SinkChecker{words: make(map[string]*wordHistory)}
}

// Add takes the next update of a partition.
func (s *SinkChecker) Add(u Update) {
	s.updates++
	h := s.words[u.Word]
	if h == nil {
		h = &wordHistory{next: 1, partition: u.Partition}
		s.words[u.Word] = h
	}
	if u.Partition != h.partition {
		s.result.Moved++
	}
	switch {
	case u.Count < h.next:
		s.result.Repeated++
		if s.result.FirstRepeated == nil {
			s.result.FirstRepeated = &u
		}
	case u.Count > h.next:
		s.result.Skipped += u.Count - h.next
		if s.result.FirstSkipped == nil {
			s.result.FirstSkipped = &u
		}
		h.next = u.Count + 1
	default:
		h.next++
	}
	h.last = u.Count
}

// Counts returns the last value of each word.
func (s *SinkChecker) Counts() Counts {
	counts := make(Counts, len(s.words))
	for word, h := range s.words {
		counts[word] = h.last
	}
	return counts
}

// Result compares what was added with the independent count.
func (s *SinkChecker) Result(want Counts) SinkResult {
	r := s.result
	r.Updates = s.updates
	r.Words = len(s.words)
	r.Final = Compare(want, s.Counts())
	return r
}

// ExactlyOnce reports whether every occurrence of every word was emitted once:
// nothing lost, nothing twice, not even for a moment.
func (r SinkResult) ExactlyOnce() bool {
	return r.Final.Equal() && r.Repeated == 0 && r.Skipped == 0 && r.Moved == 0
}

// IsolationResult compares what the two isolation levels show of one topic.
type IsolationResult struct {
	// CommittedRecords and UncommittedRecords are the records that a
	// read_committed and a read_uncommitted reader got, Aborted those that only
	// the latter got: work that was done, thrown away and done again.
	CommittedRecords   int64 `json:"committed_records"`
	UncommittedRecords int64 `json:"uncommitted_records"`
	Aborted            int64 `json:"aborted"`
	// Repeated is the number of updates that the read_uncommitted reader saw
	// again, beyond those that the read_committed reader did.
	Repeated int64 `json:"repeated"`
	// Hidden is the number of records that read_committed shows and
	// read_uncommitted does not, which no correct broker can produce.
	Hidden int64 `json:"hidden"`
}

// CompareIsolation compares the results of reading the same range of one topic
// at read_committed and at read_uncommitted.
func CompareIsolation(committed, uncommitted SinkResult) IsolationResult {
	return IsolationResult{
		CommittedRecords:   committed.Updates,
		UncommittedRecords: uncommitted.Updates,
		Aborted:            max(0, uncommitted.Updates-committed.Updates),
		Hidden:             max(0, committed.Updates-uncommitted.Updates),
		Repeated:           max(0, uncommitted.Repeated-committed.Repeated),
	}
}
