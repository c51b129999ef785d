package streamstest_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanbeon/hanbeon/streams"
	"github.com/hanbeon/hanbeon/streams/streamstest"
)

// fataled is a testing.TB that notes Fatal instead of failing the test.
type fataled struct {
	testing.TB
	text string
}

func (f *fataled) Helper() {}
func (f *fataled) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	runtime.Goexit()
}
func (f *fataled) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// fatal runs f and gives the text it ended the test with.
func fatal(t *testing.T, f func(tb testing.TB)) string {
	tb := &fataled{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(tb)
	}()
	<-done
	return tb.text
}

func upper(t testing.TB) *streams.Topology {
	b := streams.NewBuilder()
	s := streams.Stream[string, string](b, "in")
	streams.MapValues(s, strings.ToUpper).To("middle")
	streams.Count(streams.Stream[string, string](b, "middle").GroupByKey(), "counts").ToStream().To("out")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func TestTopicBetweenTwoPartsIsPassedOnAndCanBeRead(t *testing.T) {
	d := streamstest.New(t, upper(t))
	in := streamstest.Input[string, string](d, "in")
	in.Pipe("k", "a")
	in.Pipe("k", "b")
	if got := streamstest.Output[string, string](d, "middle").Lines(); !slices.Equal(got, []string{"k=A", "k=B"}) {
		t.Errorf("middle: %v", got)
	}
	if got := streamstest.Output[string, int64](d, "out").Lines(); !slices.Equal(got, []string{"k=1", "k=2"}) {
		t.Errorf("out: %v", got)
	}
}

func TestClockGivesTimestampsAndDoesNotGoBack(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d := streamstest.New(t, upper(t), streamstest.Options{StartTime: start})
	d.Advance(1500 * time.Millisecond)
	streamstest.Input[string, string](d, "in").Pipe("k", "v")
	rec, ok := streamstest.Output[string, int64](d, "out").Read()
	if want := start.Add(1500 * time.Millisecond); !ok || rec.TimestampMs != want.UnixMilli() || !d.Now().Equal(want) {
		t.Errorf("timestamp %d, clock %s", rec.TimestampMs, d.Now())
	}
	text := fatal(t, func(tb testing.TB) { streamstest.New(tb, upper(t)).Advance(-1) })
	if !strings.Contains(text, "does not go back") {
		t.Errorf("got %q", text)
	}
}

func TestMistakesInATestSayWhatThereIs(t *testing.T) {
	for want, f := range map[string]func(d *streamstest.Driver){
		`input topic "on": the topology reads in, middle`:        func(d *streamstest.Driver) { streamstest.Input[string, string](d, "on") },
		`the topology writes middle, out, test-counts-changelog`: func(d *streamstest.Driver) { streamstest.Output[string, string](d, "ouch") },
		`store "count": the topology has counts`:                 func(d *streamstest.Driver) { streamstest.Store[string, int64](d, "count") },
		`no serde is known for type []int`:                       func(d *streamstest.Driver) { streamstest.Input[string, []int](d, "in") },
		`not UTF-8`: func(d *streamstest.Driver) {
			streamstest.Input[string, []byte](d, "in").Pipe("k", []byte{0xff})
		},
		`output topic out: a 32-bit integer has 1 bytes`: func(d *streamstest.Driver) {
			streamstest.Input[string, string](d, "in").Pipe("k", "v")
			streamstest.Output[int32, int64](d, "out").Read()
		},
	} {
		text := fatal(t, func(tb testing.TB) { f(streamstest.New(tb, upper(t))) })
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q", text, want)
		}
	}
}
