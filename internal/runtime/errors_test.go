package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/hanbeon/hanbeon/internal/producer"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Each error and what the worker must do about it, written apart from the table.
func TestErrorTable(t *testing.T) {
	want := map[action][]error{
		actRetry: {kerr.RebalanceInProgress},
		actReplay: {
			producer.ErrTimedOutByCoordinator, producer.ErrDeliveryTimeout, producer.ErrAbortable, producer.ErrCanceled,
			kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, io.EOF, errUnstable,
		},
		actRejoin: {producer.ErrRebalanced, errMembership, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID},
		actRebuild: {
			producer.ErrFenced, producer.ErrMappingLost, producer.ErrSequence, producer.ErrTimeout,
			producer.ErrTopicRecreated, producer.ErrFatal, producer.ErrState,
		},
		actStop: {
			producer.ErrUnauthorized, producer.ErrUnknownTopic, producer.ErrRecordTooLarge, producer.ErrInvalidRecord,
			producer.ErrUnsupported, producer.ErrInvalidConfig,
			kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
			kerr.InconsistentGroupProtocol, kerr.GroupMaxSizeReached, kerr.InvalidSessionTimeout,
			kerr.UnsupportedVersion, kerr.InvalidTopicException, kerr.PolicyViolation,
			ErrMemberVersion, errors.New("something nobody knows"),
		},
	}
	tested := make(map[error]bool)
	for action, errs := range want {
		for _, err := range errs {
			tested[err] = true
			row := decide(fmt.Errorf("wrapped: %w", err))
			if row.action != action {
				t.Errorf("%v: %s, want %s", err, row.action, action)
			}
			if row.action != actStop && row.action != actRetry && !slices.Contains(abortCauses, row.cause) {
				t.Errorf("%v: cause %q is not one that Stats counts", err, row.cause)
			}
		}
	}
	for _, row := range errorTable {
		if !tested[row.err] {
			t.Errorf("no test for the row of %v", row.err)
		}
		if row.action == actStop && row.remedy == "" {
			t.Errorf("%v stops the worker without naming a remedy", row.err)
		}
	}
}

func TestTransientErrors(t *testing.T) {
	for _, err := range transientErrors {
		if !transient(fmt.Errorf("wrapped: %w", err)) {
			t.Errorf("%v: not transient", err)
		}
	}
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for err, want := range map[error]bool{
		refused: true, io.EOF: true, io.ErrUnexpectedEOF: true, io.ErrClosedPipe: true, net.ErrClosed: true, context.DeadlineExceeded: true,
		context.Canceled: false, kerr.TopicAuthorizationFailed: false, kerr.UnknownServerError: false, errors.New("x"): false,
	} {
		if got := transient(err); got != want {
			t.Errorf("transient(%v) = %v, want %v", err, got, want)
		}
	}
}
