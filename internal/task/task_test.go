package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// testTask reads the topics and records what its sources got, as "topic@offset".
func testTask(t rapid.TB, fail func(topic string, rec *Record) error, topics ...string) (*Task, *[]string) {
	t.Helper()
	var got []string
	sub := &Subtopology{ID: 3}
	for _, topic := range topics {
		sub.Sources = append(sub.Sources, Source{Topic: topic})
	}
	sub.Build = func(a *Assembly) error {
		for i, topic := range topics {
			a.Source(i, func(rec *Record, _ *Context) error {
				if fail != nil {
					if err := fail(topic, rec); err != nil {
						return err
					}
				}
				got = append(got, fmt.Sprintf("%s@%d", topic, rec.Offset))
				return nil
			})
		}
		return nil
	}
	tk, err := New(sub, 7, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return tk, &got
}

// at makes records with these timestamps, from an offset on.
func at(offset int64, timestampsMs ...int64) []Record {
	var records []Record
	for i, ms := range timestampsMs {
		records = append(records, Record{Offset: offset + int64(i), TimestampMs: ms, Key: []byte{}, Value: []byte{}})
	}
	return records
}

func enqueue(t rapid.TB, tk *Task, topic string, records []Record) {
	t.Helper()
	if err := tk.Enqueue(topic, records); err != nil {
		t.Fatal(err)
	}
}

func positions(tk *Task) string {
	var list []string
	for topic, offset := range tk.Positions() {
		list = append(list, fmt.Sprintf("%s=%d", topic, offset))
	}
	return strings.Join(list, " ")
}

func TestProcessTakesSmallestTimestampFirstAndKeepsPartitionOrder(t *testing.T) {
	tk, got := testTask(t, nil, "a", "b")
	enqueue(t, tk, "b", at(10, 5, 1, 9)) // 1 comes after 5 in its partition
	enqueue(t, tk, "a", at(0, 4, 5))
	enqueue(t, tk, "a", at(7, 20))
	if n, err := tk.Process(2); n != 2 || err != nil {
		t.Fatalf("Process = %d, %v", n, err)
	}
	if positions(tk) != "a=7 b=10" || tk.StreamTimeMs() != 5 || tk.Buffered("a") != 1 || tk.Buffered("b") != 3 {
		t.Errorf("after two: %s, stream time %d", positions(tk), tk.StreamTimeMs())
	}
	if n, err := tk.Process(100); n != 4 || err != nil {
		t.Fatalf("Process = %d, %v", n, err)
	}
	want := []string{"a@0", "a@1", "b@10", "b@11", "b@12", "a@7"}
	if !slices.Equal(*got, want) {
		t.Errorf("got %v, want %v", *got, want)
	}
	if tk.BufferedBytes() != 0 || tk.StreamTimeMs() != 20 || tk.PartitionTimeMs("b") != 9 {
		t.Errorf("at the end: %d bytes, stream time %d, time of b %d", tk.BufferedBytes(), tk.StreamTimeMs(), tk.PartitionTimeMs("b"))
	}
}

func TestPositionsPassControlRecordsOnceTheQueueIsEmpty(t *testing.T) {
	tk, _ := testTask(t, nil, "a", "b")
	if positions(tk) != "" {
		t.Errorf("new: %s", positions(tk))
	}
	enqueue(t, tk, "a", at(4, 1))
	tk.SetPosition("a", 9) // offsets 5 to 8 were markers
	if positions(tk) != "a=4" {
		t.Errorf("buffered: %s", positions(tk))
	}
	if _, err := tk.Process(1); err != nil {
		t.Fatal(err)
	}
	tk.SetPosition("a", 6)
	tk.SetPosition("b", 2)
	if positions(tk) != "a=9 b=2" {
		t.Errorf("empty: %s", positions(tk))
	}
	tk.Reset()
	if positions(tk) != "" || tk.StreamTimeMs() != -1 {
		t.Errorf("after Reset: %s, stream time %d", positions(tk), tk.StreamTimeMs())
	}
}

func TestFailedRecordStaysAtTheHeadUntilSkipped(t *testing.T) {
	broken := true
	tk, got := testTask(t, func(_ string, rec *Record) error {
		if rec.Offset == 1 && broken {
			return &StageError{Stage: StageSend, Node: "out", Err: errors.New("fenced")}
		}
		if rec.Offset == 2 {
			panic("user bug")
		}
		return nil
	}, "a")
	enqueue(t, tk, "a", at(0, 1, 1, 1, 1))
	n, err := tk.Process(10)
	var re *RecordError
	if n != 1 || !errors.As(err, &re) || re.Poison() || err.Error() != "task 3_7: record a/7 offset 1: send at out: fenced" {
		t.Fatalf("Process = %d, %v", n, err)
	}
	broken = false
	n, err = tk.Process(10)
	if n != 1 || !errors.As(err, &re) || !re.Poison() || re.Offset != 2 || !strings.Contains(err.Error(), "user bug") {
		t.Fatalf("Process = %d, %v", n, err)
	}
	if topic, rec, ok := tk.Head(); !ok || topic != "a" || rec.Offset != 2 {
		t.Errorf("Head = %s, %v", topic, rec)
	}
	tk.Skip()
	if n, err = tk.Process(10); n != 1 || err != nil {
		t.Fatalf("Process = %d, %v", n, err)
	}
	if !slices.Equal(*got, []string{"a@0", "a@1", "a@3"}) || positions(tk) != "a=4" {
		t.Errorf("got %v, %s", *got, positions(tk))
	}
}

func TestRecordWithoutTimestampIsPoison(t *testing.T) {
	tk, _ := testTask(t, nil, "a")
	enqueue(t, tk, "a", at(0, -1))
	var re *RecordError
	if _, err := tk.Process(1); !errors.As(err, &re) || !re.Poison() {
		t.Errorf("got %v", err)
	}
}

func TestEnqueueOfAnotherTopicIsAnError(t *testing.T) {
	tk, _ := testTask(t, nil, "a")
	if err := tk.Enqueue("z", at(0, 1)); err == nil || !strings.Contains(err.Error(), "topic z is not one of its sources") {
		t.Errorf("got %v", err)
	}
}

func TestNewNeedsEveryStoreAndHandler(t *testing.T) {
	sub := &Subtopology{Stores: []StoreSpec{{Name: "counts"}}, Build: func(*Assembly) error { return nil }}
	if _, err := New(sub, 0, Deps{}); err == nil || !strings.Contains(err.Error(), `store "counts" was not opened`) {
		t.Errorf("got %v", err)
	}
	sub = &Subtopology{Sources: []Source{{Topic: "in"}}, Build: func(*Assembly) error { return nil }}
	if _, err := New(sub, 0, Deps{}); err == nil || !strings.Contains(err.Error(), "source topic in has no handler") {
		t.Errorf("got %v", err)
	}
}

// TestTaskAgainstModel feeds batches in any order and compares with a naive choice.
func TestTaskAgainstModel(t *testing.T) {
	topics := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		tk, got := testTask(rt, nil, topics...)
		queues := map[string][]Record{}
		next := map[string]int64{}
		var want []string
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": func(rt *rapid.T) {
				topic := rapid.SampledFrom(topics).Draw(rt, "topic")
				offset := next[topic] + rapid.Int64Range(0, 2).Draw(rt, "gap")
				records := at(offset, rapid.SliceOfN(rapid.Int64Range(0, 9), 0, 4).Draw(rt, "ms")...)
				if len(records) > 0 {
					next[topic] = records[len(records)-1].Offset + 1
				}
				queues[topic] = append(queues[topic], records...)
				enqueue(rt, tk, topic, slices.Clone(records))
			},
			"process": func(rt *rapid.T) {
				max := rapid.IntRange(0, 5).Draw(rt, "max")
				done := 0
				for ; done < max; done++ {
					best := ""
					for _, topic := range topics {
						q := queues[topic]
						if len(q) > 0 && (best == "" || q[0].TimestampMs < queues[best][0].TimestampMs) {
							best = topic
						}
					}
					if best == "" {
						break
					}
					want = append(want, fmt.Sprintf("%s@%d", best, queues[best][0].Offset))
					queues[best] = queues[best][1:]
				}
				if n, err := tk.Process(max); n != done || err != nil {
					rt.Fatalf("Process(%d) = %d, %v; want %d", max, n, err, done)
				}
			},
			"": func(rt *rapid.T) {
				if !slices.Equal(*got, want) {
					rt.Fatalf("got %v, want %v", *got, want)
				}
				var list []string
				bytes := 0
				for _, topic := range topics {
					q := queues[topic]
					if tk.Buffered(topic) != len(q) {
						rt.Fatalf("%s: %d buffered, want %d", topic, tk.Buffered(topic), len(q))
					}
					bytes += len(q) * recordOverhead
					switch {
					case len(q) > 0:
						list = append(list, fmt.Sprintf("%s=%d", topic, q[0].Offset))
					case next[topic] > 0:
						list = append(list, fmt.Sprintf("%s=%d", topic, next[topic]))
					}
				}
				if positions(tk) != strings.Join(list, " ") || tk.BufferedBytes() != bytes {
					rt.Fatalf("positions %s, %d bytes; want %v, %d", positions(tk), tk.BufferedBytes(), list, bytes)
				}
			},
		})
	})
}

func TestParseIDReadsWhatStringWrote(t *testing.T) {
	for _, id := range []ID{{}, {0, 3}, {12, 1<<31 - 1}} {
		if got, err := ParseID(id.String()); got != id || err != nil {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
	for _, bad := range []string{"", "_", "1", "1_", "_1", "1_2_3", "-1_2", "+1_2", "1_2147483648", "a_b", "1 _2"} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("0_3")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if again, err := ParseID(id.String()); again != id || err != nil {
			t.Errorf("%q: %v, then %v, %v", s, id, again, err)
		}
	})
}

// The hashes are those of Kafka's UtilsTest.testMurmur2.
func TestMurmur2IsKafkas(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
		if got, want := DefaultPartition([]byte(key), 7), (want&0x7fffffff)%7; got != want {
			t.Errorf("DefaultPartition(%q, 7) = %d, want %d", key, got, want)
		}
	}
}
