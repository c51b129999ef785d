// Package group is the group coordinator of one `__consumer_offsets`
// partition: group membership (the classic protocol), committed offsets and
// the pending offsets of open transactions.
//
// The package is pure: no goroutine, clock, I/O, randomness, logging or lock.
// A Machine is two functions. Decide judges one command and returns what is to
// be done; Apply (with ApplyMarker) is the only writer of hard state and is
// also the replay at boot. The shell owes the machine this, in order:
//
//  1. at boot, Apply and ApplyMarker for every record and marker of the log,
//     then Loaded once;
//  2. for every command, Decide; append Effects.Appends to the log, each as
//     one batch; Apply every record with the offset it got, before the next
//     Decide; hold the replies back until what was appended is durable;
//  3. a Tick no later than Effects.DeadlineMs.
//
// Hard state is what the log holds: the last group metadata record of each
// group, committed offsets, pending offsets. Soft state is the membership that
// is still being negotiated: who waits in JoinGroup and SyncGroup, generations
// not yet synced, session deadlines. A crash loses soft state, as it does in
// Kafka: members find out by UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION and join
// again.
//
// Behaviour follows Kafka's GroupMetadataManager, ClassicGroup and
// OffsetMetadataManager. Deviations, all deliberate:
//
//   - a JoinGroup or SyncGroup that is sent again while the first still waits
//     answers the first with REBALANCE_IN_PROGRESS; Kafka never answers it;
//   - a member that leaves or expires while its SyncGroup waits gets
//     UNKNOWN_MEMBER_ID there; Kafka never answers it;
//   - a refused JoinGroup does not create the group;
//   - a group that only ever stored offsets disappears with its last offset,
//     not at the next expiry check;
//   - OffsetFetch of all partitions with requireStable also names partitions
//     that have only pending offsets (UNSTABLE_OFFSET_COMMIT);
//   - a static member that comes back brings its new client id and host;
//   - the first generation after a restart is not the last one plus 1 but plus
//     1000 (see restartGenerations).
package group

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// Token identifies one request of the shell. The machine answers every token
// exactly once, at once or after it was parked.
type Token uint64

// Defaults of Config, as Kafka's.
const (
	DefaultMinSessionTimeoutMs    = 6_000
	DefaultMaxSessionTimeoutMs    = 1_800_000
	DefaultNewMemberJoinTimeoutMs = 300_000
	DefaultOffsetRetentionMs      = 7 * 24 * 60 * 60 * 1000
	DefaultExpiryIntervalMs       = 600_000
	DefaultOffsetMetadataMax      = 4096
)

// Config are the limits of a Machine. A zero field takes its default.
type Config struct {
	// MinSessionTimeoutMs and MaxSessionTimeoutMs bound a member's session
	// timeout (group.min/max.session.timeout.ms); outside → INVALID_SESSION_TIMEOUT.
	MinSessionTimeoutMs int32
	MaxSessionTimeoutMs int32
	// InitialRebalanceDelayMs is how long the first rebalance of an empty group
	// waits for more members (group.initial.rebalance.delay.ms). Zero is none;
	// Kafka's default is 3000.
	InitialRebalanceDelayMs int64
	// NewMemberJoinTimeoutMs is how long a JoinGroup of a new member may be
	// parked before the member counts as gone.
	NewMemberJoinTimeoutMs int64
	// MaxSize is the largest number of members (group.max.size); 0 is no limit.
	MaxSize int
	// OffsetRetentionMs is how long offsets outlive their use (offsets.retention.minutes).
	OffsetRetentionMs int64
	// ExpiryIntervalMs is the time between two searches for expired offsets.
	ExpiryIntervalMs int64
	// OffsetMetadataMaxBytes bounds the metadata of an offset. Like Kafka it
	// counts UTF-16 units, which are bytes for ASCII.
	OffsetMetadataMaxBytes int
	// NoGenerationCheck is for tests only: a negative control that lets every
	// TxnOffsetCommit through, zombies too.
	NoGenerationCheck bool
}

func (c Config) withDefaults() Config {
	if c.MinSessionTimeoutMs == 0 {
		c.MinSessionTimeoutMs = DefaultMinSessionTimeoutMs
	}
	if c.MaxSessionTimeoutMs == 0 {
		c.MaxSessionTimeoutMs = DefaultMaxSessionTimeoutMs
	}
	if c.NewMemberJoinTimeoutMs == 0 {
		c.NewMemberJoinTimeoutMs = DefaultNewMemberJoinTimeoutMs
	}
	if c.OffsetRetentionMs == 0 {
		c.OffsetRetentionMs = DefaultOffsetRetentionMs
	}
	if c.ExpiryIntervalMs == 0 {
		c.ExpiryIntervalMs = DefaultExpiryIntervalMs
	}
	if c.OffsetMetadataMaxBytes == 0 {
		c.OffsetMetadataMaxBytes = DefaultOffsetMetadataMax
	}
	return c
}

// Record is one record of `__consumer_offsets`. A nil Value is a tombstone.
type Record struct {
	Key   []byte
	Value []byte
}

// Append is one batch to append. ProducerID and Epoch are -1 unless the batch
// is transactional; the batch then has the transactional bit and no sequence.
type Append struct {
	Records    []Record
	ProducerID batch.ProducerID
	Epoch      batch.Epoch
}

// Transactional reports whether the batch belongs to a transaction.
func (a Append) Transactional() bool { return a.ProducerID >= 0 }

// Reply is the answer to one token. Response has the version of its request,
// so that it may be encoded as it is; it is nil only for GroupOffsetFetch,
// whose answer is OffsetFetch.
type Reply struct {
	Token       Token
	Response    kmsg.Response
	OffsetFetch *kmsg.OffsetFetchResponseGroup
}

// Effects are what Decide wants done.
type Effects struct {
	Appends []Append
	// Replies may be sent once everything appended so far is durable.
	Replies []Reply
	// Requeue are commands to decide again; the classic protocol has none.
	Requeue []Command
	// DeadlineMs is when the next Tick is due at the latest, in the time of
	// nowMs; 0 is never. It may be now, and it may be too early by a session
	// timeout, when there is nothing to do yet.
	DeadlineMs int64
	// Fatal is a broken invariant: drop the machine and rebuild it from the log.
	Fatal error
}

// Machine is the coordinator of one partition. It is not safe for concurrent use.
type Machine struct {
	cfg    Config
	groups map[string]*group
	// pending holds the offsets of open transactions by producer, group and
	// partition. group.pending counts the same entries by partition.
	pending map[batch.ProducerID]map[string]map[batch.TopicPartition]commit
	timers  timerHeap
	expiry  *timer
	loaded  bool
}

// New returns an empty machine. Replay the log with Apply and ApplyMarker,
// then call Loaded.
func New(cfg Config) *Machine {
	m := &Machine{
		cfg:     cfg.withDefaults(),
		groups:  make(map[string]*group),
		pending: make(map[batch.ProducerID]map[string]map[batch.TopicPartition]commit),
	}
	m.expiry = &timer{kind: timerExpiry, index: -1}
	return m
}

// decision is one call of Decide: the machine, the time and what came out.
type decision struct {
	*Machine
	nowMs int64
	eff   Effects
}

// Decide judges one command. It leaves hard state alone; parked requests,
// deadlines and memberships under negotiation change.
func (m *Machine) Decide(nowMs int64, c Command) Effects {
	d := &decision{Machine: m, nowMs: nowMs}
	if !m.loaded {
		d.fatal("Decide before Loaded")
		return d.eff
	}
	switch c := c.(type) {
	case Join:
		d.join(c)
	case Sync:
		d.sync(c)
	case Heartbeat:
		d.heartbeat(c)
	case Leave:
		d.leave(c)
	case OffsetCommit:
		d.offsetCommit(c)
	case TxnOffsetCommit:
		d.txnOffsetCommit(c)
	case GroupOffsetFetch:
		d.offsetFetch(c)
	case OffsetDelete:
		d.offsetDelete(c)
	case TopicDeleted:
		d.topicDeleted(c)
	case Describe:
		d.describe(c)
	case List:
		d.list(c)
	case Delete:
		d.deleteGroups(c)
	case Tick:
		d.tick()
	default:
		d.fatal("unknown command %T", c)
	}
	if len(m.groups) > 0 || len(d.eff.Appends) > 0 {
		if m.expiry.index < 0 {
			m.timers.set(m.expiry, nowMs+m.cfg.ExpiryIntervalMs)
		}
	}
	d.eff.DeadlineMs = m.timers.deadlineMs()
	return d.eff
}

// Loaded ends the replay: every member that the log knows gets a fresh session
// deadline. It returns when the first Tick is due, 0 for never.
func (m *Machine) Loaded(nowMs int64) (deadlineMs int64) {
	if m.loaded {
		return m.timers.deadlineMs()
	}
	m.loaded = true
	d := &decision{Machine: m, nowMs: nowMs}
	for _, id := range m.groupIDs() {
		g := m.groups[id]
		g.restore()
		for _, mem := range g.members {
			d.keepSession(mem, int64(mem.sessionTimeoutMs))
		}
		if m.cfg.MaxSize > 0 && len(g.members) > m.cfg.MaxSize {
			// The limit was lowered: rebalance, and the last to rejoin is refused.
			d.prepareRebalance(g)
		}
	}
	if len(m.groups) > 0 {
		m.timers.set(m.expiry, nowMs+m.cfg.ExpiryIntervalMs)
	}
	return m.timers.deadlineMs()
}

func (d *decision) fatal(format string, args ...any) {
	if d.eff.Fatal == nil {
		d.eff.Fatal = fmt.Errorf("group: "+format, args...)
	}
}

func (d *decision) reply(t Token, r kmsg.Response) {
	d.eff.Replies = append(d.eff.Replies, Reply{Token: t, Response: r})
}

// append adds records outside any transaction; all of one Decide share a batch.
func (d *decision) append(records ...Record) {
	if len(records) == 0 {
		return
	}
	if n := len(d.eff.Appends); n > 0 && !d.eff.Appends[n-1].Transactional() {
		last := &d.eff.Appends[n-1]
		last.Records = append(last.Records, records...)
		return
	}
	d.eff.Appends = append(d.eff.Appends, Append{
		Records: records, ProducerID: batch.NoProducerID, Epoch: batch.NoEpoch,
	})
}

// bulkMaxRecords bounds the batches of tombstones. A crash between two of them
// leaves fewer offsets deleted than asked, and nobody was told otherwise.
const bulkMaxRecords = 1000

// appendBulk adds tombstones that need not be atomic.
func (d *decision) appendBulk(records []Record) {
	for len(records) > 0 {
		n := min(len(records), bulkMaxRecords)
		d.eff.Appends = append(d.eff.Appends, Append{
			Records: records[:n:n], ProducerID: batch.NoProducerID, Epoch: batch.NoEpoch,
		})
		records = records[n:]
	}
}
