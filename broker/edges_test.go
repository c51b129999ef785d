package broker

import (
	"bytes"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Edges of the protocol, as the comparison with Apache Kafka in
// conformance/replies found them.

func edgeClient(t *testing.T) *client {
	t.Helper()
	return dial(t, openBroker(t, testConfig(vfs.NewMem())))
}

func TestTxnOffsetCommitWithoutTopicsIsAnswered(t *testing.T) {
	c := edgeClient(t)
	p := c.init("x")
	req := p.offsetsRequest("g", "none", 0, 1)
	req.Topics = nil
	if resp := call[*kmsg.TxnOffsetCommitResponse](c, req); len(resp.Topics) != 0 {
		t.Errorf("the answer to nothing names %d topics", len(resp.Topics))
	}
}

func TestAReplyThatCannotBeEncodedIsAnError(t *testing.T) {
	p := &pendingReply{resp: (*kmsg.TxnOffsetCommitResponse)(nil)}
	if _, err := p.encode(); err == nil {
		t.Error("no error")
	}
}

func TestBatchesAreStoredWithTheTopicsCompression(t *testing.T) {
	c := edgeClient(t)
	c.createTopic("zipped", 1, "compression.type", "gzip", "max.message.bytes", "2000")
	var b batch.Builder
	b.Reset(batch.PlainBatch(1000))
	b.Append(1000, nil, bytes.Repeat([]byte("x"), 1500), nil)
	resp := call[*kmsg.ProduceResponse](c, producer{}.produceRequest("zipped", 0, b.Build(nil)))
	wantCode(t, "produce", resp.Topics[0].Partitions[0].ErrorCode, nil)
	h, raw, _, err := batch.Split(c.fetch("zipped", 0, 0, false).RecordBatches)
	if err != nil || h.Attributes&batch.AttrCodecMask != 1 || !batch.CheckCRC(raw) {
		t.Errorf("stored as %+v, %v", h, err)
	}
}

func TestDuplicateIsAnsweredWithTheTimeOfTheFirst(t *testing.T) {
	c := edgeClient(t)
	c.createTopic("t", 1)
	p := c.init("")
	c.mustProduce(p, "t", 0, 0, "a")
	if r := c.produce(p, "t", 0, 0, "a"); r.ErrorCode != 0 || r.BaseOffset != 0 || r.LogAppendTime != 1000 {
		t.Errorf("answered %+v, want offset 0 and the batch's time, 1000", r)
	}
}

func TestTopicsNamedTwiceAreNotDeleted(t *testing.T) {
	c := edgeClient(t)
	b := call[*kmsg.CreateTopicsResponse](c, func() kmsg.Request {
		req := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 1, 1
		req.Topics = append(req.Topics, topic)
		return req
	}())
	name, id := "t", b.Topics[0].TopicID
	for _, topics := range [][]kmsg.DeleteTopicsRequestTopic{
		{{Topic: &name}, {Topic: &name}}, {{TopicID: id}, {TopicID: id}}, {{Topic: &name, TopicID: id}},
		{{Topic: &name}, {TopicID: id}}, {{TopicID: id}, {Topic: &name}}, {{}},
	} {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Topics = topics
		resp := call[*kmsg.DeleteTopicsResponse](c, req)
		if len(resp.Topics) != 1 {
			t.Fatalf("%+v: %d answers, want 1", topics, len(resp.Topics))
		}
		wantCode(t, "delete", resp.Topics[0].ErrorCode, kerr.InvalidRequest)
	}
	c.mustProduce(c.init(""), "t", 0, 0, "still there")
}

func TestClientsCannotAddInternalTopicsToATransaction(t *testing.T) {
	c := edgeClient(t)
	c.createTopic("t", 1)
	p := c.init("x")
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, p.id, p.pid, p.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topicTransactions, Partitions: []int32{0}}, {Topic: "t", Partitions: []int32{0}}}
	resp := call[*kmsg.AddPartitionsToTxnResponse](c, req)
	wantCode(t, "internal", resp.Topics[0].Partitions[0].ErrorCode, kerr.TopicAuthorizationFailed)
	wantCode(t, "the other", resp.Topics[1].Partitions[0].ErrorCode, kerr.OperationNotAttempted)
}

func TestFetchOutsideSessions(t *testing.T) {
	c := edgeClient(t)
	c.createTopic("t", 1)
	c.mustProduce(c.init(""), "t", 0, 0, "a")
	for _, s := range []struct {
		id, epoch int32
		isolation int8
		want      *kerr.Error
	}{
		{0, -1, 0, nil}, {0, 0, 0, nil}, {77, -1, 0, nil}, {77, 0, 0, nil},
		{77, 1, 0, kerr.FetchSessionIDNotFound}, {0, 5, 0, kerr.FetchSessionIDNotFound}, {0, -1, 2, kerr.UnknownServerError},
	} {
		req := fetchRequest("t", 0, 0, false)
		req.SessionID, req.SessionEpoch, req.IsolationLevel = s.id, s.epoch, s.isolation
		wantCode(t, "fetch", call[*kmsg.FetchResponse](c, req).ErrorCode, s.want)
	}
	req := fetchRequest("t", 0, 9, false)
	if p := call[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.OffsetOutOfRange.Code || p.HighWatermark != -1 {
		t.Errorf("out of range: %+v", p)
	}
}

func TestSyncGroupMustNameItsProtocolFromVersion5(t *testing.T) {
	c := edgeClient(t)
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID = 5, "g", "m"
	wantCode(t, "sync", call[*kmsg.SyncGroupResponse](c, req).ErrorCode, kerr.InconsistentGroupProtocol)
}

func TestCreateTopicsRefusesWhatContradictsItself(t *testing.T) {
	c := edgeClient(t)
	ask := func(edit func(*kmsg.CreateTopicsRequestTopic)) int16 {
		req := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 2, 1
		edit(&topic)
		req.Topics, req.ValidateOnly = append(req.Topics, topic), true
		return call[*kmsg.CreateTopicsResponse](c, req).Topics[0].ErrorCode
	}
	wantCode(t, "count and assignment", ask(func(t *kmsg.CreateTopicsRequestTopic) {
		t.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{nodeID}}}
	}), kerr.InvalidRequest)
	wantCode(t, "null config", ask(func(t *kmsg.CreateTopicsRequestTopic) {
		t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	}), kerr.InvalidConfig)
	none := ""
	wantCode(t, "no cleanup at all", ask(func(t *kmsg.CreateTopicsRequestTopic) {
		t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: &none}}
	}), nil)
}

func TestApiVersionsWantsAClientWithAName(t *testing.T) {
	c := edgeClient(t)
	for name, want := range map[string]*kerr.Error{"kgo": nil, "librdkafka-2.3": nil, "": kerr.InvalidRequest, "a b": kerr.InvalidRequest, "-x": kerr.InvalidRequest} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, name, "1"
		wantCode(t, "ApiVersions of "+name, call[*kmsg.ApiVersionsResponse](c, req).ErrorCode, want)
	}
}

func TestNamesGivenTwiceAreAnsweredOnce(t *testing.T) {
	c := edgeClient(t)
	c.createTopic("t", 1)
	name := "t"
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}, {Topic: &name}}
	if got := call[*kmsg.MetadataResponse](c, meta).Topics; len(got) != 1 {
		t.Errorf("metadata: %d topics", len(got))
	}
	list := kmsg.NewPtrListOffsetsRequest()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = listLatest
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p, p}}}
	got := call[*kmsg.ListOffsetsResponse](c, list).Topics[0].Partitions
	if len(got) != 1 || got[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("offsets: %+v", got)
	}
	deleted := kmsg.NewPtrDeleteGroupsRequest()
	deleted.Groups = []string{"g", "g"}
	if got := call[*kmsg.DeleteGroupsResponse](c, deleted).Groups; len(got) != 1 {
		t.Errorf("groups: %d", len(got))
	}
}

func TestDescribeConfigsNamesWhereADefaultComesFrom(t *testing.T) {
	c := edgeClient(t)
	c.createTopic("t", 1, "cleanup.policy", "compact")
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", ConfigNames: []string{"cleanup.policy", "retention.ms"}}}
	var got []string
	for _, k := range call[*kmsg.DescribeConfigsResponse](c, req).Resources[0].Configs {
		for _, s := range k.ConfigSynonyms {
			got = append(got, s.Name+"="+*s.Value)
		}
	}
	if want := "cleanup.policy=compact log.cleanup.policy=delete"; strings.Join(got, " ") != want {
		t.Errorf("synonyms %v, want %s", got, want)
	}
}

func TestOffsetDeleteForgetsTheOffsetsNamed(t *testing.T) {
	c := edgeClient(t)
	c.createTopic("t", 2)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "g", -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	for i := range int32(2) {
		topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: i, Offset: 5, LeaderEpoch: -1})
	}
	commit.Topics = append(commit.Topics, topic)
	wantCode(t, "commit", call[*kmsg.OffsetCommitResponse](c, commit).Topics[0].Partitions[0].ErrorCode, nil)

	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 7}}}}
	resp := call[*kmsg.OffsetDeleteResponse](c, req)
	wantCode(t, "delete", resp.ErrorCode, nil)
	wantCode(t, "partition 0", resp.Topics[0].Partitions[0].ErrorCode, nil)
	wantCode(t, "partition 7", resp.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition)
	for partition, want := range []int64{-1, 5} {
		if offset, _ := c.committed("g", "t", int32(partition)); offset != want {
			t.Errorf("partition %d: offset %d, want %d", partition, offset, want)
		}
	}
	req.Group = "none"
	wantCode(t, "no such group", call[*kmsg.OffsetDeleteResponse](c, req).ErrorCode, kerr.GroupIDNotFound)
}
