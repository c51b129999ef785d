package producer

import (
	"errors"
	"maps"

	"github.com/hanbeon/hanbeon/internal/producer/core"
)

// Stats counts what a producer did since New.
type Stats struct {
	Commits  uint64
	Unknowns uint64
	// AbortsByReason counts commits that ended Aborted, by the text of the
	// sentinel error that was the reason.
	AbortsByReason  map[string]uint64
	Retries         uint64 // requests and batches sent again
	ProduceRequests uint64
	Batches         uint64 // batches sent, retries included
	RecordsAcked    uint64
	BufferedBytes   int64
	// TransactionVersion is the protocol in use, 0 before Init.
	TransactionVersion int16
}

// Stats returns the counters. It may be called from any goroutine.
func (p *Producer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.AbortsByReason = maps.Clone(p.stats.AbortsByReason)
	s.BufferedBytes = p.buffered.Load()
	s.TransactionVersion = p.machine.TransactionVersion()
	return s
}

// Identity returns the producer id and epoch in use.
func (p *Producer) Identity() core.Identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machine.Identity()
}

func (p *Producer) count(o Outcome, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case o == Committed:
		p.stats.Commits++
	case o == Unknown:
		p.stats.Unknowns++
	default:
		reason := "other"
		if e := (*Error)(nil); errors.As(err, &e) {
			reason = e.sentinel.Error()
		}
		p.stats.AbortsByReason[reason]++
	}
}
