package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Command is what Decide takes. The machine may keep a command's strings, but
// copies its byte slices, so the buffer of the request may be used again.
//
// Wherever a request can name a topic by id (OffsetCommit and OffsetFetch v10,
// TxnOffsetCommit v6) the machine reads Topic only: the shell fills it before
// Decide. Replies carry both Topic and the request's TopicID. Unknown topics
// and authorisation are the shell's: it leaves those parts out of the command
// and puts their codes into the reply.
type Command interface{ command() }

type (
	// Join is a JoinGroup. NewMemberID is entropy (a UUID) from the shell: the
	// end of the member id, should one be made.
	Join struct {
		Token       Token
		Request     *kmsg.JoinGroupRequest
		ClientID    string
		ClientHost  string
		NewMemberID string
	}
	// Sync is a SyncGroup.
	Sync struct {
		Token   Token
		Request *kmsg.SyncGroupRequest
	}
	// Heartbeat is a Heartbeat of the classic protocol.
	Heartbeat struct {
		Token   Token
		Request *kmsg.HeartbeatRequest
	}
	// Leave is a LeaveGroup: one member below v3, several from v3.
	Leave struct {
		Token   Token
		Request *kmsg.LeaveGroupRequest
	}
	// OffsetCommit is an OffsetCommit.
	OffsetCommit struct {
		Token   Token
		Request *kmsg.OffsetCommitRequest
	}
	// TxnOffsetCommit is a TxnOffsetCommit whose producer the shell has already
	// verified, or added to the transaction. The group's checks are made here.
	TxnOffsetCommit struct {
		Token   Token
		Request *kmsg.TxnOffsetCommitRequest
	}
	// GroupOffsetFetch is one group of an OffsetFetch; OffsetFetchCommands
	// splits a request of any version and OffsetFetchResponse joins the answers.
	// Nil Topics are all. MemberID and MemberEpoch (v9+) matter to KIP-848
	// groups only and are not looked at.
	GroupOffsetFetch struct {
		Token         Token
		Group         string
		Topics        []kmsg.OffsetFetchRequestGroupTopic
		RequireStable bool
		MemberID      *string
		MemberEpoch   int32
	}
	// OffsetDelete is an OffsetDelete.
	OffsetDelete struct {
		Token   Token
		Request *kmsg.OffsetDeleteRequest
	}
	// TopicDeleted drops every group's offsets of partitions that are gone. It
	// has no reply.
	TopicDeleted struct {
		Topic      string
		Partitions []int32
	}
	// Describe is a DescribeGroups that names only groups of this partition.
	Describe struct {
		Token   Token
		Request *kmsg.DescribeGroupsRequest
	}
	// List is a ListGroups; the shell merges the partitions' answers.
	List struct {
		Token   Token
		Request *kmsg.ListGroupsRequest
	}
	// Delete is a DeleteGroups that names only groups of this partition.
	Delete struct {
		Token   Token
		Request *kmsg.DeleteGroupsRequest
	}
	// Tick fires what is due: sessions, rebalance and sync timeouts, expiry.
	// Deadlines act only here, so a late heartbeat that comes before the Tick
	// still counts.
	Tick struct{}
)

func (Join) command()             {}
func (Sync) command()             {}
func (Heartbeat) command()        {}
func (Leave) command()            {}
func (OffsetCommit) command()     {}
func (TxnOffsetCommit) command()  {}
func (GroupOffsetFetch) command() {}
func (OffsetDelete) command()     {}
func (TopicDeleted) command()     {}
func (Describe) command()         {}
func (List) command()             {}
func (Delete) command()           {}
func (Tick) command()             {}

// txnAppend is the transactional batch of one TxnOffsetCommit.
func txnAppend(req *kmsg.TxnOffsetCommitRequest, records []Record) Append {
	return Append{
		Records:    records,
		ProducerID: batch.ProducerID(req.ProducerID),
		Epoch:      batch.Epoch(req.ProducerEpoch),
	}
}
