package txn

import "github.com/hanbeon/hanbeon/internal/batch"

// Token identifies a request that waits for an answer; 0 is none. The machine
// only hands it back.
type Token uint64

// Command is what [Machine.Decide] takes.
type Command interface{ command() }

// Init is InitProducerId for a transactional id. (Without one, the broker hands
// out a producer id by itself.)
type Init struct {
	Token           Token
	TransactionalID string
	TimeoutMs       int32
	ProducerID      batch.ProducerID // -1: none given
	Epoch           batch.Epoch      // -1: none given
	Version         int16
	KeepPrepared    bool // KIP-939, refused with 35
	Enable2PC       bool // KIP-939, refused with 53
}

// AddPartitions adds partitions to the transaction, or with VerifyOnly asks
// whether they are part of it. It serves AddPartitionsToTxn, AddOffsetsToTxn
// (with the group's `__consumer_offsets` partition), and in the process the
// implicit add and the verification of Produce and TxnOffsetCommit (KIP-890).
type AddPartitions struct {
	Token           Token
	TransactionalID string
	ProducerID      batch.ProducerID
	Epoch           batch.Epoch
	Partitions      []batch.TopicPartition // in any order, repeats allowed
	VerifyOnly      bool
	TV2             bool // the client uses transaction version 2
	// Wait parks the command while markers are under way, and decides it again
	// after Complete, where it would else be answered 51.
	Wait bool
}

// EndTxn decides the transaction. Version 5 and above is transaction version 2:
// the epoch is bumped and the answer carries the pair to go on with.
type EndTxn struct {
	Token           Token
	TransactionalID string
	ProducerID      batch.ProducerID
	Epoch           batch.Epoch
	Commit          bool
	Version         int16
}

// MarkersWritten brings the answers of partitions to a [MarkerBatch]. Every
// partition of every MarkerBatch must be answered once; a shard that cannot
// write now answers 6, and one whose partition does not exist answers 3.
type MarkersWritten struct {
	TransactionalID string
	ProducerID      batch.ProducerID // as in the MarkerBatch
	Epoch           batch.Epoch      // as in the MarkerBatch
	Partitions      []PartitionResult
}

// Tick does what time asks for: aborts transactions past their timeout, repeats
// markers, expires idle transactional ids, and answers commands parked too long.
// It is harmless at any time, and due at [Effects].DeadlineMs.
type Tick struct{}

// Resume follows the boot replay: it sends all markers of each prepared
// transaction again.
type Resume struct{}

func (Init) command()           {}
func (AddPartitions) command()  {}
func (EndTxn) command()         {}
func (MarkersWritten) command() {}
func (Tick) command()           {}
func (Resume) command()         {}

// PartitionResult is an error code for one partition.
type PartitionResult struct {
	batch.TopicPartition
	Code int16
}

// Effects is what [Machine.Decide] wants done, in the order of its fields.
type Effects struct {
	// Fatal is a broken invariant or an answer that can only be a bug. If set,
	// nothing else is, and the shard must stop.
	Fatal error
	// Records are to be appended and applied at once, before the next Decide.
	Records []Record
	// Replies wait until the log end seen at Decide is durable.
	Replies []Reply
	// Markers go to the partitions' shards. They need not wait for durability
	// if the journal keeps the order of appends across partitions.
	Markers []MarkerBatch
	// Requeue lists commands to decide after Records are applied, in order.
	Requeue []Command
	// Stalled reports markers that a partition refused for good.
	Stalled []StalledMarker
	// DeadlineMs is when Tick is wanted next; 0: not at all.
	DeadlineMs int64
}

// Reply answers the request of a Token. Which fields count depends on the
// command: ProducerID and Epoch for Init and EndTxn v5+ with code 0 (else -1),
// Partitions for AddPartitions.
type Reply struct {
	Token      Token
	Code       int16
	Message    string // for people; may be empty
	ProducerID batch.ProducerID
	Epoch      batch.Epoch
	Partitions []PartitionResult // sorted; each with Code, or its own code for VerifyOnly
}

// MarkerBatch asks for one marker in each partition (WriteTxnMarkers).
type MarkerBatch struct {
	TransactionalID  string
	ProducerID       batch.ProducerID
	Epoch            batch.Epoch
	Commit           bool
	CoordinatorEpoch int32
	// TV2 selects the partition's epoch rule (KIP-1228): the marker's epoch is
	// then above that of the transaction it closes.
	TV2        bool
	Partitions []batch.TopicPartition
}

// StalledMarker is a marker that a partition refused with a newer producer epoch
// (47) or coordinator epoch (52). Its transaction stays prepared, and its
// producer gets 51, until a restart tries again.
type StalledMarker struct {
	TransactionalID string
	PartitionResult
}
