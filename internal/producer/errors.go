package producer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanbeon/hanbeon/internal/producer/core"
)

// What a caller branches on. Every error of this package wraps one of these,
// and the protocol's kerr value where there was one.
var (
	// ErrFenced: another producer owns the transactional id, or (under
	// transaction.version 1) the coordinator ended the transaction for time.
	// Close this producer.
	ErrFenced = errors.New("fenced by another producer")
	// ErrRebalanced: the group membership that came with the offsets is no
	// longer valid. Abort and rejoin (KIP-447).
	ErrRebalanced = errors.New("the group has rebalanced")
	// ErrTimedOutByCoordinator: the transaction exceeded its timeout and the
	// coordinator aborted it. Abort, then go on.
	ErrTimedOutByCoordinator = errors.New("the transaction exceeded its timeout and was aborted by its coordinator")
	// ErrRecordTooLarge: a record or batch is above a limit of this producer
	// or of the topic (max.message.bytes).
	ErrRecordTooLarge = errors.New("record too large")
	// ErrInvalidRecord: the broker refused a record: its time, a missing key
	// on a compacted topic, or a policy.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrTopicRecreated: the topic was deleted and created again.
	ErrTopicRecreated = errors.New("topic was recreated")
	// ErrUnknownTopic: the topic or partition does not exist.
	ErrUnknownTopic = errors.New("unknown topic or partition")
	// ErrUnauthorized: an ACL is missing; the message names the resource.
	ErrUnauthorized = errors.New("not authorized")
	// ErrSequence: the broker's record of this producer does not match, so a
	// batch may be missing. Abort (or, without transactions, Recover).
	ErrSequence = errors.New("sequence broken")
	// ErrMappingLost: the coordinator forgot the transactional id
	// (transactional.id.expiration.ms). Abort or Recover takes a new identity.
	ErrMappingLost = errors.New("the coordinator no longer knows the producer id")
	// ErrDeliveryTimeout: a batch was not acknowledged within DeliveryTimeout.
	ErrDeliveryTimeout = errors.New("delivery timeout")
	// ErrTimeout: a coordinator did not answer in time.
	ErrTimeout = errors.New("timeout")
	// ErrCanceled: the caller's context ended the operation.
	ErrCanceled = errors.New("canceled")
	// ErrUnsupported: the cluster is too old for exactly-once.
	ErrUnsupported = errors.New("unsupported by the cluster")
	// ErrInvalidConfig: a setting or argument that can never work.
	ErrInvalidConfig = errors.New("invalid configuration")
	// ErrState: the call does not fit the producer's state.
	ErrState = errors.New("invalid producer state")
	// ErrAbortable: any other failure after which Abort restores the producer.
	ErrAbortable = errors.New("transaction must be aborted")
	// ErrFatal: only Close is left.
	ErrFatal = errors.New("producer is unusable")
	// ErrClosed: the producer was closed.
	ErrClosed = errors.New("producer is closed")
)

var sentinels = map[core.Reason]error{
	core.ReasonFenced:                ErrFenced,
	core.ReasonRebalanced:            ErrRebalanced,
	core.ReasonTimedOutByCoordinator: ErrTimedOutByCoordinator,
	core.ReasonRecordTooLarge:        ErrRecordTooLarge,
	core.ReasonInvalidRecord:         ErrInvalidRecord,
	core.ReasonTopicRecreated:        ErrTopicRecreated,
	core.ReasonUnknownTopic:          ErrUnknownTopic,
	core.ReasonUnauthorized:          ErrUnauthorized,
	core.ReasonSequence:              ErrSequence,
	core.ReasonMappingLost:           ErrMappingLost,
	core.ReasonDeliveryTimeout:       ErrDeliveryTimeout,
	core.ReasonTimeout:               ErrTimeout,
	core.ReasonCanceled:              ErrCanceled,
	core.ReasonUnsupported:           ErrUnsupported,
	core.ReasonInvalidConfig:         ErrInvalidConfig,
	core.ReasonAppend:                ErrAbortable,
	core.ReasonState:                 ErrState,
	core.ReasonAbortable:             ErrAbortable,
	core.ReasonFatal:                 ErrFatal,
}

// Error is a failed operation of a producer.
type Error struct {
	Op        string // what the caller asked for
	Request   string // the Kafka request that was refused, "" if none
	Topic     string // "" if no partition is concerned
	Partition int32
	Message   string // the broker's or our own explanation

	sentinel error
	protocol error // kerr value, nil if none
	cause    error // context error or the like, nil if none
}

// Error names the operation, the request, the partition and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "producer: %s: %v", e.Op, e.sentinel)
	if e.Request != "" {
		fmt.Fprintf(&b, " (%s", e.Request)
		if e.protocol != nil {
			fmt.Fprintf(&b, ": %v", e.protocol)
		}
		b.WriteString(")")
	}
	if e.Topic != "" {
		fmt.Fprintf(&b, ", %s-%d", e.Topic, e.Partition)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	return b.String()
}

// Unwrap returns the sentinel, the protocol error and the cause.
func (e *Error) Unwrap() []error {
	out := []error{e.sentinel}
	if e.protocol != nil {
		out = append(out, e.protocol)
	}
	if e.cause != nil {
		out = append(out, e.cause)
	}
	return out
}

// errorOf turns a failure of the core into an error; nil for none. A fatal
// producer wraps ErrFatal as well, whatever the reason was.
func (p *Producer) errorOf(op string, f core.Failure, cause error) error {
	if f.Reason == core.ReasonNone {
		return nil
	}
	e := &Error{Op: op, Message: f.Message, sentinel: sentinels[f.Reason], cause: cause}
	if f.Code != 0 || f.Request != core.ReqProduce {
		e.Request = f.Request.String()
	}
	if f.Code != 0 {
		e.protocol = kerr.ErrorForCode(f.Code)
	}
	if f.Reason == core.ReasonState {
		e.Request = ""
	}
	if parts := *p.partitions.Load(); f.Partition >= 0 && f.Partition < len(parts) {
		e.Topic, e.Partition = parts[f.Partition].topic, parts[f.Partition].number
	}
	return e
}
