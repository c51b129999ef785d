package task

import "iter"

// loggedStore writes changes to the changelog as well: at a flush where the store
// tracks them, else at once. For a restore only the order within a key matters.
type loggedStore struct {
	KeyValueStore
	tracker   ChangeTracker // nil: log at once
	name      string
	topic     string // "" for a store without a changelog
	partition int32
	collector Collector
	ctx       *Context
}

func (s *loggedStore) Get(key []byte) ([]byte, int64, bool, error) {
	value, timestampMs, ok, err := s.KeyValueStore.Get(key)
	if err != nil {
		return nil, 0, false, s.failed(err)
	}
	return value, timestampMs, ok, nil
}

func (s *loggedStore) Put(key, value []byte, timestampMs int64) error {
	if err := s.KeyValueStore.Put(key, value, timestampMs); err != nil {
		return s.failed(err)
	}
	if s.tracker != nil || s.topic == "" {
		return nil
	}
	return s.log(key, value, timestampMs)
}

// flush logs what the tracker remembers.
func (s *loggedStore) flush() error {
	if s.tracker == nil {
		return nil
	}
	for e := range s.tracker.Changes() {
		if err := s.log(e.Key, e.Value, e.TimestampMs); err != nil {
			return err
		}
	}
	return nil
}

// Delete logs the tombstone with the timestamp of the record under way.
func (s *loggedStore) Delete(key []byte) error { return s.Put(key, nil, s.ctx.TimestampMs) }

func (s *loggedStore) Range(from, to []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range s.KeyValueStore.Range(from, to) {
			if err != nil {
				err = s.failed(err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (s *loggedStore) log(key, value []byte, timestampMs int64) error {
	// Kafka Streams' changelogs carry no headers either.
	if err := s.collector.Send(s.topic, s.partition, key, value, nil, timestampMs); err != nil {
		return &StageError{Stage: StageSend, Node: "changelog of store " + s.name + " (topic " + s.topic + ")", Err: err}
	}
	return nil
}

func (s *loggedStore) failed(err error) error {
	return &StageError{Stage: StageStore, Node: s.name, Err: err}
}
