package task

import "iter"

// loggedStore writes each change to the changelog as well. Only the changelog's
// order matters for restore, and it is the order of the writes.
type loggedStore struct {
	KeyValueStore
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
	return s.log(key, value, timestampMs)
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
	if s.topic == "" {
		return nil
	}
	// Kafka Streams' changelogs carry no headers either.
	if err := s.collector.Send(s.topic, s.partition, key, value, nil, timestampMs); err != nil {
		return &StageError{Stage: StageSend, Node: "changelog of store " + s.name + " (topic " + s.topic + ")", Err: err}
	}
	return nil
}

func (s *loggedStore) failed(err error) error {
	return &StageError{Stage: StageStore, Node: s.name, Err: err}
}
