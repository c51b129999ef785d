package core

import "github.com/hanbeon/hanbeon/internal/batch"

// Event is something that happened.
type Event interface{ event() }

// The API calls. At most one of Init, Flush, Commit, Abort and Recover runs at
// a time; each ends with an OpDone effect. Begin is answered at once.
type (
	// InitEvent asks for an identity.
	InitEvent struct{}
	// BeginEvent opens a transaction.
	BeginEvent struct{}
	// AppendEvent hands over sealed batches, in order per partition.
	AppendEvent struct{ Batches []*Batch }
	// FlushEvent waits until every batch is acknowledged.
	FlushEvent struct{}
	// CommitEvent commits the open transaction; with Offsets, the shell holds
	// offsets that go with it.
	CommitEvent struct{ Offsets bool }
	// AbortEvent gives up the open transaction.
	AbortEvent struct{}
	// RecoverEvent resolves whatever is open at the coordinator.
	RecoverEvent struct{}
	// PoisonEvent reports a failure outside the machine, such as a record
	// that could not be encoded.
	PoisonEvent struct{ Failure Failure }
	// CancelEvent says that the caller stopped waiting for its operation.
	CancelEvent struct{}
	// TickEvent is time passing; the shell sends it when a Wake is due.
	TickEvent struct{}
)

// WrittenEvent says that a Produce request reached its connection's queue, so
// that a later request cannot overtake it.
type WrittenEvent struct{ Request int64 }

// ProduceReplyEvent ends a Produce request. With Lost set there was no answer
// and the batches may or may not have been appended.
type ProduceReplyEvent struct {
	Request    int64
	Lost       bool
	ThrottleMs int64
	// Results are in the order of the request's batches.
	Results []ProduceResult
}

// ProduceResult is the answer for one batch. Missing is a partition that the
// broker's answer left out.
type ProduceResult struct {
	Missing    bool
	Code       int16
	BaseOffset batch.Offset
	Message    string
}

// ControlReplyEvent ends a control request.
type ControlReplyEvent struct {
	Request int64
	// Lost: no answer; the broker may or may not have acted. NotSent: no
	// answer and certainly nothing was written.
	Lost, NotSent bool
	// Unsupported: the broker or the client's version caps have no version
	// of this request that is safe.
	Unsupported bool
	Code        int16
	Message     string
	// Codes holds per-partition codes (AddPartitionsToTxn, TxnOffsetCommit).
	Codes []int16

	Node     int32        // FindCoordinator
	Identity Identity     // InitProducerId, EndTxn v5
	Settled  bool         // DescribeTransactions: no transaction is completing
	Features Features     // ApiVersions
	Leaders  []LeaderInfo // Metadata
}

// Features is what the transaction coordinator's ApiVersions answer said,
// lowered to the client's own caps.
type Features struct {
	// TransactionVersion is the finalized level of transaction.version, 0
	// where there is none.
	TransactionVersion int16
	// The highest versions; -1 where the request is missing.
	ProduceMax, InitProducerIDMax, TxnOffsetCommitMax, EndTxnMax int16
}

// LeaderInfo is one partition in a Metadata answer.
type LeaderInfo struct {
	Partition int
	Code      int16
	Node      int32
	// Recreated: the topic's id is not the one seen before.
	Recreated bool
}

func (InitEvent) event()         {}
func (BeginEvent) event()        {}
func (AppendEvent) event()       {}
func (FlushEvent) event()        {}
func (CommitEvent) event()       {}
func (AbortEvent) event()        {}
func (RecoverEvent) event()      {}
func (PoisonEvent) event()       {}
func (CancelEvent) event()       {}
func (TickEvent) event()         {}
func (WrittenEvent) event()      {}
func (ProduceReplyEvent) event() {}
func (ControlReplyEvent) event() {}

// Failure is why something went wrong. The zero value is no failure.
type Failure struct {
	Reason    Reason
	Request   Request
	Code      int16
	Message   string
	Partition int // index, or -1
}

// Effect is something for the shell to do.
type Effect interface{ effect() }

// The effects.
type (
	// SendProduce sends one Produce request; the shell answers with
	// WrittenEvent and ProduceReplyEvent.
	SendProduce struct {
		Request int64
		Node    int32
		// VersionMax caps the request's version, 0 for no cap; VersionMin
		// refuses a lower one.
		VersionMax, VersionMin int16
		Batches                []*Batch
	}
	// SendControl sends one control request; the shell answers with
	// ControlReplyEvent. Node is NoNode where any broker will do.
	SendControl struct {
		Request    int64
		Kind       Request
		Node       int32
		VersionMax int16
		VersionMin int16
		Identity   Identity
		Commit     bool  // EndTxn
		Partitions []int // AddPartitionsToTxn, Metadata
	}
	// CancelControl gives up a control request; its reply is ignored.
	CancelControl struct{ Request int64 }
	// Release returns a batch to the shell. Acked batches ended at LastOffset
	// (-1 where the broker did not say).
	Release struct {
		Batch      *Batch
		Acked      bool
		LastOffset batch.Offset
	}
	// Poisoned says that the open transaction can no longer commit.
	Poisoned struct{ Failure Failure }
	// Healthy says that a poisoned or unresolved producer is usable again.
	Healthy struct{}
	// OpDone ends an operation. A zero Failure is success.
	OpDone struct {
		Outcome Outcome
		Failure Failure
	}
	// Wake asks for a TickEvent at AtMs; it replaces the previous one. A
	// negative AtMs cancels it.
	Wake struct{ AtMs int64 }
	// Retried counts a resend for the shell's statistics.
	Retried struct {
		Kind Request
		Code int16
	}
)

func (SendProduce) effect()   {}
func (SendControl) effect()   {}
func (CancelControl) effect() {}
func (Release) effect()       {}
func (Poisoned) effect()      {}
func (Healthy) effect()       {}
func (OpDone) effect()        {}
func (Wake) effect()          {}
func (Retried) effect()       {}
