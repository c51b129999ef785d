package core

// Request is the kind of a request the machine sends.
type Request uint8

// The kinds, in the order in which the machine looks at them.
const (
	ReqProduce Request = iota
	ReqMetadata
	ReqFindTxnCoordinator
	ReqFindGroupCoordinator
	ReqFeatures
	ReqInitProducerID
	ReqDescribeTransaction
	ReqAddPartitions
	ReqAddOffsets
	ReqTxnOffsetCommit
	ReqEndTxn
	requestKinds
)

var requestNames = [requestKinds]string{
	"Produce", "Metadata", "FindCoordinator(transaction)", "FindCoordinator(group)", "ApiVersions",
	"InitProducerId", "DescribeTransactions", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn",
}

// String is the request's Kafka name.
func (r Request) String() string {
	if r < requestKinds {
		return requestNames[r]
	}
	return "unknown request"
}

// Action is what the machine does about an error code.
type Action uint8

// The actions.
const (
	ActOK        Action = iota
	ActRetry            // send again after a backoff
	ActRefresh          // the leader or coordinator is stale: look it up, then send again
	ActDuplicate        // the batch was already there: success
	ActGap              // OUT_OF_ORDER_SEQUENCE_NUMBER: resend in order, or abort if nothing is missing
	ActAbort            // the transaction can only be aborted; the producer goes on afterwards
	ActFail             // the operation fails and may be called again
	ActFenced           // another producer owns the id
	ActFatal            // nothing but Close helps
)

// Reason says why something failed, for the caller to branch on.
type Reason uint8

// The reasons.
const (
	ReasonNone Reason = iota
	ReasonFenced
	ReasonRebalanced
	ReasonTimedOutByCoordinator
	ReasonRecordTooLarge
	ReasonInvalidRecord
	ReasonTopicRecreated
	ReasonUnknownTopic
	ReasonUnauthorized
	ReasonSequence
	ReasonMappingLost
	ReasonDeliveryTimeout
	ReasonTimeout
	ReasonCanceled
	ReasonUnsupported
	ReasonInvalidConfig
	ReasonAppend
	ReasonState
	ReasonAbortable
	ReasonFatal
)

// Verdict is the table's answer for one code.
type Verdict struct {
	Action Action
	Reason Reason
}

var (
	retry   = Verdict{Action: ActRetry}
	refresh = Verdict{Action: ActRefresh}
	fenced  = Verdict{ActFenced, ReasonFenced}
)

func abort(r Reason) Verdict { return Verdict{ActAbort, r} }
func fail(r Reason) Verdict  { return Verdict{ActFail, r} }
func fatal(r Reason) Verdict { return Verdict{ActFatal, r} }

// VerdictFor returns what an error code means as the answer to a request.
// kerr's Retriable is deliberately not consulted: it says whether a code is
// transient in general, not what this request may do about it.
func VerdictFor(r Request, code int16) Verdict {
	if code == 0 {
		return Verdict{Action: ActOK}
	}
	if v, ok := codeTable[r][code]; ok {
		return v
	}
	return codeDefault[r]
}

// codeDefault answers for codes the table does not list.
var codeDefault = [requestKinds]Verdict{
	ReqProduce:              abort(ReasonAbortable),
	ReqMetadata:             retry,
	ReqFindTxnCoordinator:   fail(ReasonFatal),
	ReqFindGroupCoordinator: abort(ReasonAbortable),
	ReqFeatures:             fail(ReasonUnsupported),
	ReqInitProducerID:       fail(ReasonFatal),
	ReqDescribeTransaction:  fail(ReasonUnsupported), // the machine stops asking
	ReqAddPartitions:        abort(ReasonAbortable),
	ReqAddOffsets:           abort(ReasonAbortable),
	ReqTxnOffsetCommit:      abort(ReasonAbortable),
	ReqEndTxn:               fatal(ReasonFatal),
}

// codeTable is the policy per request and protocol code. The sources are the
// Java client's TransactionManager and Sender, KIP-360, KIP-447, KIP-890 and
// KIP-1050.
var codeTable = [requestKinds]map[int16]Verdict{
	ReqProduce: {
		2:   retry,                              // CORRUPT_MESSAGE: damaged on the way
		3:   refresh,                            // UNKNOWN_TOPIC_OR_PARTITION: may not have spread yet
		5:   refresh,                            // LEADER_NOT_AVAILABLE
		6:   refresh,                            // NOT_LEADER_OR_FOLLOWER
		7:   retry,                              // REQUEST_TIMED_OUT: may be appended
		8:   refresh,                            // BROKER_NOT_AVAILABLE
		9:   refresh,                            // REPLICA_NOT_AVAILABLE
		10:  abort(ReasonRecordTooLarge),        // MESSAGE_TOO_LARGE
		13:  refresh,                            // NETWORK_EXCEPTION
		14:  retry,                              // COORDINATOR_LOAD_IN_PROGRESS
		15:  retry,                              // COORDINATOR_NOT_AVAILABLE
		16:  retry,                              // NOT_COORDINATOR: the leader's view, not ours
		17:  abort(ReasonInvalidConfig),         // INVALID_TOPIC_EXCEPTION
		18:  abort(ReasonRecordTooLarge),        // RECORD_LIST_TOO_LARGE
		19:  retry,                              // NOT_ENOUGH_REPLICAS
		20:  retry,                              // NOT_ENOUGH_REPLICAS_AFTER_APPEND
		21:  fatal(ReasonFatal),                 // INVALID_REQUIRED_ACKS: we always send -1
		29:  abort(ReasonUnauthorized),          // TOPIC_AUTHORIZATION_FAILED
		31:  abort(ReasonUnauthorized),          // CLUSTER_AUTHORIZATION_FAILED
		32:  abort(ReasonInvalidRecord),         // INVALID_TIMESTAMP
		35:  fatal(ReasonUnsupported),           // UNSUPPORTED_VERSION
		42:  fatal(ReasonFatal),                 // INVALID_REQUEST
		43:  abort(ReasonInvalidConfig),         // UNSUPPORTED_FOR_MESSAGE_FORMAT
		44:  abort(ReasonInvalidRecord),         // POLICY_VIOLATION
		45:  {ActGap, ReasonSequence},           // OUT_OF_ORDER_SEQUENCE_NUMBER
		46:  {ActDuplicate, ReasonNone},         // DUPLICATE_SEQUENCE_NUMBER
		47:  abort(ReasonAbortable),             // INVALID_PRODUCER_EPOCH: timed out or replaced, the abort tells
		48:  abort(ReasonTimedOutByCoordinator), // INVALID_TXN_STATE
		49:  abort(ReasonMappingLost),           // INVALID_PRODUCER_ID_MAPPING
		51:  retry,                              // CONCURRENT_TRANSACTIONS: the last one still completes (v12+)
		53:  fatal(ReasonUnauthorized),          // TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		56:  refresh,                            // KAFKA_STORAGE_ERROR
		59:  abort(ReasonSequence),              // UNKNOWN_PRODUCER_ID: brokers before 2.5
		74:  refresh,                            // FENCED_LEADER_EPOCH
		75:  refresh,                            // UNKNOWN_LEADER_EPOCH
		76:  abort(ReasonInvalidConfig),         // UNSUPPORTED_COMPRESSION_TYPE
		87:  abort(ReasonInvalidRecord),         // INVALID_RECORD
		89:  retry,                              // THROTTLING_QUOTA_EXCEEDED
		90:  fenced,                             // PRODUCER_FENCED
		100: abort(ReasonTopicRecreated),        // UNKNOWN_TOPIC_ID
		103: abort(ReasonTopicRecreated),        // INCONSISTENT_TOPIC_ID
		120: abort(ReasonAbortable),             // TRANSACTION_ABORTABLE
	},
	ReqMetadata: {
		17: abort(ReasonInvalidConfig), // INVALID_TOPIC_EXCEPTION
		29: abort(ReasonUnauthorized),  // TOPIC_AUTHORIZATION_FAILED
	},
	ReqFindTxnCoordinator: {
		-1: retry,
		7:  retry, 13: retry, 14: retry, 15: retry,
		35: fatal(ReasonUnsupported),
		42: fatal(ReasonInvalidConfig),
		53: fail(ReasonUnauthorized),
	},
	ReqFindGroupCoordinator: {
		-1: retry,
		7:  retry, 13: retry, 14: retry, 15: retry,
		24: abort(ReasonInvalidConfig), // INVALID_GROUP_ID
		30: abort(ReasonUnauthorized),  // GROUP_AUTHORIZATION_FAILED
		35: fatal(ReasonUnsupported),
	},
	ReqFeatures: {-1: retry, 7: retry, 13: retry},
	ReqInitProducerID: {
		-1: retry,
		7:  retry, 13: retry, 14: retry,
		15: refresh, 16: refresh,
		31:  fail(ReasonUnauthorized),
		35:  fatal(ReasonUnsupported),
		42:  fatal(ReasonInvalidConfig),
		47:  fenced, // INVALID_PRODUCER_EPOCH: the old name, up to v3
		49:  fail(ReasonMappingLost),
		50:  fatal(ReasonInvalidConfig), // INVALID_TRANSACTION_TIMEOUT
		51:  retry,                      // the coordinator is ending the previous transaction
		53:  fail(ReasonUnauthorized),
		89:  retry,
		90:  fenced,
		120: fail(ReasonAbortable),
	},
	ReqDescribeTransaction: {-1: retry, 7: retry, 13: retry, 14: retry, 15: refresh, 16: refresh},
	ReqAddPartitions: {
		-1: retry,
		3:  retry, 7: retry, 13: retry, 14: retry,
		15: refresh, 16: refresh,
		29:  abort(ReasonUnauthorized),
		35:  fatal(ReasonUnsupported),
		47:  fenced, // up to v1
		48:  abort(ReasonTimedOutByCoordinator),
		49:  abort(ReasonMappingLost),
		51:  retry,
		53:  fatal(ReasonUnauthorized),
		55:  abort(ReasonAbortable), // OPERATION_NOT_ATTEMPTED: another partition failed
		90:  fenced,
		120: abort(ReasonAbortable),
	},
	ReqAddOffsets: {
		-1: retry,
		7:  retry, 13: retry, 14: retry,
		15: refresh, 16: refresh,
		24:  abort(ReasonInvalidConfig),
		30:  abort(ReasonUnauthorized),
		35:  fatal(ReasonUnsupported),
		47:  fenced, // up to v1
		48:  abort(ReasonTimedOutByCoordinator),
		49:  abort(ReasonMappingLost),
		51:  retry,
		53:  fatal(ReasonUnauthorized),
		90:  fenced,
		120: abort(ReasonAbortable),
	},
	ReqTxnOffsetCommit: {
		3: retry, 7: retry, 13: retry, 14: retry, 51: retry,
		15: refresh, 16: refresh,
		12:  abort(ReasonInvalidConfig), // OFFSET_METADATA_TOO_LARGE
		22:  abort(ReasonRebalanced),    // ILLEGAL_GENERATION
		24:  abort(ReasonInvalidConfig),
		25:  abort(ReasonRebalanced),    // UNKNOWN_MEMBER_ID
		27:  abort(ReasonRebalanced),    // REBALANCE_IN_PROGRESS
		28:  abort(ReasonInvalidConfig), // INVALID_COMMIT_OFFSET_SIZE
		29:  abort(ReasonUnauthorized),
		30:  abort(ReasonUnauthorized),
		35:  fatal(ReasonUnsupported),
		47:  abort(ReasonAbortable), // timed out or replaced, the abort tells
		48:  abort(ReasonTimedOutByCoordinator),
		49:  abort(ReasonMappingLost),
		53:  fatal(ReasonUnauthorized),
		69:  abort(ReasonRebalanced), // GROUP_ID_NOT_FOUND
		82:  abort(ReasonRebalanced), // FENCED_INSTANCE_ID
		90:  fenced,
		110: abort(ReasonRebalanced), // FENCED_MEMBER_EPOCH
		113: abort(ReasonRebalanced), // STALE_MEMBER_EPOCH
		120: abort(ReasonAbortable),
	},
	ReqEndTxn: {
		-1: retry, // the decision may have been written
		7:  retry, 13: retry, 14: retry, 51: retry,
		15: refresh, 16: refresh,
		35:  fatal(ReasonUnsupported),
		47:  fenced, // up to v1
		48:  abort(ReasonTimedOutByCoordinator),
		49:  abort(ReasonMappingLost),
		53:  fatal(ReasonUnauthorized),
		90:  fenced,
		120: abort(ReasonAbortable),
	},
}
