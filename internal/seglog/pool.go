package seglog

import "sync"

// pool bounds the number of open segment files. It closes the one that was
// not used for a while, by the clock algorithm.
type pool struct {
	s   *Store
	max int

	mu   sync.Mutex
	open []*segment
	hand int
}

// added takes note of a newly opened file, and closes another if there are
// too many.
func (p *pool) added(g *segment) error {
	p.mu.Lock()
	p.open = append(p.open, g)
	var victim *segment
	if len(p.open) > p.max {
		victim = p.choose(g)
	}
	p.mu.Unlock()
	if victim == nil {
		return nil
	}
	if err := victim.close(true); err != nil {
		return p.s.fail(err)
	}
	return nil
}

// choose takes out a segment other than keep that was not used since the
// hand last passed it; after two rounds any.
func (p *pool) choose(keep *segment) *segment {
	for i := 0; i < 2*len(p.open)+1; i++ {
		p.hand = (p.hand + 1) % len(p.open)
		g := p.open[p.hand]
		if g == keep || g.handle.used.Swap(false) {
			continue
		}
		p.takeOut(p.hand)
		return g
	}
	return nil
}

func (p *pool) takeOut(i int) {
	last := len(p.open) - 1
	p.open[i] = p.open[last]
	p.open[last] = nil
	p.open = p.open[:last]
}

// forget drops a segment that was closed for good.
func (p *pool) forget(g *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.open {
		if o == g {
			p.takeOut(i)
			return
		}
	}
}

// closeAll closes every file, without syncing.
func (p *pool) closeAll() error {
	p.mu.Lock()
	open := p.open
	p.open = nil
	p.mu.Unlock()
	var first error
	for _, g := range open {
		if err := g.close(false); first == nil {
			first = err
		}
	}
	return first
}
