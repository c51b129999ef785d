//go:build conformance

package conformance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// complaints are what DumpLogSegments prints of a file that is not right.
var complaints = []string{
	"isvalid: false", "Mismatches in :", "Index timestamp mismatches", "Non-consecutive offsets", "Could not decode",
	"Exception", "Found timestamp mismatch", "Found out of order timestamp", "not yet readable", "WARNING", "ERROR",
}

// dump runs kafka-dump-log on files and fails the test if it complains.
func dump(t *testing.T, files []string, args ...string) string {
	t.Helper()
	if len(files) == 0 {
		t.Fatalf("no files to dump with %q", args)
	}
	args = append([]string{"--files", strings.Join(files, ",")}, args...)
	out, stderr, err := java(t, "", "org.apache.kafka.tools.DumpLogSegments", args...)
	if err != nil {
		t.Fatalf("kafka-dump-log %q: %v\n%s%s", args, err, shorten(out), shorten(stderr))
	}
	for _, complaint := range complaints {
		if strings.Contains(out+stderr, complaint) {
			t.Errorf("kafka-dump-log %q complains with %q:\n%s%s", args, complaint, shorten(out), shorten(stderr))
		}
	}
	return out
}

// States of a transaction as the records of __transaction_state number them
// (TransactionState.id).
const (
	ongoing        = "1"
	completeCommit = "4"
	completeAbort  = "5"
)

// TestKafkaDumpLogReadsOurFiles writes committed, aborted and open transactions,
// compressed batches and offsets in and out of transactions, and has Kafka's
// tool read every file that came of it.
func TestKafkaDumpLogReadsOurFiles(t *testing.T) {
	p := newPeer(t)
	input, output, group, id := name(t, "input"), name(t, "output"), name(t, "group"), name(t, "id")
	p.createTopic(t, input, 1)
	p.createTopic(t, output, 1)
	client := p.transactional(t, id)
	transact(t, client, &commit, input, "committed")
	transact(t, client, &abort, input, "aborted")
	p.produce(t, input, strings.Repeat("a line that compresses well\n", 2000), "--compression-codec", "zstd")
	p.produce(t, input, strings.Repeat("plain lines, enough of them for entries in the indexes\n", 2000)) // one entry per 4 KiB
	p.consume(t, input, true, "--group", name(t, "plain-group"), "--max-messages", "1")
	commitOffsetInTransaction(t, p, group, input, output)
	transact(t, client, nil, input, "open")
	end := p.endOffset(t, input)
	p.settle()

	t.Run("segments", func(t *testing.T) {
		out := dump(t, p.files(t, input+"-0", "*.log"), "--deep-iteration", "--print-data-log")
		mustContain(t, out, "payload: committed", "payload: aborted", "payload: open", "a line that compresses well",
			"compresscodec: zstd", "isTransactional: true", "endTxnMarker: COMMIT", "endTxnMarker: ABORT")
		if records := strings.Count(out, "| offset: "); int64(records) != end {
			t.Errorf("%d records in the dump, the log ends at offset %d", records, end)
		}
	})
	t.Run("offset and time indexes", func(t *testing.T) {
		dump(t, p.files(t, input+"-0", "*.index"), "--index-sanity-check")
		dump(t, p.files(t, input+"-0", "*.index"), "--verify-index-only")
		if os.Getenv("HANBEON_CONTROL") == "" { // Kafka's is cut to its length at a clean stop only
			dump(t, p.files(t, input+"-0", "*.timeindex"))
		}
	})
	t.Run("transaction index", func(t *testing.T) {
		mustContain(t, dump(t, p.files(t, input+"-0", "*.txnindex")), "producerId:", "firstOffset:", "lastStableOffset:")
	})
	t.Run("producer snapshots", func(t *testing.T) {
		snapshots := p.files(t, input+"-0", "*.snapshot")
		if len(snapshots) == 0 && os.Getenv("HANBEON_CONTROL") != "" {
			return // Kafka writes one when a segment rolls and at a clean stop
		}
		mustContain(t, dump(t, snapshots), "producerId:", "producerEpoch:")
	})
	t.Run("transaction state topic", func(t *testing.T) {
		out := dump(t, p.files(t, "__transaction_state-*", "*.log"), "--transaction-log-decoder", "--deep-iteration")
		mustContain(t, out, id, `"transactionStatus":`+ongoing, `"transactionStatus":`+completeCommit, `"transactionStatus":`+completeAbort)
	})
	t.Run("offsets topic", func(t *testing.T) {
		out := dump(t, p.files(t, "__consumer_offsets-*", "*.log"), "--offsets-decoder", "--deep-iteration")
		mustContain(t, out, group, input, "endTxnMarker: COMMIT")
	})
}
