//go:build conformance

package conformance_test

import (
	"slices"
	"strings"
	"testing"
)

func TestKafkaTopicsCreatesDescribesAndDeletes(t *testing.T) {
	p := newPeer(t)
	topic := name(t, "topic")
	mustContain(t, p.tool(t, "TopicCommand", "--create", "--topic", topic, "--partitions", "3",
		"--config", "cleanup.policy=compact"), "Created topic "+topic)
	mustContain(t, p.tool(t, "TopicCommand", "--list"), topic)
	mustContain(t, p.tool(t, "TopicCommand", "--describe", "--topic", topic),
		"Topic: "+topic, "PartitionCount: 3", "ReplicationFactor: 1", "cleanup.policy=compact", "Partition: 2 Leader:")

	out, complaint, err := java(t, "", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", p.bootstrap, "--create", "--topic", topic)
	if err == nil || !strings.Contains(out+complaint, "already exists") {
		t.Errorf("creating it twice: %v\n%s%s", err, out, complaint)
	}
	p.tool(t, "TopicCommand", "--delete", "--topic", topic)
	if out := p.tool(t, "TopicCommand", "--list"); strings.Contains(out, topic) {
		t.Errorf("the deleted topic is still listed:\n%s", out)
	}
}

func TestConsoleProducerAndConsumerInEveryCompression(t *testing.T) {
	p := newPeer(t)
	topic := name(t, "topic")
	p.createTopic(t, topic, 1)
	var want []string
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		lines := []string{codec + " first", codec + " second", codec + " 한번"}
		p.produce(t, topic, strings.Join(lines, "\n")+"\n", "--compression-codec", codec)
		want = append(want, lines...)
	}
	for _, level := range []string{"read_committed", "read_uncommitted"} {
		if got := p.consume(t, topic, true, "--isolation-level", level); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", level, got, want)
		}
	}
}

func TestConsoleConsumerSeesOfTransactionsWhatItsIsolationLevelAllows(t *testing.T) {
	p := newPeer(t)
	topic := name(t, "topic")
	p.createTopic(t, topic, 1)
	client := p.transactional(t, name(t, "id"))
	transact(t, client, &commit, topic, "committed 1", "committed 2")
	transact(t, client, &abort, topic, "aborted")
	transact(t, client, &commit, topic, "committed 3")
	transact(t, client, nil, topic, "open")
	p.produce(t, topic, "plain, behind the open transaction\n")

	want := []string{"committed 1", "committed 2", "committed 3"}
	if got := p.consume(t, topic, true, "--isolation-level", "read_committed"); !slices.Equal(got, want) {
		t.Errorf("read_committed: %q, want %q", got, want)
	}
	want = []string{"committed 1", "committed 2", "aborted", "committed 3", "open", "plain, behind the open transaction"}
	if got := p.consume(t, topic, true, "--isolation-level", "read_uncommitted"); !slices.Equal(got, want) {
		t.Errorf("read_uncommitted: %q, want %q", got, want)
	}
	if err := client.EndTransaction(t.Context(), abort); err != nil {
		t.Fatal(err)
	}
	want = []string{"committed 1", "committed 2", "committed 3", "plain, behind the open transaction"}
	if got := p.consume(t, topic, true, "--isolation-level", "read_committed"); !slices.Equal(got, want) {
		t.Errorf("read_committed after the abort: %q, want %q", got, want)
	}
}

func TestKafkaConsumerGroupsListsDescribesAndResets(t *testing.T) {
	p := newPeer(t)
	topic, group := name(t, "topic"), name(t, "group")
	p.createTopic(t, topic, 2)
	p.produce(t, topic, "one\ntwo\nthree\nfour\n")
	if got := p.consume(t, topic, true, "--group", group); len(got) != 4 {
		t.Fatalf("consumed %q, want 4 lines", got)
	}
	mustContain(t, p.tool(t, "consumer.group.ConsumerGroupCommand", "--list"), group)
	mustContain(t, p.tool(t, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group), topic)
	mustContain(t, p.tool(t, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--state"), "Empty")

	if got := p.consume(t, topic, false, "--group", group); len(got) != 0 {
		t.Errorf("consumed again from the committed offsets: %q, want nothing", got)
	}
	p.tool(t, "consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
	if got := p.consume(t, topic, true, "--group", group); len(got) != 4 {
		t.Errorf("consumed after the reset: %q, want 4 lines", got)
	}
}

func TestKafkaTransactionsListsDescribesAndFindsProducers(t *testing.T) {
	p := newPeer(t)
	topic, id := name(t, "topic"), name(t, "id")
	p.createTopic(t, topic, 1)
	client := p.transactional(t, id)
	transact(t, client, nil, topic, "open")

	mustContain(t, p.tool(t, "TransactionsCommand", "list"), id, "Ongoing")
	mustContain(t, p.tool(t, "TransactionsCommand", "describe", "--transactional-id", id), id, "Ongoing", topic+"-0")
	mustContain(t, p.tool(t, "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"),
		"ProducerId", "CurrentTransactionStartOffset")
	p.tool(t, "TransactionsCommand", "find-hanging", "--broker-id", brokerID(t, p))

	if err := client.EndTransaction(t.Context(), commit); err != nil {
		t.Fatal(err)
	}
	mustContain(t, p.tool(t, "TransactionsCommand", "describe", "--transactional-id", id), "CompleteCommit")
}

// brokerID reads the broker's id as kafka-topics shows it.
func brokerID(t *testing.T, p *peer) string {
	t.Helper()
	topic := name(t, "probe")
	p.createTopic(t, topic, 1)
	out := p.tool(t, "TopicCommand", "--describe", "--topic", topic)
	_, after, found := strings.Cut(out, "Leader:")
	if !found {
		t.Fatalf("no leader in:\n%s", out)
	}
	return strings.Fields(after)[0]
}

func TestKafkaGetOffsetsAndDeleteRecords(t *testing.T) {
	p := newPeer(t)
	topic := name(t, "topic")
	p.createTopic(t, topic, 1)
	p.produce(t, topic, "one\ntwo\nthree\n")
	mustContain(t, p.tool(t, "GetOffsetShell", "--topic", topic), topic+":0:3")
	path := writeFile(t, `{"partitions":[{"topic":"`+topic+`","partition":0,"offset":2}],"version":1}`)
	mustContain(t, p.tool(t, "DeleteRecordsCommand", "--offset-json-file", path), "low_watermark: 2")
	mustContain(t, p.tool(t, "GetOffsetShell", "--topic", topic, "--time", "-2"), topic+":0:2")
	if got := p.consume(t, topic, true); !slices.Equal(got, []string{"three"}) {
		t.Errorf("left after the deletion: %q, want %q", got, "three")
	}
}
