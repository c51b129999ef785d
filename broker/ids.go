package broker

import (
	"sync"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// producerIDBlock is how many producer ids are reserved durably at a time.
const producerIDBlock = 1000

// idBlocks hands out producer ids. An id is given only from a block whose end
// is durable already: a gap is harmless, a reuse would be corruption.
type idBlocks struct {
	meta *metaStore
	wg   sync.WaitGroup // the goroutine that reserves a block

	mu       sync.Mutex
	from, to batch.ProducerID // the block in use
	spare    []batch.ProducerID
	filling  bool
}

func newIDBlocks(meta *metaStore) (*idBlocks, error) {
	b := &idBlocks{meta: meta}
	first, err := b.reserve()
	b.from, b.to = first, first+producerIDBlock
	return b, err
}

func (b *idBlocks) reserve() (first batch.ProducerID, err error) {
	err = b.meta.update(func(m *metadata) error {
		first = m.NextProducerID
		m.NextProducerID += producerIDBlock
		return nil
	})
	return first, err
}

// next returns a fresh id; false while none is reserved, then the client is
// answered COORDINATOR_LOAD_IN_PROGRESS and tries again.
func (b *idBlocks) next() (batch.ProducerID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from == b.to && len(b.spare) > 0 {
		b.from, b.to, b.spare = b.spare[0], b.spare[0]+producerIDBlock, nil
	}
	if b.to-b.from <= producerIDBlock/10 && len(b.spare) == 0 && !b.filling {
		b.filling = true
		b.wg.Add(1)
		go b.fill()
	}
	if b.from == b.to {
		return 0, false
	}
	b.from++
	return b.from - 1, true
}

func (b *idBlocks) fill() {
	defer b.wg.Done()
	first, err := b.reserve()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filling = false
	if err == nil {
		b.spare = []batch.ProducerID{first}
	}
}
