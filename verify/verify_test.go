package verify

import (
	"slices"
	"strings"
	"testing"
)

// history is a run of a correct word count, which the negative controls break.
type history struct {
	lines []string
	want  Counts
	sink  []Update
}

func correctHistory() history {
	h := history{lines: []string{"to be or not to be", "be that as it may", "may be"}}
	h.want = CountWords(slices.Values(h.lines))
	counts := make(Counts)
	offsets := make(map[int32]int64)
	for _, line := range h.lines {
		for word := range Words(line) {
			partition := int32(len(word) % 2)
			counts[word]++
			h.sink = append(h.sink, Update{Partition: partition, Offset: offsets[partition], Word: word, Count: counts[word]})
			offsets[partition]++
		}
	}
	return h
}

func sinkOf(updates []Update) *SinkChecker {
	c := NewSinkChecker()
	for _, u := range updates {
		c.Add(u)
	}
	return c
}

func TestWordsAreRunsOfLettersDigitsAndUnderscores(t *testing.T) {
	tests := []struct {
		line string
		want []string
	}{
		{"", nil},
		{"\t  ;{}", nil},
		{"func (c *Conn) Read_all(b []byte) int64", []string{"func", "c", "Conn", "Read_all", "b", "byte", "int64"}},
		{"한번만, exactly-once", []string{"한번만", "exactly", "once"}},
		{"broken\xff\xfeutf8", []string{"broken", "utf8"}},
	}
	for _, tt := range tests {
		if got := slices.Collect(Words(tt.line)); !slices.Equal(got, tt.want) {
			t.Errorf("Words(%q) = %q, want %q", tt.line, got, tt.want)
		}
	}
}

func TestWordsStopsWhenTheReaderStops(t *testing.T) {
	for word := range Words("one two three") {
		if word != "one" {
			t.Fatalf("got %q after the reader stopped", word)
		}
		break
	}
}

func TestCountWordsAgreesWithCountingInTheSimplestWay(t *testing.T) {
	h := correctHistory()
	naive := make(Counts)
	for _, word := range strings.Fields(strings.Join(h.lines, " ")) {
		naive[word]++
	}
	if d := Compare(naive, h.want); !d.Equal() || len(naive) != len(h.want) {
		t.Fatalf("CountWords differs from strings.Fields: %+v", d)
	}
	if got := h.want.Total(); got != 13 {
		t.Errorf("Total() = %d, want 13", got)
	}
}

func TestCompareDoesNotBalanceALossWithADuplicate(t *testing.T) {
	d := Compare(Counts{"a": 3, "b": 1, "c": 5}, Counts{"a": 4, "c": 4, "new": 2})
	want := Diff{Lost: 2, Twice: 3, LostWords: 2, TwiceWords: 2}
	if d.Lost != want.Lost || d.Twice != want.Twice || d.LostWords != want.LostWords || d.TwiceWords != want.TwiceWords {
		t.Errorf("Compare = %+v, want %+v", d, want)
	}
	if d.Examples[0] != (WordDiff{Word: "new", Got: 2}) {
		t.Errorf("worst example is %+v, want the word that is 2 off", d.Examples[0])
	}
}

func TestSinkCheckerAcceptsACorrectHistory(t *testing.T) {
	h := correctHistory()
	r := sinkOf(h.sink).Result(h.want)
	if !r.ExactlyOnce() || r.Updates != 13 || r.Words != len(h.want) {
		t.Fatalf("a correct history was refused: %+v", r)
	}
}

func TestSinkCheckerGoesRed(t *testing.T) {
	tests := []struct {
		name   string
		damage func(h history) []Update
		check  func(r SinkResult) bool
	}{
		{
			"when the last update of a word is lost",
			func(h history) []Update { return h.sink[:len(h.sink)-1] },
			func(r SinkResult) bool { return r.Final.Lost == 1 },
		},
		{
			"when a word is missing altogether",
			func(h history) []Update {
				return slices.DeleteFunc(h.sink, func(u Update) bool { return u.Word == "that" })
			},
			func(r SinkResult) bool { return r.Final.Lost == 1 && r.Final.LostWords == 1 },
		},
		{
			"when a word is counted once more",
			func(h history) []Update { return append(h.sink, Update{Word: "to", Count: 3}) },
			func(r SinkResult) bool { return r.Final.Twice == 1 },
		},
		{
			"when an update is emitted twice, which the last value hides",
			func(h history) []Update { return slices.Insert(h.sink, 2, h.sink[1]) },
			func(r SinkResult) bool { return r.Final.Equal() && r.Repeated == 1 },
		},
		{
			"when an update is missing, which the last value hides",
			func(h history) []Update { return slices.Delete(h.sink, 0, 1) },
			func(r SinkResult) bool { return r.Final.Equal() && r.Skipped == 1 },
		},
		{
			"when the state went back and the words were counted again",
			func(h history) []Update { return append(h.sink, h.sink[6:]...) },
			func(r SinkResult) bool { return r.Repeated == 7 },
		},
		{
			"when one word goes to two partitions",
			func(h history) []Update { h.sink[4].Partition = 7; return h.sink },
			func(r SinkResult) bool { return r.Final.Equal() && r.Moved == 1 },
		},
		{
			"when a word comes that was never in the text",
			func(h history) []Update { return append(h.sink, Update{Word: "ghost", Count: 1}) },
			func(r SinkResult) bool { return r.Final.Twice == 1 && r.Final.TwiceWords == 1 },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := correctHistory()
			r := sinkOf(tt.damage(h)).Result(h.want)
			if r.ExactlyOnce() {
				t.Errorf("the broken history passed: %+v", r)
			}
			if !tt.check(r) {
				t.Errorf("the fault was not named rightly: %+v", r)
			}
		})
	}
}

func TestCompareIsolationCountsAbortedRecords(t *testing.T) {
	h := correctHistory()
	committed := sinkOf(h.sink).Result(h.want)
	dirty := sinkOf(slices.Insert(slices.Clone(h.sink), 4, h.sink[2:4]...)).Result(h.want)
	r := CompareIsolation(committed, dirty)
	if r.Aborted != 2 || r.Repeated != 2 || r.Hidden != 0 {
		t.Errorf("CompareIsolation = %+v, want 2 aborted, 2 repeated", r)
	}
	if r := CompareIsolation(dirty, committed); r.Hidden != 2 {
		t.Errorf("records that only read_committed shows were not noticed: %+v", r)
	}
}

func TestLineChecker(t *testing.T) {
	tests := []struct {
		name    string
		numbers []int64
		want    LinesResult
	}{
		{"accepts each line once, in any order", []int64{2, 0, 1}, LinesResult{Fed: 3, Records: 3}},
		{"goes red when a line is lost", []int64{0, 2}, LinesResult{Fed: 3, Records: 2, Lost: 1}},
		{"goes red when a line is there three times", []int64{0, 1, 1, 1, 2}, LinesResult{Fed: 3, Records: 5, Twice: 2}},
		{"goes red on a line that was never fed", []int64{0, 1, 2, 3, -1}, LinesResult{Fed: 3, Records: 5, Unknown: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := NewLineChecker(3)
			for _, n := range tt.numbers {
				c.Add(n)
			}
			r := c.Result()
			if r != tt.want {
				t.Errorf("Result() = %+v, want %+v", r, tt.want)
			}
			if clean := tt.want.Lost+tt.want.Twice+tt.want.Unknown == 0; r.ExactlyOnce() != clean {
				t.Errorf("ExactlyOnce() = %v, want %v", r.ExactlyOnce(), clean)
			}
		})
	}
}

func changesOf(h history) []Change {
	var changes []Change
	for _, u := range h.sink {
		changes = append(changes, Change{Partition: u.Partition, Offset: u.Offset, Word: u.Word, Count: u.Count})
	}
	return changes
}

func TestChangelogChecker(t *testing.T) {
	tests := []struct {
		name  string
		edit  func(c []Change) []Change
		check func(r ChangelogResult) bool
	}{
		{"accepts a correct changelog", func(c []Change) []Change { return c }, ChangelogResult.ExactlyOnce},
		{"accepts a compacted changelog", compact, ChangelogResult.ExactlyOnce},
		{"goes red when the last change is lost", func(c []Change) []Change { return c[:len(c)-1] },
			func(r ChangelogResult) bool { return !r.ExactlyOnce() && r.Final.Lost == 1 }},
		{"goes red when a change is applied once more", func(c []Change) []Change {
			last := c[len(c)-1]
			last.Offset++
			last.Count++
			return append(c, last)
		}, func(r ChangelogResult) bool { return !r.ExactlyOnce() && r.Final.Twice == 1 }},
		{"goes red when a key is deleted", func(c []Change) []Change {
			return append(c, Change{Partition: c[0].Partition, Offset: 99, Word: c[0].Word, Deleted: true})
		}, func(r ChangelogResult) bool { return !r.ExactlyOnce() && r.Final.LostWords == 1 }},
		{"goes red when two stores hold one key", func(c []Change) []Change {
			return append(c, Change{Partition: 9, Word: c[0].Word, Count: 1})
		}, func(r ChangelogResult) bool { return !r.ExactlyOnce() && r.Shared == 1 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := correctHistory()
			c := NewChangelogChecker()
			for _, ch := range tt.edit(changesOf(h)) {
				c.Add(ch)
			}
			if r := c.Result(h.want); !tt.check(r) {
				t.Errorf("Result() = %+v", r)
			}
		})
	}
}

func compact(changes []Change) []Change {
	last := make(map[string]int)
	for i, c := range changes {
		last[c.Word] = i
	}
	var kept []Change
	for i, c := range changes {
		if last[c.Word] == i {
			kept = append(kept, c)
		}
	}
	return kept
}

func TestStoreCheckerComparesAStoreWithItsChangelogUpToItsOffset(t *testing.T) {
	changes := []Change{
		{Offset: 0, Word: "a", Count: 1},
		{Offset: 1, Word: "b", Count: 1},
		{Offset: 2, Word: "a", Count: 2},
		{Offset: 3, Word: "b", Deleted: true},
	}
	tests := []struct {
		name  string
		store StoreContent
		equal bool
	}{
		{"a store at the end", StoreContent{Offset: 4, Counts: Counts{"a": 2}}, true},
		{"a store that is behind, at its own offset", StoreContent{Offset: 2, Counts: Counts{"a": 1, "b": 1}}, true},
		{"an empty store at the start", StoreContent{Offset: 0}, true},
		{"a store that ran ahead of its offset", StoreContent{Offset: 2, Counts: Counts{"a": 2, "b": 1}}, false},
		{"a store that missed a change", StoreContent{Offset: 3, Counts: Counts{"a": 1, "b": 1}}, false},
		{"a store that missed a deletion", StoreContent{Offset: 4, Counts: Counts{"a": 2, "b": 1}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := NewStoreChecker([]StoreContent{tt.store, {Partition: 1}})
			for _, ch := range changes {
				c.Add(ch)
			}
			r := c.Result()
			if r.Stores != 2 || r.Equal() != tt.equal {
				t.Errorf("Result() = %+v, want equal %v", r, tt.equal)
			}
		})
	}
}

func TestStoreCheckerAllowsForCompactionButNotForMore(t *testing.T) {
	// The change a=1 at offset 0 was compacted away when a=3 came at offset 5.
	compacted := []Change{{Offset: 1, Word: "b", Count: 1}, {Offset: 5, Word: "a", Count: 3}}
	tests := []struct {
		name  string
		store Counts
		equal bool
	}{
		{"a store from before the compaction", Counts{"a": 1, "b": 1}, true},
		{"a store that ran ahead", Counts{"a": 3, "b": 1}, false},
		{"a store with a word that the changelog never had", Counts{"b": 1, "c": 1}, false},
		{"a store that missed a change that is still there", Counts{"a": 1}, false},
	}
	for _, tt := range tests {
		c := NewStoreChecker([]StoreContent{{Offset: 2, Counts: tt.store}})
		for _, ch := range compacted {
			c.Add(ch)
		}
		if r := c.Result(); r.Equal() != tt.equal {
			t.Errorf("%s: equal %v, want %v: %+v", tt.name, r.Equal(), tt.equal, r)
		}
	}
}

func TestCheckOffsets(t *testing.T) {
	tests := []struct {
		name          string
		progress      PartitionProgress
		behind, ahead int
	}{
		{"accepts the end", PartitionProgress{Committed: 10, End: 10}, 0, 0},
		{"accepts an empty partition without a commit", PartitionProgress{Committed: -1, End: 0}, 0, 0},
		{"accepts trailing transaction markers", PartitionProgress{Committed: 9, End: 10}, 0, 0},
		{"goes red when a record is unread", PartitionProgress{Committed: 9, End: 10, Unread: 1}, 1, 0},
		{"goes red when the commit is past the end", PartitionProgress{Committed: 11, End: 10}, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := CheckOffsets([]PartitionProgress{tt.progress, {Committed: 5, End: 5}})
			if len(r.Behind) != tt.behind || len(r.Ahead) != tt.ahead || r.AtEnd() != (tt.behind+tt.ahead == 0) {
				t.Errorf("CheckOffsets(%v) = %+v", tt.progress, r)
			}
		})
	}
}
