package txn

import "math"

// Error codes of the Kafka protocol that the coordinator answers or receives.
const (
	codeNone                    int16 = 0
	codeCorruptMessage          int16 = 2
	codeUnknownTopicOrPartition int16 = 3
	codeNotLeaderOrFollower     int16 = 6
	codeRequestTimedOut         int16 = 7
	codeMessageTooLarge         int16 = 10
	codeLoadInProgress          int16 = 14
	codeCoordinatorNotAvailable int16 = 15
	codeNotCoordinator          int16 = 16
	codeRecordListTooLarge      int16 = 18
	codeNotEnoughReplicas       int16 = 19
	codeNotEnoughReplicasAfter  int16 = 20
	codeInvalidRequiredAcks     int16 = 21
	codeUnsupportedVersion      int16 = 35
	codeInvalidRequest          int16 = 42
	codeUnsupportedForFormat    int16 = 43
	codeInvalidProducerEpoch    int16 = 47
	codeInvalidTxnState         int16 = 48
	codeInvalidProducerMapping  int16 = 49
	codeInvalidTxnTimeout       int16 = 50
	codeConcurrentTransactions  int16 = 51
	codeCoordinatorFenced       int16 = 52
	codeTransactionalIDAuth     int16 = 53
	codeStorageError            int16 = 56
	codeProducerFenced          int16 = 90
	codeTransactionalIDNotFound int16 = 105
	codeTransactionAbortable    int16 = 120
	codeInvalidRegex            int16 = 128
)

// Keys of the requests that reach the coordinator.
const (
	keyInitProducerID     int16 = 22
	keyAddPartitionsToTxn int16 = 24
	keyAddOffsetsToTxn    int16 = 25
	keyEndTxn             int16 = 26
)

// WireCode maps a code of [Reply] to what a client of the given request version
// understands. Only PRODUCER_FENCED (90) is mapped, to INVALID_PRODUCER_EPOCH
// (47): for InitProducerId below v4, and for AddPartitionsToTxn, AddOffsetsToTxn
// and EndTxn below v2 (KIP-588). Produce and TxnOffsetCommit map it always, by
// their own rules.
func WireCode(apiKey, version, code int16) int16 {
	if code != codeProducerFenced {
		return code
	}
	switch apiKey {
	case keyInitProducerID:
		if version < 4 {
			return codeInvalidProducerEpoch
		}
	case keyAddPartitionsToTxn, keyAddOffsetsToTxn, keyEndTxn:
		if version < 2 {
			return codeInvalidProducerEpoch
		}
	}
	return code
}

const (
	// maxEpoch is kept for fencing; a client never gets it.
	maxEpoch = math.MaxInt16
	// lastClientEpoch is the last epoch a client can get. A producer that holds
	// it has exhausted its producer id.
	lastClientEpoch = maxEpoch - 1
	// noTimeoutMs marks a two-phase-commit transaction (KIP-939), which the
	// coordinator never ends by itself.
	noTimeoutMs = math.MaxInt32
)
