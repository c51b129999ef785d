package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/faults"
	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/twmb/franz-go/pkg/kerr"
)

// scriptedTxn answers with what a test wants and notes what was asked.
type scriptedTxn struct {
	calls      []string
	beginErr   error
	flushErr   error
	outcome    producer.Outcome
	commitErr  error
	recoverErr []error // one per call, then nil
}

func (s *scriptedTxn) Begin() error {
	s.calls = append(s.calls, "begin")
	return s.beginErr
}

func (s *scriptedTxn) Flush(context.Context) error {
	s.calls = append(s.calls, "flush")
	return s.flushErr
}

func (s *scriptedTxn) Commit(context.Context, producer.GroupMetadata, producer.Offsets) (producer.Outcome, error) {
	s.calls = append(s.calls, "commit")
	return s.outcome, s.commitErr
}

func (s *scriptedTxn) Recover(context.Context) error {
	s.calls = append(s.calls, "recover")
	if len(s.recoverErr) == 0 {
		return nil
	}
	err := s.recoverErr[0]
	s.recoverErr = s.recoverErr[1:]
	return err
}

func TestCommitProtocol(t *testing.T) {
	tp := batch.TopicPartition{Topic: "in", Partition: 3}
	tried := producer.Offsets{tp: {Offset: 7}}
	atTried := map[batch.TopicPartition]committedOffset{tp: {Offset: 7}}
	behind := map[batch.TopicPartition]committedOffset{tp: {Offset: 5}}
	ahead := map[batch.TopicPartition]committedOffset{tp: {Offset: 9}}
	for name, c := range map[string]struct {
		prod    scriptedTxn
		open    bool
		offsets producer.Offsets
		stable  map[batch.TopicPartition]committedOffset
		member  bool
		want    verdict
		asked   bool
		fails   bool
		calls   string
	}{
		"committed keeps the overlay": {
			prod: scriptedTxn{outcome: producer.Committed}, open: true, offsets: tried, want: kept, calls: "[flush commit]"},
		"offsets alone begin a transaction": {
			prod: scriptedTxn{outcome: producer.Committed}, offsets: tried, want: kept, calls: "[begin flush commit]"},
		"a failed flush is never committed": {
			prod: scriptedTxn{flushErr: errors.New("batch lost"), outcome: producer.Committed}, open: true, offsets: tried,
			want: dropped, fails: true, calls: "[flush]"},
		"aborted drops the overlay": {
			prod: scriptedTxn{outcome: producer.Aborted, commitErr: producer.ErrRebalanced}, open: true, offsets: tried,
			want: dropped, fails: true, calls: "[flush commit]"},
		"aborted without an error still fails": {
			prod: scriptedTxn{outcome: producer.Aborted}, open: true, offsets: tried, want: dropped, fails: true, calls: "[flush commit]"},
		"unknown, our offsets are there: kept": {
			prod: scriptedTxn{outcome: producer.Unknown}, open: true, offsets: tried, stable: atTried, member: true,
			want: kept, asked: true, calls: "[flush commit recover stable]"},
		"unknown, older offsets are there: dropped": {
			prod: scriptedTxn{outcome: producer.Unknown}, open: true, offsets: tried, stable: behind, member: true,
			want: droppedUnknown, asked: true, calls: "[flush commit recover stable]"},
		"unknown, another member went on: dropped": {
			prod: scriptedTxn{outcome: producer.Unknown}, open: true, offsets: tried, stable: ahead, member: false,
			want: droppedUnknown, asked: true, calls: "[flush commit recover stable]"},
		"unknown, our offsets are there but another member may have written them: dropped": {
			prod: scriptedTxn{outcome: producer.Unknown}, open: true, offsets: tried, stable: atTried, member: false,
			want: droppedUnknown, asked: true, calls: "[flush commit recover stable]"},
		"unknown without offsets: the changelog decides": {
			prod: scriptedTxn{outcome: producer.Unknown}, open: true, want: droppedUnknown, asked: true, calls: "[flush commit recover]"},
		"unknown, recovery needs patience": {
			prod: scriptedTxn{outcome: producer.Unknown, recoverErr: []error{kerr.CoordinatorLoadInProgress}}, open: true, offsets: tried,
			stable: atTried, member: true, want: kept, asked: true, calls: "[flush commit recover recover stable]"},
		"unknown, the producer was fenced meanwhile": {
			prod: scriptedTxn{outcome: producer.Unknown, recoverErr: []error{producer.ErrFenced}}, open: true, offsets: tried,
			want: droppedUnknown, asked: true, fails: true, calls: "[flush commit recover]"},
	} {
		t.Run(name, func(t *testing.T) {
			prod := c.prod
			run := txnCommit{
				prod: &prod, open: c.open,
				stable: func(_ context.Context, tps []batch.TopicPartition) (map[batch.TopicPartition]committedOffset, error) {
					prod.calls = append(prod.calls, "stable")
					if !slices.Contains(tps, tp) {
						return nil, errors.New("not asked for the partition")
					}
					return c.stable, nil
				},
				stillMember: func(context.Context) bool { return c.member },
			}
			got, asked, err := run.run(t.Context(), producer.GroupMetadata{GroupID: "g", MemberID: "m", GenerationID: 2}, c.offsets)
			if got != c.want || asked != c.asked || (err != nil) != c.fails {
				t.Errorf("verdict %d, asked %v, err %v; want %d, %v, failure %v", got, asked, err, c.want, c.asked, c.fails)
			}
			if calls := fmt.Sprint(prod.calls); calls != c.calls {
				t.Errorf("calls %s, want %s", calls, c.calls)
			}
			if err != nil && got == kept {
				t.Error("kept with an error")
			}
		})
	}
}

func TestUnstableOffsetsAreWaitedFor(t *testing.T) {
	tp := batch.TopicPartition{Topic: "in"}
	asked := 0
	run := txnCommit{
		prod: &scriptedTxn{outcome: producer.Unknown}, open: true,
		stable: func(context.Context, []batch.TopicPartition) (map[batch.TopicPartition]committedOffset, error) {
			if asked++; asked < 3 {
				return nil, errUnstable
			}
			return map[batch.TopicPartition]committedOffset{tp: {Offset: 4}}, nil
		},
		stillMember: func(context.Context) bool { return true },
	}
	got, _, err := run.run(t.Context(), producer.GroupMetadata{}, producer.Offsets{tp: {Offset: 4}})
	if got != kept || err != nil || asked != 3 {
		t.Errorf("verdict %d after %d questions (%v), want kept after 3", got, asked, err)
	}
}

// The negative control must change the protocol, or it would control nothing.
func TestUnknownTakenForAbortedIsNotAsked(t *testing.T) {
	prod := &scriptedTxn{outcome: producer.Unknown}
	run := txnCommit{prod: prod, open: true, faults: faults.Set{UnknownIsAborted: true}}
	got, asked, _ := run.run(t.Context(), producer.GroupMetadata{GroupID: "g", MemberID: "m", GenerationID: 2}, nil)
	if got != dropped || !asked || slices.Contains(prod.calls, "recover") {
		t.Errorf("verdict %d after %v, want dropped without asking", got, prod.calls)
	}
}
