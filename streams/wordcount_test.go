package streams_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hanbeon/hanbeon/streams"
	"github.com/hanbeon/hanbeon/streams/streamstest"
)

func wordCount() *streams.Builder {
	b := streams.NewBuilder()
	lines := streams.Stream[string, string](b, "lines")
	words := streams.FlatMapValues(lines, strings.Fields)
	counts := streams.Count(streams.GroupBy(words, func(_, word string) string { return word }), "counts")
	counts.ToStream().To("counts-out")
	return b
}

func build(t testing.TB, b *streams.Builder) *streams.Topology {
	t.Helper()
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestWordCountCountsAcrossRepartition(t *testing.T) {
	d := streamstest.New(t, build(t, wordCount()))
	lines := streamstest.Input[string, string](d, "lines")
	counts := streamstest.Output[string, int64](d, "counts-out")

	lines.PipeValue("to be or not to be") // a record without key is counted too
	lines.Pipe("some key", "be")

	equal(t, "counts-out", counts.Lines(), "to=1", "be=1", "or=1", "not=1", "to=2", "be=2", "be=3")
	if n, ok := streamstest.Store[string, int64](d, "counts").Get("be"); n != 3 || !ok {
		t.Errorf("store holds be=%d (%v)", n, ok)
	}
	// The changelog gets each row once per commit, with its last value.
	equal(t, "changelog", streamstest.Output[string, int64](d, "test-counts-changelog").Lines(),
		"to=2", "be=2", "or=1", "not=1", "be=3")
	equal(t, "repartition topic", streamstest.Output[string, string](d, "test-counts-repartition").Lines()[:2], "to=to", "be=be")
}

// Kafka Streams 4 prints the same for its word count, but for the filter of null
// keys that our repartition sink has built in.
func TestDescribeWordCount(t *testing.T) {
	const want = `Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-FLATMAPVALUES-0000000001
    Processor: KSTREAM-FLATMAPVALUES-0000000001 (stores: [])
      --> KSTREAM-KEY-SELECT-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])
      --> KSTREAM-SINK-0000000004
      <-- KSTREAM-FLATMAPVALUES-0000000001
    Sink: KSTREAM-SINK-0000000004 (topic: counts-repartition)
      <-- KSTREAM-KEY-SELECT-0000000002

   Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000006 (topics: [counts-repartition])
      --> KSTREAM-AGGREGATE-0000000003
    Processor: KSTREAM-AGGREGATE-0000000003 (stores: [counts])
      --> KTABLE-TOSTREAM-0000000007
      <-- KSTREAM-SOURCE-0000000006
    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])
      --> KSTREAM-SINK-0000000008
      <-- KSTREAM-AGGREGATE-0000000003
    Sink: KSTREAM-SINK-0000000008 (topic: counts-out)
      <-- KTABLE-TOSTREAM-0000000007

`
	if got := build(t, wordCount()).Describe(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
