package txn

import (
	"maps"
	"regexp"
	"slices"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Description is what DescribeTransactions shows of a transactional id.
type Description struct {
	TransactionalID string
	State           State
	ProducerID      batch.ProducerID
	Epoch           batch.Epoch
	TimeoutMs       int32
	StartMs         int64 // -1: no transaction since InitProducerId
	// Partitions of the open transaction, sorted; once it is prepared, those
	// that still lack their marker.
	Partitions []batch.TopicPartition
	// Stalled lists partitions that refused their marker for good.
	Stalled []PartitionResult
}

// Describe returns code 0, 42 (empty id) or 105 (unknown id).
func (m *Machine) Describe(id string) (Description, int16) {
	if id == "" {
		return Description{}, codeInvalidRequest
	}
	e := m.entries[id]
	if e == nil {
		return Description{}, codeTransactionalIDNotFound
	}
	d := Description{
		TransactionalID: id,
		State:           e.md.state,
		ProducerID:      e.md.producerID,
		Epoch:           e.md.epoch,
		TimeoutMs:       e.md.timeoutMs,
		StartMs:         e.md.startMs,
		Partitions:      slices.Clone(e.md.partitions),
		Stalled:         slices.Clone(e.stalled),
	}
	if e.md.state.prepared() {
		d.Partitions = slices.Clone(e.remaining)
	}
	return d, codeNone
}

// Filter selects transactions for ListTransactions; the zero value, with
// MinDurationMs -1, selects all.
type Filter struct {
	ProducerIDs   []batch.ProducerID // none: any
	States        []string           // Kafka's names; none: any
	MinDurationMs int64              // longer than this since the start; below 0: any
	IDPattern     string             // RE2, for the whole id; empty: any
}

// Listed is one line of ListTransactions.
type Listed struct {
	TransactionalID string
	ProducerID      batch.ProducerID
	State           State
}

// List returns the selected transactions by transactional id, and the state
// names of the filter that do not exist. The code is 0 or 128 (bad pattern).
func (m *Machine) List(nowMs int64, f Filter) (listed []Listed, unknownStates []string, code int16) {
	var pattern *regexp.Regexp
	if f.IDPattern != "" {
		var err error
		if pattern, err = regexp.Compile(`\A(?:` + f.IDPattern + `)\z`); err != nil {
			return nil, nil, codeInvalidRegex
		}
	}
	var states []State
	for _, name := range f.States {
		if s, ok := StateNamed(name); ok {
			states = append(states, s)
		} else {
			unknownStates = append(unknownStates, name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.entries)) {
		md := m.entries[id].md
		switch {
		case len(f.ProducerIDs) > 0 && !slices.Contains(f.ProducerIDs, md.producerID),
			len(f.States) > 0 && !slices.Contains(states, md.state),
			f.MinDurationMs >= 0 && nowMs-md.startMs <= f.MinDurationMs,
			pattern != nil && !pattern.MatchString(id):
			continue
		}
		listed = append(listed, Listed{TransactionalID: id, ProducerID: md.producerID, State: md.state})
	}
	return listed, unknownStates, codeNone
}
