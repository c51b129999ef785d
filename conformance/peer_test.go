//go:build conformance

// Package conformance_test runs Kafka's own command-line tools against a Hanbeon
// broker. It needs a JDK, and Maven for the first run: see kafka.sh.
//
// With HANBEON_CONTROL set to the HOST:PORT of an Apache Kafka node, and
// HANBEON_CONTROL_DATA to its data directory, the same tests run against that:
// what they expect of us is what Kafka does.
package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanbeon/hanbeon/broker"
)

// toolTimeout bounds one run of a Java tool, its start included.
const toolTimeout = 90 * time.Second

// peer is the broker under test.
type peer struct {
	bootstrap string
	dataDir   string
	// settle makes everything written so far visible in the files of dataDir. A
	// broker of our own is stopped for it, and stays so.
	settle func()
}

// newPeer starts a broker of our own on an empty directory, or takes the Apache
// Kafka node that the environment names.
func newPeer(t *testing.T) *peer {
	t.Helper()
	if control := os.Getenv("HANBEON_CONTROL"); control != "" {
		return &peer{bootstrap: control, dataDir: os.Getenv("HANBEON_CONTROL_DATA"), settle: func() {}}
	}
	dir := t.TempDir()
	b, err := broker.Open(t.Context(), broker.Config{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	stop := func() {
		if closed {
			return
		}
		closed = true
		if err := b.Close(); err != nil {
			t.Errorf("closing the broker: %v", err)
		}
	}
	t.Cleanup(stop)
	return &peer{bootstrap: b.Addr(), dataDir: dir, settle: stop}
}

// name makes a name that no other test, and no other run on the same peer, has.
func name(t *testing.T, what string) string {
	t.Helper()
	test := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-")
	return fmt.Sprintf("%s-%s-%d", test, what, time.Now().UnixMilli())
}

// java runs a tool and returns its standard output and its standard error.
func java(t *testing.T, stdin, class string, args ...string) (out, complaint string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./kafka.sh", append([]string{"run", class}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s %q was still running after %v", class, args, toolTimeout)
	}
	return stdout.String(), stderr.String(), err
}

// tool runs a tool that must succeed.
func (p *peer) tool(t *testing.T, class string, args ...string) string {
	t.Helper()
	out, complaint, err := java(t, "", "org.apache.kafka.tools."+class, append([]string{"--bootstrap-server", p.bootstrap}, args...)...)
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", class, args, err, shorten(out), shorten(complaint))
	}
	return out
}

// shorten keeps a failure readable.
func shorten(out string) string {
	const most = 3000
	if len(out) <= most {
		return out
	}
	return out[:most/2] + "\n[…]\n" + out[len(out)-most/2:]
}

// produce writes lines with the console producer.
func (p *peer) produce(t *testing.T, topic, lines string, args ...string) {
	t.Helper()
	args = append([]string{"--bootstrap-server", p.bootstrap, "--topic", topic}, args...)
	out, complaint, err := java(t, lines, "org.apache.kafka.tools.ConsoleProducer", args...)
	if err != nil || strings.Contains(complaint, "ERROR") {
		t.Fatalf("console producer %q: %v\n%s%s", args, err, shorten(out), shorten(complaint))
	}
}

// consumeIdleMs is how long the console consumer waits for more before it ends:
// first a time that is enough on a quiet machine, then one for a busy one.
var consumeIdleMs = []string{"4000", "40000"}

// consume reads with the console consumer until nothing comes for a while, and
// returns the lines in the order in which they came. Where some must come and
// none did, it tries again with more patience.
func (p *peer) consume(t *testing.T, topic string, some bool, args ...string) []string {
	t.Helper()
	var lines []string
	for _, idle := range consumeIdleMs {
		all := append([]string{"--topic", topic, "--from-beginning", "--timeout-ms", idle}, args...)
		for line := range strings.Lines(p.tool(t, "consumer.ConsoleConsumer", all...)) {
			// The 4.3 client advertises KIP-848 on standard output.
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "The consumer rebalance protocol (KIP-848)") {
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 || !some {
			break
		}
	}
	return lines
}

// createTopic creates a topic with Kafka's tool.
func (p *peer) createTopic(t *testing.T, topic string, partitions int) {
	t.Helper()
	p.tool(t, "TopicCommand", "--create", "--topic", topic, "--partitions", fmt.Sprint(partitions), "--replication-factor", "1")
}

// transactional returns a client for transactions, which Kafka's console
// producer cannot make.
func (p *peer) transactional(t *testing.T, id string) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.bootstrap), kgo.TransactionalID(id), kgo.TransactionTimeout(10*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// transact writes one transaction and ends it, or leaves it open where end is
// nil.
func transact(t *testing.T, client *kgo.Client, end *kgo.TransactionEndTry, topic string, values ...string) {
	t.Helper()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, value := range values {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if end == nil {
		return
	}
	if err := client.EndTransaction(t.Context(), *end); err != nil {
		t.Fatal(err)
	}
}

var (
	commit = kgo.TryCommit
	abort  = kgo.TryAbort
)

// commitOffsetInTransaction puts a group's offset into a transaction.
func commitOffsetInTransaction(t *testing.T, p *peer, group, input, output string) {
	t.Helper()
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(p.bootstrap), kgo.TransactionalID(group+"-id"),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(input), kgo.DefaultProduceTopic(output),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fetches := session.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	if err := session.Begin(); err != nil {
		t.Fatal(err)
	}
	fetches.EachRecord(func(r *kgo.Record) {
		session.Produce(ctx, &kgo.Record{Value: r.Value}, nil)
	})
	if committed, err := session.End(ctx, kgo.TryCommit); err != nil || !committed {
		t.Fatalf("committed %v, %v", committed, err)
	}
}

// endOffset is the high watermark of partition 0.
func (p *peer) endOffset(t *testing.T, topic string) int64 {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	return end.Offset
}

// files lists files of the data directory, wherever in it the logs lie.
func (p *peer) files(t *testing.T, partitionDir, pattern string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(p.dataDir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inDir, _ := filepath.Match(partitionDir, filepath.Base(filepath.Dir(path)))
		matches, _ := filepath.Match(pattern, entry.Name())
		if info, err := entry.Info(); inDir && matches && err == nil && info.Size() > 0 {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// mustContain fails the test unless each part is in out.
func mustContain(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), part) {
			t.Errorf("the output has no %q:\n%s", part, shorten(out))
		}
	}
}
