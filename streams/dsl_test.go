package streams_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/streams"
	"github.com/hanbeon/hanbeon/streams/serde"
	"github.com/hanbeon/hanbeon/streams/streamstest"
)

// run pipes "key=value" lines (key alone: a tombstone, "=value": without key) through a
// topology from topic "in" of text, and gives what came out of topic "out".
func run[K, V any](t *testing.T, b *streams.Builder, in []string, serdes ...streamstest.Serdes[K, V]) []string {
	t.Helper()
	d := streamstest.New(t, build(t, b))
	input := streamstest.Input[string, string](d, "in")
	for _, line := range in {
		key, value, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			input.PipeTombstone(key)
		case key == "":
			input.PipeValue(value)
		default:
			input.Pipe(key, value)
		}
	}
	return streamstest.Output(d, "out", serdes...).Lines()
}

func text(b *streams.Builder) *streams.KStream[string, string] {
	return streams.Stream[string, string](b, "in")
}

func TestStatelessOperators(t *testing.T) {
	in := []string{"a=1", "b=22", "=333", "c"}
	long := func(_, v string) bool { return len(v) > 1 }
	for _, c := range []struct {
		name string
		to   func(s *streams.KStream[string, string])
		want []string
	}{
		{"To", func(s *streams.KStream[string, string]) { s.To("out") }, []string{"a=1", "b=22", "null=333", "c=null"}},
		{"Filter", func(s *streams.KStream[string, string]) { s.Filter(long).To("out") }, []string{"b=22", "null=333", "c=null"}},
		{"FilterNot", func(s *streams.KStream[string, string]) { s.FilterNot(long).To("out") }, []string{"a=1", "c=null"}},
		{"MapValues", func(s *streams.KStream[string, string]) {
			streams.MapValues(s, func(v string) string { return v + "!" }).To("out")
		}, []string{"a=1!", "b=22!", "null=333!", "c=null"}},
		{"FlatMapValues", func(s *streams.KStream[string, string]) {
			streams.FlatMapValues(s, func(v string) []string { return strings.Split(v, "") }).To("out")
		}, []string{"a=1", "b=2", "b=2", "null=3", "null=3", "null=3"}},
		{"SelectKey", func(s *streams.KStream[string, string]) {
			streams.SelectKey(s, func(k, v string) string { return k + v }).To("out")
		}, []string{"a1=1", "b22=22", "333=333"}},
		{"Map", func(s *streams.KStream[string, string]) {
			streams.Map(s, func(k, v string) (string, string) { return v, k }).To("out")
		}, []string{"1=a", "22=b", "333="}},
		{"FlatMap", func(s *streams.KStream[string, string]) {
			streams.FlatMap(s, func(k, v string) []streams.KeyValue[string, string] {
				return []streams.KeyValue[string, string]{{Key: v, Value: k}, {Key: k, Value: v}}
			}).To("out")
		}, []string{"1=a", "a=1", "22=b", "b=22", "333=", "=333"}},
		{"Repartition", func(s *streams.KStream[string, string]) { s.Repartition().To("out") }, []string{"a=1", "b=22", "null=333", "c=null"}},
		{"Merge", func(s *streams.KStream[string, string]) { s.Filter(long).Merge(s.FilterNot(long)).To("out") },
			[]string{"a=1", "b=22", "null=333", "c=null", "c=null"}},
		{"two children see the same record", func(s *streams.KStream[string, string]) {
			streams.SelectKey(s, func(_, v string) string { return v }).To("out")
			s.To("out")
		}, []string{"1=1", "a=1", "22=22", "b=22", "333=333", "null=333", "c=null"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := streams.NewBuilder()
			c.to(text(b))
			equal(t, "out", run[string, string](t, b, in), c.want...)
		})
	}
}

func TestPeekAndForEachSeeEachValueOnce(t *testing.T) {
	b := streams.NewBuilder()
	var seen []string
	text(b).Peek(func(k, v string) { seen = append(seen, "peek "+k+v) }).ForEach(func(k, v string) { seen = append(seen, "each "+k+v) })
	text2 := streams.Stream[string, string](b, "unused")
	text2.To("out")
	run[string, string](t, b, []string{"a=1", "b", "=2"})
	equal(t, "seen", seen, "peek a1", "each a1", "peek 2", "each 2")
}

func TestBranchSendsEachRecordToOneBranch(t *testing.T) {
	b := streams.NewBuilder()
	starts := func(p string) func(string, string) bool {
		return func(_, v string) bool { return strings.HasPrefix(v, p) }
	}
	for i, branch := range text(b).Branch(starts("a"), starts("ab"), starts("b")) {
		streams.MapValues(branch, func(v string) string { return fmt.Sprint(v, i) }).To("out")
	}
	equal(t, "out", run[string, string](t, b, []string{"k=ab", "k=b", "k=c"}), "k=ab0", "k=b2", "k=c3")
}

func TestReduceKeepsFirstValueAndJoinsTheRest(t *testing.T) {
	b := streams.NewBuilder()
	text(b).GroupByKey().Reduce("joined", func(a, v string) string { return a + "+" + v }).ToStream().To("out")
	equal(t, "out", run[string, string](t, b, []string{"a=1", "b=9", "a=2", "=8", "a", "a=3"}), "a=1", "b=9", "a=1+2", "a=1+2+3")
}

type basket struct {
	Items []string
	Total int
}

func TestAggregateWithJSON(t *testing.T) {
	b := streams.NewBuilder()
	baskets := streams.Aggregate(text(b).GroupByKey(), "baskets", func() basket { return basket{} },
		func(_, item string, ba basket) basket {
			ba.Items, ba.Total = append(ba.Items, item), ba.Total+len(item)
			return ba
		}, streams.Materialized[string, basket]{Value: serde.JSON[basket]()})
	baskets.ToStream().To("out")
	got := run(t, b, []string{"ann=pear", "bob=fig", "ann=kiwi"}, streamstest.Serdes[string, basket]{Value: serde.JSON[basket]()})
	equal(t, "out", got, "ann={[pear] 4}", "bob={[fig] 3}", "ann={[pear kiwi] 8}")
}

// A fold that changes its aggregate in place must not change the old value that the
// filter behind it compares with.
func TestTableFilterSeesTheOldAggregateThoughFoldChangesItInPlace(t *testing.T) {
	b := streams.NewBuilder()
	sets := streams.Aggregate(text(b).GroupByKey(), "sets", func() map[string]bool { return map[string]bool{} },
		func(_, v string, set map[string]bool) map[string]bool { set[v] = true; return set },
		streams.Materialized[string, map[string]bool]{Value: serde.JSON[map[string]bool]()})
	small := sets.Filter(func(_ string, set map[string]bool) bool { return len(set) < 2 })
	streams.MapTable(small, func(set map[string]bool) int { return len(set) }).ToStream().To("out")
	equal(t, "out", run[string, int](t, b, []string{"a=x", "a=x", "a=y", "a=z"}), "a=1", "a=1", "a=null")
}

func TestTableUpdatesDeletesAndFilters(t *testing.T) {
	b := streams.NewBuilder()
	table := streams.Table[string, string](b, "in", "names")
	lengths := streams.MapTable(table, func(v string) int { return len(v) })
	lengths.Filter(func(_ string, n int) bool { return n > 2 }).ToStream().To("out")
	d := streamstest.New(t, build(t, b))
	in := streamstest.Input[string, string](d, "in")
	out := streamstest.Output[string, int](d, "out")
	names := streamstest.Store[string, string](d, "names")

	in.Pipe("a", "xy") // never matches: no tombstone
	in.Pipe("a", "xyz")
	in.Pipe("a", "x") // stops to match
	in.Pipe("b", "long")
	in.PipeTombstone("b")
	in.PipeTombstone("never there")
	in.PipeValue("without key")
	equal(t, "out", out.Lines(), "a=3", "a=null", "b=4", "b=null")
	equal(t, "changelog", streamstest.Output[string, string](d, "test-names-changelog").Lines(), "a=xy", "a=xyz", "a=x", "b=long", "b=null")
	for k, v := range names.All() {
		if k != "a" || v != "x" {
			t.Errorf("store holds %s=%s", k, v)
		}
	}
}

// As Kafka Streams does: the result carries the largest timestamp of its inputs.
func TestAggregateTimestampIsLargestOfItsRecords(t *testing.T) {
	b := streams.NewBuilder()
	streams.Count(text(b).GroupByKey(), "counts").ToStream().To("out")
	text := streamstest.New(t, build(t, b), streamstest.Options{StartTime: time.UnixMilli(1000)})
	in := streamstest.Input[string, string](text, "in")
	in.Pipe("a", "")
	in.PipeAt(500, "a", "")
	text.Advance(time.Second)
	in.Pipe("a", "")
	var got []string
	for _, r := range streamstest.Output[string, int64](text, "out").ReadAll() {
		got = append(got, strconv.FormatInt(r.TimestampMs, 10))
	}
	equal(t, "timestamps", got, "1000", "1000", "2000")
}

func TestTablesOfOneGroupShareTheRepartitionTopic(t *testing.T) {
	b := streams.NewBuilder()
	g := streams.GroupBy(text(b), func(_, v string) string { return v })
	streams.Count(g, "first").ToStream().To("out")
	streams.Count(g, "second").ToStream().To("out")
	topology := build(t, b).Compiled().ForApplication("app")
	if got := strings.Join(topology.SourceTopics(), " "); got != "app-first-repartition in" {
		t.Errorf("source topics: %s", got)
	}
	equal(t, "out", run[string, int64](t, b, []string{"=x", "=x"}), "x=1", "x=1", "x=2", "x=2")
}

func TestGroupByKeyRepartitionsOnlyAfterAKeyChange(t *testing.T) {
	b := streams.NewBuilder()
	s := text(b)
	streams.Count(s.GroupByKey(), "plain").ToStream().To("out")
	streams.Count(streams.SelectKey(s, func(_, v string) string { return v }).GroupByKey(streams.Grouped[string, string]{Name: "named"}), "changed").ToStream().To("out")
	topology := build(t, b).Compiled().ForApplication("app")
	if got := strings.Join(topology.SourceTopics(), " "); got != "app-named-repartition in" {
		t.Errorf("source topics: %s", got)
	}
}

func TestNullableHandsNullToFunctions(t *testing.T) {
	b := streams.NewBuilder()
	nullable := serde.Nullable(serde.String())
	s := streams.Stream(b, "in", streams.Consumed[string, *string]{Value: nullable})
	streams.MapValues(s, func(v *string) *string {
		if v == nil {
			was := "was null"
			return &was
		}
		return nil
	}).To("out", streams.Produced[string, *string]{Value: nullable})
	equal(t, "out", run[string, string](t, b, []string{"a=1", "b"}), "a=null", "b=was null")
}

func TestTablesLeaveOutKeysWrittenAsNull(t *testing.T) {
	b := streams.NewBuilder()
	nullable := serde.Nullable(serde.String())
	pick := func(_, v string) *string {
		if v == "none" {
			return nil
		}
		return &v
	}
	byKey := streams.GroupBy(text(b), pick, streams.Grouped[*string, string]{Key: nullable})
	streams.Count(byKey, "repartitioned").ToStream().To("out")
	s := streams.Stream(b, "nullable", streams.Consumed[*string, string]{Key: nullable})
	streams.Count(s.GroupByKey(), "direct").ToStream().To("out")
	s.ToTable("table").ToStream().To("out")

	d := streamstest.New(t, build(t, b))
	in := streamstest.Input[string, string](d, "in")
	direct := streamstest.Input[string, string](d, "nullable")
	in.Pipe("k", "none")
	in.Pipe("k", "")
	direct.PipeValue("without key")
	direct.Pipe("", "empty key")
	equal(t, "out", streamstest.Output[string, string](d, "out").Lines(), "=\x00\x00\x00\x00\x00\x00\x00\x01", "=\x00\x00\x00\x00\x00\x00\x00\x01", "=empty key")
}

func TestHeadersTravelWithTheRecord(t *testing.T) {
	b := streams.NewBuilder()
	text(b).Repartition().To("out")
	topology := build(t, b).Compiled()
	var got []string
	c := collectorFunc(func(topic string, headers []task.Header) { got = append(got, topic+" "+headers[0].Key) })
	tk, err := task.New(topology.Subtopologies[0], 0, task.Deps{Collector: c})
	if err != nil {
		t.Fatal(err)
	}
	if err := tk.Enqueue("in", []task.Record{{Key: []byte("k"), Value: []byte("v"), Headers: []task.Header{{Key: "trace"}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := tk.Process(1); err != nil {
		t.Fatal(err)
	}
	equal(t, "headers", got, "KSTREAM-REPARTITION-0000000001-repartition trace")
}

type collectorFunc func(topic string, headers []task.Header)

func (f collectorFunc) Send(topic string, _ int32, _, _ []byte, headers []task.Header, _ int64) error {
	f(topic, headers)
	return nil
}
func (f collectorFunc) PartitionCount(string) int32 { return 3 }

func TestPartitionerOutsideTheTopicIsAnError(t *testing.T) {
	b := streams.NewBuilder()
	text(b).To("out", streams.Produced[string, string]{Partitioner: func(string, string, int32) int32 { return 7 }})
	d := streamstest.New(t, build(t, b))
	err := streamstest.Input[string, string](d, "in").TryPipeAt(0, "a", "b")
	if err == nil || !strings.Contains(err.Error(), "the partitioner chose 7 of 1 partitions") {
		t.Errorf("got %v", err)
	}
}

func TestRecordThatCannotBeDecodedNamesItsPlace(t *testing.T) {
	b := streams.NewBuilder()
	streams.Stream[string, int64](b, "in").To("out")
	d := streamstest.New(t, build(t, b))
	in := streamstest.Input[string, int64](d, "in")
	in.Pipe("fine", 1)
	err := in.TryPipeBytes([]byte("k"), []byte("three"))
	var re *task.RecordError
	if !errors.As(err, &re) || re.Stage != task.StageDecode || re.Topic != "in" || re.Offset != 1 || !re.Poison() {
		t.Fatalf("got %#v", err)
	}
	const want = "task 0_0: record in/0 offset 1: decode at KSTREAM-SOURCE-0000000000: value: a 64-bit integer has 5 bytes, not 8; the data was written with another serde"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	in.Pipe("fine", 2)
	equal(t, "out", streamstest.Output[string, int64](d, "out").Lines(), "fine=1", "fine=2")
}

func TestPanicOfAUserFunctionIsAnErrorOfItsRecord(t *testing.T) {
	b := streams.NewBuilder()
	streams.MapValues(text(b), func(v string) string { return v[:3] }).To("out")
	d := streamstest.New(t, build(t, b))
	err := streamstest.Input[string, string](d, "in").TryPipeAt(0, "k", "v")
	var re *task.RecordError
	if !errors.As(err, &re) || re.Stage != task.StageProcess || !strings.Contains(err.Error(), "slice bounds out of range") {
		t.Errorf("got %v", err)
	}
}

func TestBuildReportsEveryMistakeWithItsRemedy(t *testing.T) {
	b := streams.NewBuilder()
	s := streams.Stream[string, basket](b, "in")
	streams.Stream(b, "in", streams.Consumed[string, string]{})
	other := text(streams.NewBuilder())
	strs := streams.MapValues[string, basket, string](s, nil)
	strs.Merge(other)
	streams.Count(strs.GroupByKey(), "same").ToStream(streams.Named("twice")).To("bad topic")
	strs.GroupByKey().Reduce("same", func(a, _ string) string { return a }).ToStream(streams.Named("twice"))
	strs.Repartition(streams.Repartitioned[string, string]{Name: "r", Partitions: -1})
	_, err := b.Build()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"KSTREAM-SOURCE-0000000000: no serde is known for its value type streams_test.basket: pass one in the operator's options, such as serde.JSON[streams_test.basket]()",
		`KSTREAM-SOURCE-0000000001: topic "in" is already read by KSTREAM-SOURCE-0000000000: use that stream twice instead`,
		"KSTREAM-MAPVALUES-0000000002: its function is nil",
		"KSTREAM-MERGE-0000000003: the streams come from two builders: use one",
		`topic "bad topic": use letters, digits, '.', '_' and '-' only`,
		`store "same" already belongs to KSTREAM-AGGREGATE-0000000004: give it another name`,
		"twice: the name is taken: give each operator its own",
		"-1 partitions: give 1 or more, or 0 for as many as upstream",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in\n%v", want, err)
		}
	}
	if _, err := streams.NewBuilder().Build(); err == nil || !strings.Contains(err.Error(), "reads no topic") {
		t.Errorf("empty builder: %v", err)
	}
}
