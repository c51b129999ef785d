package runtime

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// action is what the worker does about an error.
type action int

const (
	// actRetry: the same again later; nothing was lost.
	actRetry action = iota
	// actReplay: abort, drop the overlays, process again from the committed offsets.
	actReplay
	// actRejoin: as actReplay, but not before the group has given the worker
	// its membership back.
	actRejoin
	// actRebuild: as actReplay, with a producer initialised anew under the same id.
	actRebuild
	// actStop: nothing the worker does would help; Run returns the error.
	actStop
)

var actionNames = [...]string{"retry", "replay", "rejoin", "rebuild", "stop"}

// String names the action.
func (a action) String() string { return actionNames[a] }

// errorRow is one row of the table below.
type errorRow struct {
	err    error
	action action
	cause  string // for Stats.Aborts
	remedy string // for errors that stop the worker
}

// errorTable maps errors to actions; the first row that matches decides. What
// matches none stops the worker: carrying on after an error that nobody
// understood could break the guarantee.
var errorTable = []errorRow{
	{producer.ErrFenced, actRebuild, causeFenced, ""},
	{producer.ErrRebalanced, actRejoin, causeLost, ""},
	{producer.ErrTimedOutByCoordinator, actReplay, causeTimeout, ""},
	{producer.ErrMappingLost, actRebuild, causeCoordinator, ""},
	{producer.ErrSequence, actRebuild, causeFlush, ""},
	{producer.ErrDeliveryTimeout, actReplay, causeFlush, ""},
	{producer.ErrTimeout, actRebuild, causeCoordinator, ""},
	{producer.ErrTopicRecreated, actRebuild, causeFlush, ""},
	{producer.ErrUnauthorized, actStop, "", "allow the principal Write on the sinks and internal topics and on the transactional id, and Read on the group"},
	{producer.ErrUnknownTopic, actStop, "", "a topic that the application writes to was deleted"},
	{producer.ErrRecordTooLarge, actStop, "", "raise the topic's max.message.bytes or write smaller values"},
	{producer.ErrInvalidRecord, actStop, "", "the broker refuses the record: a compacted topic needs keys, and timestamps must lie within the topic's bounds"},
	{producer.ErrUnsupported, actStop, "", "the cluster is too old: exactly-once needs Kafka 2.5"},
	{producer.ErrInvalidConfig, actStop, "", "TransactionTimeout may not be above the brokers' transaction.max.timeout.ms"},
	{producer.ErrCanceled, actReplay, causeFlush, ""},
	{producer.ErrFatal, actRebuild, causeFenced, ""},
	{producer.ErrAbortable, actReplay, causeCoordinator, ""},
	{producer.ErrState, actRebuild, causeCoordinator, ""},

	{kerr.IllegalGeneration, actRejoin, causeLost, ""},
	{kerr.UnknownMemberID, actRejoin, causeLost, ""},
	{kerr.FencedInstanceID, actRejoin, causeLost, ""},
	{kerr.RebalanceInProgress, actRetry, causeRebalance, ""},

	{kerr.GroupAuthorizationFailed, actStop, "", "allow the principal to read the group (ACL: Read on Group, named as the application id)"},
	{kerr.TopicAuthorizationFailed, actStop, "", "allow the principal to read the sources, write the sinks, and create, read and write the internal topics"},
	{kerr.ClusterAuthorizationFailed, actStop, "", "allow the principal the operation on the cluster"},
	{kerr.InconsistentGroupProtocol, actStop, "", "the group is used by members of another kind: give the application an id of its own"},
	{kerr.GroupMaxSizeReached, actStop, "", "the group is full: run fewer workers or raise the brokers' group.max.size"},
	{kerr.InvalidSessionTimeout, actStop, "", "choose a SessionTimeout between the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"},
	{kerr.UnsupportedVersion, actStop, "", "the cluster is too old"},
	{kerr.InvalidTopicException, actStop, "", "name a legal topic"},
	{kerr.PolicyViolation, actStop, "", "the cluster's policy refuses the request"},
	{ErrMemberVersion, actStop, "", "run one version of the program, or upgrade the older members first"},
}

// decide finds the action for an error.
func decide(err error) errorRow {
	for _, row := range errorTable {
		if errors.Is(err, row.err) {
			return row
		}
	}
	if transient(err) {
		return errorRow{err: err, action: actReplay, cause: causeCoordinator}
	}
	return errorRow{err: err, action: actStop}
}

// transientErrors are the broker's answers after which the same request may be
// sent again. kerr's own Retriable is not used: it is about other clients' needs.
var transientErrors = []error{
	kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.RequestTimedOut,
	kerr.ReplicaNotAvailable, kerr.NetworkException, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable,
	kerr.NotCoordinator, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotController,
	kerr.KafkaStorageError, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.ListenerNotFound,
	kerr.OffsetNotAvailable, kerr.PreferredLeaderNotAvailable, kerr.ConcurrentTransactions,
	kerr.ThrottlingQuotaExceeded, kerr.UnknownTopicID, kerr.InconsistentTopicID, errUnstable,
}

// brokenConnection are the ends of a connection that kgo gives up on: it takes
// an end before the first reply for bad credentials, and does not know pipes. A
// broker that is just being restarted does the same; what is really wrong with
// the credentials shows when the App looks its topics up.
var brokenConnection = []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed}

// transient says whether the request that failed may simply be sent again:
// the connection broke, or the broker asks for patience.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	for _, t := range transientErrors {
		if errors.Is(err, t) {
			return true
		}
	}
	var coded *kerr.Error
	if errors.As(err, &coded) {
		return false
	}
	for _, t := range brokenConnection {
		if errors.Is(err, t) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network) || kgo.IsRetryableBrokerErr(err) || errors.Is(err, context.DeadlineExceeded)
}
