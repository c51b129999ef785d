package group

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// TestScripts runs the scenarios in testdata. A script is a list of requests
// with what they lead to:
//
//	join g as=A          JoinGroup of client A; the client remembers the member
//	                     id and generation it is told and uses them from then on
//	sync g as=A assign=A:x,B:y
//	heartbeat|leave|commit|txncommit|fetch|describe|list|delete|offsetdelete
//	marker pid=1 commit  the end of a transaction
//	topicdeleted t 0,1   partitions are gone
//	advance 5000         time passes; deadlines fire on the way
//	reload               crash: a new machine from the log
//	compact              a new machine from Records only
//	parked               who has no answer yet
//
// member=, gen=, inst= and v= override what the client would say.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "new":
				s = newScript(t, td)
				return ""
			case "run":
				s.w.tb, s.out = t, &strings.Builder{}
				for line := range strings.Lines(td.Input) {
					if line = strings.TrimSpace(line); line != "" {
						s.line(line)
					}
				}
				return s.out.String()
			}
			td.Fatalf(t, "unknown directive %q", td.Cmd)
			return ""
		})
	})
}

type client struct {
	member string
	inst   *string
	gen    int32
}

type script struct {
	t       *testing.T
	w       *world
	out     *strings.Builder
	clients map[string]*client // by group/name
	groups  map[Token]string
	who     map[Token]string
	ids     map[string]int // member ids made, by prefix
	group   string         // of the request at hand
}

func newScript(t *testing.T, td *datadriven.TestData) *script {
	cfg := Config{}
	for _, arg := range td.CmdArgs {
		n := int64(0)
		if len(arg.Vals) > 0 {
			n, _ = strconv.ParseInt(arg.Vals[0], 10, 64)
		}
		switch arg.Key {
		case "delay":
			cfg.InitialRebalanceDelayMs = n
		case "max":
			cfg.MaxSize = int(n)
		case "retention":
			cfg.OffsetRetentionMs = n
		case "metadata":
			cfg.OffsetMetadataMaxBytes = int(n)
		case "no-generation-check":
			cfg.NoGenerationCheck = true
		default:
			td.Fatalf(t, "unknown option %q", arg.Key)
		}
	}
	return &script{t: t, w: newWorld(t, cfg), clients: map[string]*client{},
		groups: map[Token]string{}, who: map[Token]string{}, ids: map[string]int{}}
}

// args are the parts of a line: words, and key=value pairs.
type args struct {
	words []string
	kv    map[string]string
}

func (a args) int(key string, def int64) int64 {
	if v, ok := a.kv[key]; ok {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return def
}

func (a args) str(key, def string) string {
	if v, ok := a.kv[key]; ok {
		return v
	}
	return def
}

func (a args) version(def int64) int16 { return int16(a.int("v", def)) }

func (s *script) line(line string) {
	fmt.Fprintf(s.out, "> %s\n", line)
	fields := strings.Fields(line)
	a := args{kv: map[string]string{}}
	for _, f := range fields[1:] {
		// A partition with its offset (t-0=5) is a word.
		if k, v, ok := strings.Cut(f, "="); ok && !strings.Contains(k, "-") {
			a.kv[k] = v
		} else {
			a.words = append(a.words, f)
		}
	}
	switch cmd := fields[0]; cmd {
	case "marker":
		s.w.marker(batch.ProducerID(a.int("pid", 1)), a.words[0] == "commit")
	case "advance":
		ms, _ := strconv.ParseInt(a.words[0], 10, 64)
		s.w.advance(ms, func(eff Effects) { s.report(eff) })
	case "reload":
		s.w.replay(s.w.log)
	case "compact":
		s.compact()
	case "parked":
		var names []string
		for t := range s.w.parked {
			names = append(names, s.who[t])
		}
		sort.Strings(names)
		if len(names) == 0 {
			names = []string{"nobody"}
		}
		fmt.Fprintf(s.out, "  %s\n", strings.Join(names, ", "))
	default:
		s.report(s.w.do(s.request(cmd, a)))
	}
}

// compact makes a new machine from the live records. Their offsets are kept by
// filling the gaps with a record type that is skipped.
func (s *script) compact() {
	log := make([]entry, len(s.w.log))
	for i := range log {
		log[i] = entry{record: Record{Key: []byte{0x7f, 0xff}}}
	}
	for r := range s.w.m.Records() {
		log[r.Offset] = entry{record: r.Record, pid: r.ProducerID, epoch: r.Epoch, txn: r.ProducerID >= 0}
	}
	s.w.log = log
	s.w.replay(log)
}

// client is what a client of the group at hand knows.
func (s *script) client(name string) *client {
	key := s.group + "/" + name
	if s.clients[key] == nil {
		s.clients[key] = &client{gen: -1}
	}
	return s.clients[key]
}

// memberOf is a client's member id, or the name if there is no such client.
func (s *script) memberOf(name string) (string, *string) {
	if c := s.clients[s.group+"/"+name]; c != nil {
		return c.member, c.inst
	}
	return name, nil
}

// identity is the client's, with what the line overrides.
func (s *script) identity(a args) (name string, c client) {
	c.gen = -1
	if name = a.kv["as"]; name != "" {
		c = *s.client(name)
	}
	c.member = a.str("member", c.member)
	c.gen = int32(a.int("gen", int64(c.gen)))
	if v, ok := a.kv["inst"]; ok {
		c.inst = &v
		if v == "-" {
			c.inst = nil
		}
	}
	return name, c
}

// open gives out a token under a name for the output.
func (s *script) open(name, cmd string, version int16) Token {
	label := strings.TrimSpace(name + " " + cmd)
	t := s.w.open(label, version)
	s.who[t], s.groups[t] = label, s.group
	return t
}

func (s *script) request(cmd string, a args) Command {
	group := ""
	if len(a.words) > 0 {
		group = a.words[0]
	}
	if group == "<empty>" {
		group = ""
	}
	s.group = group
	switch cmd {
	case "join":
		return s.joinRequest(group, a)
	case "sync":
		return s.syncRequest(group, a)
	case "heartbeat":
		name, c := s.identity(a)
		r := kmsg.NewPtrHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = a.version(4), group, c.member, c.inst, c.gen
		return Heartbeat{s.open(name, cmd, r.Version), r}
	case "leave":
		return s.leaveRequest(group, a)
	case "commit":
		return s.commitRequest(group, a)
	case "txncommit":
		return s.txnCommitRequest(group, a)
	case "fetch":
		c := GroupOffsetFetch{Token: s.open("", cmd, 0), Group: group, RequireStable: a.kv["stable"] == "true"}
		for _, tp := range parsePartitions(a.words[1:]) {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.Partitions = tp.Topic, []int32{tp.Partition}
			c.Topics = append(c.Topics, t)
		}
		return c
	case "describe":
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Version, r.Groups = a.version(6), a.words
		return Describe{s.open("", cmd, r.Version), r}
	case "list":
		r := kmsg.NewPtrListGroupsRequest()
		r.Version = a.version(5)
		r.StatesFilter, r.TypesFilter = list(a.kv["states"]), list(a.kv["types"])
		return List{s.open("", cmd, r.Version), r}
	case "delete":
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Version, r.Groups = a.version(2), a.words
		return Delete{s.open("", cmd, r.Version), r}
	case "offsetdelete":
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		for _, tp := range parsePartitions(a.words[1:]) {
			t := kmsg.NewOffsetDeleteRequestTopic()
			p := kmsg.NewOffsetDeleteRequestTopicPartition()
			t.Topic, p.Partition = tp.Topic, tp.Partition
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
		}
		return OffsetDelete{s.open("", cmd, 0), r}
	case "topicdeleted":
		c := TopicDeleted{Topic: group}
		for _, p := range list(a.words[1]) {
			n, _ := strconv.Atoi(p)
			c.Partitions = append(c.Partitions, int32(n))
		}
		return c
	}
	s.t.Fatalf("unknown request %q", cmd)
	return nil
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func (s *script) joinRequest(group string, a args) Command {
	name, c := s.identity(a)
	s.client(name).inst = c.inst
	prefix := name
	if c.inst != nil {
		prefix = *c.inst
	}
	s.ids[prefix]++
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID = a.version(9), group, c.member, c.inst
	r.SessionTimeoutMillis = int32(a.int("session", 10_000))
	r.RebalanceTimeoutMillis = int32(a.int("rebalance", 60_000))
	r.ProtocolType = a.str("type", "consumer")
	for _, p := range list(a.str("protocols", "range")) {
		jp := kmsg.NewJoinGroupRequestProtocol()
		jp.Name = p
		if topics, ok := a.kv["topics"]; ok {
			m := kmsg.NewConsumerMemberMetadata()
			m.Topics = list(topics)
			jp.Metadata = m.AppendTo(nil)
		} else {
			jp.Metadata = []byte(a.str("metadata", "m"+name))
		}
		r.Protocols = append(r.Protocols, jp)
	}
	return Join{
		Token: s.open(name, "join", r.Version), Request: r, ClientID: name, ClientHost: "/127.0.0.1",
		NewMemberID: strconv.Itoa(s.ids[prefix]),
	}
}

func (s *script) syncRequest(group string, a args) Command {
	name, c := s.identity(a)
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = a.version(5), group, c.member, c.inst, c.gen
	r.ProtocolType, r.Protocol = orNil(a.kv["type"]), orNil(a.kv["protocol"])
	for _, part := range list(a.kv["assign"]) {
		who, what, _ := strings.Cut(part, ":")
		ga := kmsg.NewSyncGroupRequestGroupAssignment()
		ga.MemberID, _ = s.memberOf(who)
		ga.MemberAssignment = []byte(what)
		r.GroupAssignment = append(r.GroupAssignment, ga)
	}
	return Sync{s.open(name, "sync", r.Version), r}
}

func (s *script) leaveRequest(group string, a args) Command {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group = a.version(5), group
	name, c := s.identity(a)
	r.MemberID = c.member
	add := func(member string, inst *string) {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.InstanceID = member, inst
		r.Members = append(r.Members, m)
	}
	for _, who := range list(a.kv["members"]) {
		add(s.memberOf(who))
	}
	if len(r.Members) == 0 {
		add(c.member, c.inst)
	}
	return Leave{s.open(name, "leave", r.Version), r}
}

func (s *script) commitRequest(group string, a args) Command {
	name, c := s.identity(a)
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = a.version(9), group, c.member, c.inst, c.gen
	r.RetentionTimeMillis = a.int("retention", -1)
	for _, po := range parseOffsets(a.words[1:]) {
		t := kmsg.NewOffsetCommitRequestTopic()
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		t.Topic, p.Partition, p.Offset = po.tp.Topic, po.tp.Partition, po.offset
		p.Metadata = kmsg.StringPtr(a.kv["meta"])
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
	}
	return OffsetCommit{s.open(name, "commit", r.Version), r}
}

func (s *script) txnCommitRequest(group string, a args) Command {
	name, c := s.identity(a)
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = a.version(5), group, c.member, c.inst, c.gen
	r.ProducerID, r.ProducerEpoch = a.int("pid", 1), int16(a.int("epoch", 0))
	r.TransactionalID = "tx"
	for _, po := range parseOffsets(a.words[1:]) {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		t.Topic, p.Partition, p.Offset = po.tp.Topic, po.tp.Partition, po.offset
		p.Metadata = kmsg.StringPtr(a.kv["meta"])
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
	}
	return TxnOffsetCommit{s.open(name, "txncommit", r.Version), r}
}

type partitionOffset struct {
	tp     batch.TopicPartition
	offset int64
}

func parsePartitions(words []string) (out []batch.TopicPartition) {
	for _, w := range words {
		topic, p, _ := strings.Cut(w, "-")
		n, _ := strconv.Atoi(p)
		out = append(out, batch.TopicPartition{Topic: topic, Partition: int32(n)})
	}
	return out
}

func parseOffsets(words []string) (out []partitionOffset) {
	for _, w := range words {
		tp, o, _ := strings.Cut(w, "=")
		n, _ := strconv.ParseInt(o, 10, 64)
		out = append(out, partitionOffset{parsePartitions([]string{tp})[0], n})
	}
	return out
}
