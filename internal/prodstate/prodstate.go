// Package prodstate keeps the state of the producers of one partition: epochs,
// the last sequence numbers, open transactions, and from those the last stable
// offset. It is what Kafka calls ProducerStateManager (with ProducerAppendInfo
// and VerificationStateEntry).
//
// The rules are those of Kafka 4.x with KIP-360 (epoch bumps), KIP-890
// (verification, transactions version 2) and KIP-1228 (stale markers). What is
// different from Kafka:
//
//   - All five remembered batches of a producer survive a restart, not only the
//     last one (see Snapshot).
//   - A producer's idle time counts from its last append by the broker's clock
//     where that is later than the batch's own timestamp. Otherwise replaying
//     old events, whose timestamps lie days back, would make the broker forget a
//     busy producer and accept its retries as new.
//   - A verification token that belongs to a later transaction than the one a
//     version 2 marker ends is kept in every case, not only for equal epochs; and
//     a token whose epoch rises takes the version of the request that raised it.
//
// The package is pure: no goroutine, clock, I/O, randomness, logging or lock.
package prodstate

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Token proves that the transaction coordinator was asked about a producer's
// transaction on this partition, and that nothing has ended that transaction
// since (VerificationGuard in Kafka). 0 is no token.
//
// Without it: a producer's first write is verified; before the write is
// appended the transaction times out and its abort marker is written; then the
// write is appended, opens a transaction that the coordinator knows nothing of,
// and blocks the last stable offset for ever (KAFKA-14402). The marker removes
// the token, and the write is refused.
type Token uint64

// Options configure a Machine.
type Options struct {
	// FirstToken is the first token that is given. A machine that is rebuilt in
	// a running process must not repeat tokens whose verification may be under
	// way, so each machine needs a range of its own. 0 means 1.
	FirstToken Token
	// SkipVerification turns off transaction.partition.verification.enable.
	// Requests of transactions version 2 are verified all the same, because
	// verifying them is what adds the partition to the transaction.
	SkipVerification bool
	// LogStart is the partition's first offset.
	LogStart batch.Offset
}

// Machine is the producer state of one partition. Decide judges a write, Apply
// records what was appended. Not for concurrent use.
type Machine struct {
	producers map[batch.ProducerID]*entry
	// open transactions by first offset, ended ones by the marker's offset.
	open  []openTxn
	ended []endedTxn

	logStart, highWatermark batch.Offset
	undecidedVersion        uint64 // changes with open and ended

	// Soft state: lost at a restart.
	tokens           map[batch.ProducerID]*tokenEntry
	nextToken        Token
	skipVerification bool
	nowMs            int64 // of the last Decide; 0 during a replay
}

// New returns the state of a partition without producers.
func New(opts Options) *Machine {
	return &Machine{
		producers:        map[batch.ProducerID]*entry{},
		tokens:           map[batch.ProducerID]*tokenEntry{},
		nextToken:        max(opts.FirstToken, 1),
		skipVerification: opts.SkipVerification,
		logStart:         opts.LogStart,
		highWatermark:    opts.LogStart,
	}
}

// SetSkipVerification changes Options.SkipVerification, which is dynamic.
func (m *Machine) SetSkipVerification(skip bool) { m.skipVerification = skip }

// Command is a write to judge: AppendBatch or AppendMarker.
type Command interface{ isCommand() }

// AppendBatch asks to append a data batch that batch.Validate let pass.
type AppendBatch struct {
	Header batch.Header
	// TV2: the request speaks transactions version 2 (Produce v12+,
	// TxnOffsetCommit v5+), so verifying adds the partition to the transaction.
	TV2 bool
	// Token is what a Verify decision gave, once the coordinator has agreed.
	Token Token
	// Coordinator: the group coordinator writes offsets. Such batches have no
	// sequence numbers; duplicates and sequences are not checked.
	Coordinator bool
}

// AppendMarker asks to append a transaction marker.
type AppendMarker struct {
	ProducerID       batch.ProducerID
	Epoch            batch.Epoch
	CoordinatorEpoch int32
	TV2              bool // the transaction was ended under version 2 (WriteTxnMarkers v2)
}

func (AppendBatch) isCommand()  {}
func (AppendMarker) isCommand() {}

// Action is what to do with a write.
type Action int8

// The actions.
const (
	// Append: append it, then Apply.
	Append Action = iota
	// Duplicate: append nothing and answer success with Decision.BaseOffset.
	Duplicate
	// Verify: ask the transaction coordinator (version 2: add the partition to
	// the transaction), and when it agrees send the same command again with
	// Decision.Token.
	Verify
	// Reject: answer Decision.Code.
	Reject
)

// String names the action.
func (a Action) String() string {
	switch a {
	case Append:
		return "append"
	case Duplicate:
		return "duplicate"
	case Verify:
		return "verify"
	case Reject:
		return "reject"
	}
	return fmt.Sprintf("action(%d)", int8(a))
}

// Decision is the outcome of Decide.
type Decision struct {
	Action  Action
	Code    int16  // Reject: a Kafka error code
	Message string // Reject
	// Duplicate: where the original batch is and the timestamp it had.
	BaseOffset  batch.Offset
	LastOffset  batch.Offset
	TimestampMs int64
	Token       Token // Verify
}

func reject(err *kerr.Error, format string, args ...any) Decision {
	return Decision{Action: Reject, Code: err.Code, Message: fmt.Sprintf(format, args...)}
}

// Marker is the content of a transaction marker that was appended.
type Marker struct {
	Type             batch.ControlType // ControlAbort or ControlCommit
	CoordinatorEpoch int32
	TV2              bool // as in AppendMarker; of no account in a replay
}

// EndedTxn is a transaction that had data in the partition and that a marker has
// just ended (CompletedTxn in Kafka). An aborted one goes into the transaction
// index of the segment that holds the marker.
type EndedTxn struct {
	ProducerID  batch.ProducerID
	FirstOffset batch.Offset // of the transaction's data
	LastOffset  batch.Offset // of the marker
	Aborted     bool
	// LastStableOffset is the partition's once the marker is durable.
	LastStableOffset batch.Offset
}
