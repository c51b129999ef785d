package verify

import (
	"cmp"
	"iter"
	"slices"
	"unicode"
	"unicode/utf8"
)

// examplesMax bounds how many words a Diff names, the worst first.
const examplesMax = 5

// Words yields the words of a line: the longest runs of letters, digits and
// underscores, as they are written. The words share the line's memory.
//
// It is the one definition of a word, used by the application under test and
// by the independent count: what is being checked is how often a word is
// counted, not what a word is.
func Words(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := -1
		for i := 0; i < len(line); {
			r, size := rune(line[i]), 1
			if r >= utf8.RuneSelf {
				r, size = utf8.DecodeRuneInString(line[i:])
			}
			switch {
			case isWordRune(r):
				if start < 0 {
					start = i
				}
			case start >= 0:
				if !yield(line[start:i]) {
					return
				}
				start = -1
			}
			i += size
		}
		if start >= 0 {
			yield(line[start:])
		}
	}
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// Counts says how often each word occurs.
type Counts map[string]int64

// CountWords is the independent count: the words of lines in plain Go, with no
// topic, store or transaction between the text and the result.
func CountWords(lines iter.Seq[string]) Counts {
	counts := make(Counts)
	for line := range lines {
		for word := range Words(line) {
			counts[word]++
		}
	}
	return counts
}

// Total is the number of words, each as often as it occurs.
func (c Counts) Total() int64 {
	var total int64
	for _, n := range c {
		total += n
	}
	return total
}

// Diff is how far counts are from what was wanted. Lost and Twice are in
// occurrences, LostWords and TwiceWords in distinct words.
type Diff struct {
	Lost       int64      `json:"lost"`
	Twice      int64      `json:"twice"`
	LostWords  int        `json:"lost_words"`
	TwiceWords int        `json:"twice_words"`
	Examples   []WordDiff `json:"examples,omitempty"`
}

// WordDiff is one word whose count is wrong.
type WordDiff struct {
	Word string `json:"word"`
	Want int64  `json:"want"`
	Got  int64  `json:"got"`
}

// Equal reports whether nothing was lost and nothing counted twice.
func (d Diff) Equal() bool { return d.Lost == 0 && d.Twice == 0 }

// Compare says what got has too little (lost) and too much (twice) of what is
// wanted. A word that was never in the text counts as twice. Too much of one
// word never makes up for too little of another.
func Compare(want, got Counts) Diff {
	var d Diff
	var wrong []WordDiff
	for word, n := range want {
		if g := got[word]; g != n {
			wrong = append(wrong, WordDiff{Word: word, Want: n, Got: g})
		}
	}
	for word, g := range got {
		if _, known := want[word]; !known && g != 0 {
			wrong = append(wrong, WordDiff{Word: word, Got: g})
		}
	}
	for _, w := range wrong {
		if w.Got < w.Want {
			d.Lost += w.Want - w.Got
			d.LostWords++
		} else {
			d.Twice += w.Got - w.Want
			d.TwiceWords++
		}
	}
	slices.SortFunc(wrong, func(a, b WordDiff) int {
		return cmp.Or(cmp.Compare(distance(b), distance(a)), cmp.Compare(a.Word, b.Word))
	})
	d.Examples = wrong[:min(len(wrong), examplesMax)]
	return d
}

func distance(w WordDiff) int64 { return max(w.Want-w.Got, w.Got-w.Want) }
