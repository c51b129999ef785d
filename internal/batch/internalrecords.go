package batch

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The records of __transaction_state and __consumer_offsets, after the schemas
// in Kafka's transaction-coordinator and group-coordinator modules
// (TransactionLogKey/Value, OffsetCommitKey/Value, GroupMetadataKey/Value).
//
// The wire work is kmsg's. What is added here: typed values, the refusal of
// unknown versions (kmsg reads any version as the nearest it knows), states that
// cannot be, and the defaults that kmsg lacks (leaderEpoch and expireTimestamp
// are -1 when a version has no such field).

// Versions that are written. Every version that Kafka ever wrote is read.
const (
	txnKeyVersion      = 0
	txnValueVersionMax = 1
	offsetKeyVersion   = 1
	offsetValueVersion = 4
	groupKeyVersion    = 2
	groupValueVersion  = 3
	groupValueMax      = 4
)

// Record types of __consumer_offsets: the int16 that starts every key. Types 3
// and above belong to the consumer, share and streams group protocols.
const (
	KeyTypeOffsetCommitV0 int16 = 0
	KeyTypeOffsetCommit   int16 = 1
	KeyTypeGroupMetadata  int16 = 2
)

// KeyType returns the int16 that starts the key of an internal record.
func KeyType(key []byte) (int16, error) {
	if len(key) < 2 {
		return 0, corruptf("internal record key of %d bytes has no type", len(key))
	}
	return int16(binary.BigEndian.Uint16(key)), nil
}

// TxnStatus is the state of a transaction as it is stored in
// __transaction_state (TransactionState in Kafka).
type TxnStatus int8

// The states; Dead and PrepareEpochFence are never stored.
const (
	TxnEmpty             TxnStatus = 0
	TxnOngoing           TxnStatus = 1
	TxnPrepareCommit     TxnStatus = 2
	TxnPrepareAbort      TxnStatus = 3
	TxnCompleteCommit    TxnStatus = 4
	TxnCompleteAbort     TxnStatus = 5
	TxnDead              TxnStatus = 6
	TxnPrepareEpochFence TxnStatus = 7
)

// TxnState is a value of __transaction_state: what is known of one
// transactional id.
type TxnState struct {
	ProducerID ProducerID
	Epoch      Epoch
	TimeoutMs  int32
	Status     TxnStatus
	// Partitions of the transaction, sorted and without repeats when read.
	// Stored as null when Status is TxnEmpty.
	Partitions   []TopicPartition
	LastUpdateMs int64
	StartMs      int64 // -1 outside a transaction

	// Version 1 only.
	PreviousProducerID       ProducerID // -1 none
	NextProducerID           ProducerID // -1 none
	ClientTransactionVersion int16      // 0, 1 or 2
	NextEpoch                Epoch      // -1 none; used by two-phase commit only

	// LastEpoch is the epoch before the last bump, -1 none. Kafka keeps it in
	// memory only. It is stored in a tagged field of our own, which Kafka's
	// readers skip, so that a retry (KIP-360) survives a restart.
	LastEpoch Epoch
}

// tagLastEpoch is the tagged field of LastEpoch (int16). Kafka's own tags of
// TransactionLogValue are small numbers.
const tagLastEpoch = 10_000

// TxnKey returns the key of a transactional id's record.
func TxnKey(transactionalID string) []byte {
	k := kmsg.TxnMetadataKey{Version: txnKeyVersion, TransactionalID: transactionalID}
	return k.AppendTo(nil)
}

// ParseTxnKey returns the transactional id of a key of __transaction_state. The
// error wraps ErrUnknownVersion for a key of another type, else ErrCorrupt.
func ParseTxnKey(key []byte) (string, error) {
	if err := checkVersion("TransactionLogKey", key, txnKeyVersion, txnKeyVersion); err != nil {
		return "", err
	}
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return "", corruptf("TransactionLogKey: %v", err)
	}
	return k.TransactionalID, nil
}

// MarshalTxnValue encodes s at the given version: 0 where the cluster's
// transaction.version is 0, otherwise 1. Version 0 has no room for the fields
// that are marked so in TxnState; they are left out.
func MarshalTxnValue(s TxnState, version int16) []byte {
	v := kmsg.NewTxnMetadataValue()
	v.Version = min(max(version, 0), txnValueVersionMax)
	v.ProducerID = int64(s.ProducerID)
	v.ProducerEpoch = int16(s.Epoch)
	v.TimeoutMillis = s.TimeoutMs
	v.State = kmsg.TransactionState(s.Status)
	if s.Status != TxnEmpty {
		v.Topics = txnTopics(s.Partitions)
	}
	v.LastUpdateTimestamp = s.LastUpdateMs
	v.StartTimestamp = s.StartMs
	v.PreviousProducerID = int64(s.PreviousProducerID)
	v.NextProducerID = int64(s.NextProducerID)
	v.ClientTransactionVersion = s.ClientTransactionVersion
	v.NextProducerEpoch = int16(s.NextEpoch)
	if s.LastEpoch != NoEpoch {
		v.UnknownTags.Set(tagLastEpoch, binary.BigEndian.AppendUint16(nil, uint16(s.LastEpoch)))
	}
	return v.AppendTo(nil)
}

// txnTopics groups partitions by topic, both in order, so that equal sets have
// equal bytes. The result is never nil: nil is written as null.
func txnTopics(partitions []TopicPartition) []kmsg.TxnMetadataValueTopic {
	sorted := slices.Clone(partitions)
	slices.SortFunc(sorted, TopicPartition.Compare)
	topics := []kmsg.TxnMetadataValueTopic{}
	for i, tp := range sorted {
		if i > 0 && tp == sorted[i-1] {
			continue
		}
		if n := len(topics); n == 0 || topics[n-1].Topic != tp.Topic {
			topics = append(topics, kmsg.TxnMetadataValueTopic{Topic: tp.Topic})
		}
		last := &topics[len(topics)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	return topics
}

// UnmarshalTxnValue decodes a value of __transaction_state; a tombstone (null
// value) is the caller's to handle. The error wraps ErrUnknownVersion or
// ErrCorrupt.
func UnmarshalTxnValue(value []byte) (TxnState, error) {
	if err := checkVersion("TransactionLogValue", value, 0, txnValueVersionMax); err != nil {
		return TxnState{}, err
	}
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(value); err != nil {
		return TxnState{}, corruptf("TransactionLogValue: %v", err)
	}
	if s := TxnStatus(v.State); s < TxnEmpty || s > TxnPrepareEpochFence {
		return TxnState{}, corruptf("TransactionLogValue: unknown transaction state %d", s)
	}
	s := TxnState{
		ProducerID:               ProducerID(v.ProducerID),
		Epoch:                    Epoch(v.ProducerEpoch),
		TimeoutMs:                v.TimeoutMillis,
		Status:                   TxnStatus(v.State),
		LastUpdateMs:             v.LastUpdateTimestamp,
		StartMs:                  v.StartTimestamp,
		PreviousProducerID:       ProducerID(v.PreviousProducerID),
		NextProducerID:           ProducerID(v.NextProducerID),
		ClientTransactionVersion: v.ClientTransactionVersion,
		NextEpoch:                Epoch(v.NextProducerEpoch),
		LastEpoch:                NoEpoch,
	}
	if err := s.readLastEpoch(&v); err != nil {
		return TxnState{}, err
	}
	for i := range v.Topics {
		for _, p := range v.Topics[i].Partitions {
			s.Partitions = append(s.Partitions, TopicPartition{Topic: v.Topics[i].Topic, Partition: p})
		}
	}
	slices.SortFunc(s.Partitions, TopicPartition.Compare)
	s.Partitions = slices.Compact(s.Partitions)
	return s, nil
}

func (s *TxnState) readLastEpoch(v *kmsg.TxnMetadataValue) (err error) {
	v.UnknownTags.Each(func(tag uint32, val []byte) {
		switch {
		case tag != tagLastEpoch:
		case len(val) != 2:
			err = corruptf("TransactionLogValue: last epoch of %d bytes", len(val))
		default:
			s.LastEpoch = Epoch(binary.BigEndian.Uint16(val))
		}
	})
	return err
}

// OffsetKey is the key of a committed offset in __consumer_offsets.
type OffsetKey struct {
	Group     string
	Topic     string
	Partition int32
}

// OffsetValue is a committed offset.
type OffsetValue struct {
	Offset      Offset
	LeaderEpoch int32 // -1 unknown
	Metadata    string
	CommitMs    int64
	ExpireMs    int64    // -1: the group's retention applies (only OffsetCommit v2-v4 can ask for more)
	TopicID     [16]byte // zero: unknown
}

// MarshalOffsetKey encodes k (record type 1).
func MarshalOffsetKey(k OffsetKey) []byte {
	v := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: k.Group, Topic: k.Topic, Partition: k.Partition}
	return v.AppendTo(nil)
}

// ParseOffsetKey decodes a key of record type 0 or 1. The error wraps
// ErrUnknownVersion for another type, else ErrCorrupt.
func ParseOffsetKey(key []byte) (OffsetKey, error) {
	if err := checkVersion("OffsetCommitKey", key, 0, offsetKeyVersion); err != nil {
		return OffsetKey{}, err
	}
	var v kmsg.OffsetCommitKey
	if err := v.ReadFrom(key); err != nil {
		return OffsetKey{}, corruptf("OffsetCommitKey: %v", err)
	}
	return OffsetKey{Group: v.Group, Topic: v.Topic, Partition: v.Partition}, nil
}

// MarshalOffsetValue encodes v: version 4, or version 1, the only one with an
// expiry, when v.ExpireMs is set.
func MarshalOffsetValue(v OffsetValue) []byte {
	o := kmsg.OffsetCommitValue{
		Version:         offsetValueVersion,
		Offset:          int64(v.Offset),
		LeaderEpoch:     v.LeaderEpoch,
		Metadata:        v.Metadata,
		CommitTimestamp: v.CommitMs,
		TopicID:         v.TopicID,
	}
	if v.ExpireMs != -1 {
		o.Version, o.ExpireTimestamp = 1, v.ExpireMs
	}
	return o.AppendTo(nil)
}

// UnmarshalOffsetValue decodes a committed offset, versions 0 to 4; a tombstone
// is the caller's to handle. The error wraps ErrUnknownVersion or ErrCorrupt.
func UnmarshalOffsetValue(value []byte) (OffsetValue, error) {
	if err := checkVersion("OffsetCommitValue", value, 0, offsetValueVersion); err != nil {
		return OffsetValue{}, err
	}
	var o kmsg.OffsetCommitValue
	if err := o.ReadFrom(value); err != nil {
		return OffsetValue{}, corruptf("OffsetCommitValue: %v", err)
	}
	v := OffsetValue{
		Offset:      Offset(o.Offset),
		LeaderEpoch: -1,
		Metadata:    o.Metadata,
		CommitMs:    o.CommitTimestamp,
		ExpireMs:    -1,
		TopicID:     o.TopicID,
	}
	if o.Version >= 3 {
		v.LeaderEpoch = o.LeaderEpoch
	}
	if o.Version == 1 {
		v.ExpireMs = o.ExpireTimestamp
	}
	return v, nil
}

// GroupValue is the state of a group of the classic protocol.
type GroupValue struct {
	ProtocolType string
	Generation   int32
	Protocol     *string // nil in an empty group
	Leader       *string // nil in an empty group
	StateMs      int64   // when the group entered its state; -1 unknown
	Members      []GroupMember
}

// GroupMember is one member of a GroupValue. Subscription and Assignment alias
// the bytes that were decoded.
type GroupMember struct {
	MemberID           string
	InstanceID         *string
	ClientID           string
	ClientHost         string
	RebalanceTimeoutMs int32
	SessionTimeoutMs   int32
	Subscription       []byte
	Assignment         []byte
}

// MarshalGroupKey encodes the key of a group's record (record type 2).
func MarshalGroupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: group}
	return k.AppendTo(nil)
}

// ParseGroupKey returns the group of a key of record type 2. The error wraps
// ErrUnknownVersion for another type, else ErrCorrupt.
func ParseGroupKey(key []byte) (string, error) {
	if err := checkVersion("GroupMetadataKey", key, groupKeyVersion, groupKeyVersion); err != nil {
		return "", err
	}
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return "", corruptf("GroupMetadataKey: %v", err)
	}
	return k.Group, nil
}

// MarshalGroupValue encodes v at version 3, the one that Kafka 2.3 to 4.x write.
func MarshalGroupValue(v GroupValue) []byte {
	g := kmsg.GroupMetadataValue{
		Version:               groupValueVersion,
		ProtocolType:          v.ProtocolType,
		Generation:            v.Generation,
		Protocol:              v.Protocol,
		Leader:                v.Leader,
		CurrentStateTimestamp: v.StateMs,
		Members:               make([]kmsg.GroupMetadataValueMember, len(v.Members)),
	}
	for i, m := range v.Members {
		g.Members[i] = kmsg.GroupMetadataValueMember{
			MemberID:               m.MemberID,
			InstanceID:             m.InstanceID,
			ClientID:               m.ClientID,
			ClientHost:             m.ClientHost,
			RebalanceTimeoutMillis: m.RebalanceTimeoutMs,
			SessionTimeoutMillis:   m.SessionTimeoutMs,
			Subscription:           m.Subscription,
			Assignment:             m.Assignment,
		}
	}
	return g.AppendTo(nil)
}

// UnmarshalGroupValue decodes the state of a classic group, versions 0 to 4; a
// tombstone is the caller's to handle. The error wraps ErrUnknownVersion or
// ErrCorrupt.
func UnmarshalGroupValue(value []byte) (GroupValue, error) {
	if err := checkVersion("GroupMetadataValue", value, 0, groupValueMax); err != nil {
		return GroupValue{}, err
	}
	var g kmsg.GroupMetadataValue
	if err := g.ReadFrom(value); err != nil {
		return GroupValue{}, corruptf("GroupMetadataValue: %v", err)
	}
	v := GroupValue{
		ProtocolType: g.ProtocolType,
		Generation:   g.Generation,
		Protocol:     g.Protocol,
		Leader:       g.Leader,
		StateMs:      g.CurrentStateTimestamp,
	}
	for _, m := range g.Members {
		// Version 0 had one timeout for both purposes.
		rebalanceMs := m.RebalanceTimeoutMillis
		if g.Version == 0 {
			rebalanceMs = m.SessionTimeoutMillis
		}
		v.Members = append(v.Members, GroupMember{
			MemberID:           m.MemberID,
			InstanceID:         m.InstanceID,
			ClientID:           m.ClientID,
			ClientHost:         m.ClientHost,
			RebalanceTimeoutMs: rebalanceMs,
			SessionTimeoutMs:   m.SessionTimeoutMillis,
			Subscription:       m.Subscription,
			Assignment:         m.Assignment,
		})
	}
	return v, nil
}

// checkVersion reads the int16 version that starts a key or a value.
func checkVersion(record string, b []byte, lowest, highest int16) error {
	if len(b) < 2 {
		return corruptf("%s of %d bytes has no version", record, len(b))
	}
	if v := int16(binary.BigEndian.Uint16(b)); v < lowest || v > highest {
		return &UnknownVersionError{Record: record, Version: v}
	}
	return nil
}
