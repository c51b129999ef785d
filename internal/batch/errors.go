package batch

import (
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by every error about bytes that do not follow their
// format. The caller adds the file, partition and offset.
var ErrCorrupt = errors.New("corrupt")

// ErrTruncated reports a buffer that ends inside a batch. At the end of a fetch
// response or of a segment that was being written it is normal, elsewhere it is
// corruption.
var ErrTruncated = errors.New("batch: buffer ends inside a batch")

// ErrUnknownVersion is wrapped by UnknownVersionError.
var ErrUnknownVersion = errors.New("unknown version of an internal record")

// UnknownVersionError reports an internal-topic record whose key or value has a
// version (for keys: a record type) that this build does not know. A replay
// skips such a record with a warning, as Kafka's coordinators do after a
// downgrade (KIP-915).
type UnknownVersionError struct {
	Record  string // for example "TransactionLogValue"
	Version int16
}

// Error names the record and the version.
func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("batch: %s version %d is unknown to this build; it was written by a newer release", e.Record, e.Version)
}

// Unwrap returns ErrUnknownVersion.
func (e *UnknownVersionError) Unwrap() error { return ErrUnknownVersion }

func corruptf(format string, args ...any) error {
	return fmt.Errorf("batch: "+format+": %w", append(args, ErrCorrupt)...)
}
