package runtime

import (
	"errors"
	"fmt"
	"time"

	"github.com/hanbeon/hanbeon/internal/producer"
)

// fencing notices that two live processes use one transactional id. Each takes
// it from the other, does some work and loses it again: nothing is lost or
// doubled, but both would do most of the work in vain for ever.
//
// One fencing is no sign of that: it also ends a zombie, and under
// transaction.version 1 a transaction that took too long.
type fencing struct {
	inARow int // since the last commit
	count  int
	latest [fencedMax]time.Time // a ring
}

// fencedMax is how often a worker may be fenced, without a commit in between or
// within fencedWindow, before it gives up.
const fencedMax = 8

// note counts one fencing and says whether it was one too many. A transaction
// that takes too long is fenced once per timeout, so many in the window of four
// timeouts have another cause.
func (f *fencing) note(now time.Time, transactionTimeout time.Duration) (tooMany bool) {
	f.inARow++
	oldest := f.latest[f.count%fencedMax]
	f.latest[f.count%fencedMax] = now
	f.count++
	return f.inARow >= fencedMax || f.count > fencedMax && now.Sub(oldest) < 4*transactionTimeout
}

// noteFenced counts a fencing. After too many of them the worker ends.
func (w *worker) noteFenced(err error) {
	if !errors.Is(err, producer.ErrFenced) {
		return
	}
	w.stats.fenced.Add(1)
	if w.fencing.note(time.Now(), w.opts.TransactionTimeout) && w.fatal == nil {
		w.fatal = fmt.Errorf("fenced %d times: two live processes use the transactional id %q; give each its own StateDir or InstanceID: %w",
			w.fencing.count, w.transactionalID(), err)
	}
}
