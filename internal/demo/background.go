package demo

import (
	"context"
	"errors"
	"sync"
)

// background is the goroutines beside the feeding. The first that fails ends the
// run with its error.
type background struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	group  sync.WaitGroup
}

func newBackground(ctx context.Context, cancel context.CancelCauseFunc) *background {
	return &background{ctx: ctx, cancel: cancel}
}

func (b *background) start(f func(ctx context.Context) error) {
	b.group.Go(func() {
		if err := f(b.ctx); err != nil && !errors.Is(err, context.Canceled) {
			b.cancel(err)
		}
	})
}

// end ends all of them and waits.
func (b *background) end() {
	b.cancel(nil)
	b.group.Wait()
}
