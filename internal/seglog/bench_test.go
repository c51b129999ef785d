package seglog

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// BenchmarkAppendDurable has writers, each on a log of its own, that wait for
// every batch: what group commit is for. It reports appends per sync.
func BenchmarkAppendDurable(b *testing.B) {
	for _, writers := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			var logs []LogSpec
			for i := range writers {
				logs = append(logs, LogSpec{ID: LogID(i), Topic: "bench", Partition: int32(i)})
			}
			groups := 0
			s := mustOpen(b, Options{Dir: b.TempDir(), OnDurable: func(LSN) { groups++ }}, logs...)
			raws := make([][]byte, writers)
			for i := range raws {
				raws[i], _ = makeBatch(0, 10, 1, 1024)
			}
			b.SetBytes(int64(len(raws[0])))
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() {
					l := s.Log(LogID(i))
					for n := i; n < b.N; n += writers {
						lsn := addRaw(b, l, raws[i])
						if err := s.Wait(context.Background(), lsn); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/float64(max(groups, 1)), "appends/sync")
			must(b, s.Close())
		})
	}
}

func addRaw(b *testing.B, l *Log, raw []byte) LSN {
	h, err := batch.ParseHeader(raw)
	must(b, err)
	h.BaseOffset = l.End()
	batch.SetBaseOffset(raw, h.BaseOffset)
	lsn, _, err := l.Append(raw, h)
	must(b, err)
	return lsn
}

// BenchmarkAppend is the cost of an append alone, without waiting.
func BenchmarkAppend(b *testing.B) {
	s := mustOpen(b, Options{Dir: b.TempDir(), Mode: ModeNone}, specs...)
	b.ReportAllocs()
	for range b.N {
		raw, _ := makeBatch(0, 10, 1, 1024) // the store may keep it until it is written
		addRaw(b, s.Log(1), raw)
	}
	b.StopTimer()
	must(b, s.Close())
}

// BenchmarkRead reads along a log as a consumer does.
func BenchmarkRead(b *testing.B) {
	s := mustOpen(b, Options{Dir: b.TempDir(), Mode: ModeNone}, specs...)
	l := s.Log(1)
	for range 20000 {
		add(b, l, 10, 1, 1024)
	}
	var buf []byte
	from := batch.Offset(0)
	b.ReportAllocs()
	b.ResetTimer()
	bytes := 0
	for range b.N {
		var err error
		buf, err = l.Read(buf[:0], from, 64<<10, l.End(), true)
		must(b, err)
		if bytes += len(buf); len(buf) == 0 {
			from = 0
			continue
		}
		for rest := buf; len(rest) > 0; {
			h, _ := parseHeader(rest)
			from, rest = batch.Offset(h.last+1), rest[h.size:]
		}
	}
	b.SetBytes(int64(bytes / b.N))
	b.StopTimer()
	must(b, s.Close())
}

func BenchmarkOpenEmpty(b *testing.B) {
	for range b.N {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		s := mustOpen(b, Options{Dir: dir}, specs...)
		b.StopTimer()
		must(b, s.Close())
		b.StartTimer()
	}
}

// BenchmarkOpenClean opens a store of many logs after a clean shutdown.
func BenchmarkOpenClean(b *testing.B) {
	var logs []LogSpec
	for i := range 1000 {
		logs = append(logs, LogSpec{ID: LogID(i), Topic: "bench", Partition: int32(i)})
	}
	opts := Options{Dir: b.TempDir()}
	s := mustOpen(b, opts, logs...)
	for i := range logs {
		add(b, s.Log(LogID(i)), 1, 1, 100)
	}
	must(b, s.Close())
	b.ResetTimer()
	for range b.N {
		s := mustOpen(b, opts, logs...)
		b.StopTimer()
		must(b, s.Close())
		b.StartTimer()
	}
}

// BenchmarkRecover replays a full journal.
func BenchmarkRecover(b *testing.B) {
	mem := vfs.NewMem()
	s := mustOpen(b, Options{FS: mem, Dir: testDir}, specs...)
	for range 20000 {
		wait(b, s, add(b, s.Log(1), 10, 1, 1024))
	}
	s.Crash()
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		clone := mem.CrashClone(vfs.KeepUnsynced)
		b.StartTimer()
		mustOpen(b, Options{FS: clone, Dir: testDir}, specs...).Crash()
	}
}
