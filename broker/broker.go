// Package broker is a durable, embeddable, single-node broker that speaks the
// Kafka protocol with the whole exactly-once machinery: idempotent and
// transactional producers, transaction and group coordinators, read_committed
// fetches. What it acknowledged survives a power cut (Durability Sync).
//
// Where one machine is not enough, the same clients run on an Apache Kafka
// cluster: change the bootstrap address.
package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/hanbeon/hanbeon/internal/batch"
	"github.com/hanbeon/hanbeon/internal/group"
	"github.com/hanbeon/hanbeon/internal/seglog"
	"github.com/hanbeon/hanbeon/internal/shard"
	"github.com/hanbeon/hanbeon/internal/txn"
	"github.com/hanbeon/hanbeon/internal/vfs"
)

// Broker is a running broker. Its methods may be used from any goroutine.
type Broker struct {
	cfg    Config
	apis   map[int16]api
	meta   *metaStore
	store  *seglog.Store
	env    *shard.Env
	topics topics
	lock   io.Closer
	ids    *idBlocks
	// inflating holds a token for each batch that is being decompressed.
	inflating chan struct{}

	ctx    context.Context
	cancel context.CancelCauseFunc
	ln     net.Listener
	host   string
	port   int32
	conns  connSet
	wg     sync.WaitGroup

	closeOnce sync.Once
	closeErr  error
}

// ErrClosed is the cause of everything that fails after Close.
var ErrClosed = errors.New("broker closed")

// Open recovers the directory and starts the broker; it answers requests when
// Open returns. ctx bounds the recovery only; call Close to stop the broker.
//
// Open fails if another process has the directory open, if a file is damaged
// before the point that was acknowledged (seglog.ErrCorrupt names file and
// offset), or if the address cannot be listened on.
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	cfg = cfg.withDefaults()
	if cfg.Dir == "" {
		return nil, errors.New("open broker: Config.Dir is empty; name a directory for its data")
	}
	b := &Broker{cfg: cfg, apis: servedAPIs(), inflating: make(chan struct{}, runtime.GOMAXPROCS(0))}
	b.topics.b = b
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	if err := b.open(ctx); err != nil {
		b.cancel(err)
		return nil, fmt.Errorf("open broker in %s: %w", cfg.Dir, err)
	}
	return b, nil
}

func (b *Broker) open(ctx context.Context) (err error) {
	if b.cfg.Listen != "" {
		// Listen first: an address in use should not cost a recovery. Nobody
		// is answered before serve.
		if b.ln, err = net.Listen("tcp", b.cfg.Listen); errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w: stop what listens there, or choose another address; port 0 takes a free one", err)
		} else if err != nil {
			return err
		}
	}
	undo := []func(){func() {
		if b.ln != nil {
			b.ln.Close()
		}
	}}
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	if err := b.advertise(); err != nil {
		return err
	}
	if err := vfs.MkdirAllSync(b.cfg.FS, b.cfg.Dir); err != nil {
		return err
	}
	if b.lock, err = b.cfg.FS.Lock(filepath.Join(b.cfg.Dir, "broker.lock")); err != nil {
		return err
	}
	undo = append(undo, func() { b.lock.Close() })
	if b.meta, err = loadMetadata(b.cfg.FS, b.cfg.Dir); err != nil {
		return err
	}
	if err := b.meta.update(func(m *metadata) error {
		m.Starts++
		if m.ClusterID == "" {
			var id [16]byte
			rand.Read(id[:])
			m.ClusterID = base64.RawURLEncoding.EncodeToString(id[:])
		}
		return nil
	}); err != nil {
		return err
	}
	if b.ids, err = newIDBlocks(b.meta); err != nil {
		return err
	}
	b.newEnv()
	if err := b.openStore(); err != nil {
		return err
	}
	undo = append(undo, b.store.Crash)
	if err := ctx.Err(); err != nil {
		return err
	}
	// A crash between the record of a topic's deletion and the deletion.
	if err := b.store.RemoveOrphans(); err != nil {
		return err
	}
	if err := b.topics.load(b.meta.view()); err != nil {
		return err
	}
	b.startPartitions()
	b.wg.Add(1)
	go b.housekeep()
	if b.ln != nil {
		b.wg.Add(1)
		go b.accept()
	}
	b.cfg.Logger.Info("broker ready", "dir", b.cfg.Dir, "listen", b.Addr())
	return nil
}

// startPartitions starts the transaction coordinators last: they go on with
// what a crash interrupted, which reaches the others.
func (b *Broker) startPartitions() {
	all := b.topics.view.Load().byName
	for name, t := range all {
		if name != topicTransactions {
			for _, p := range t.Partitions {
				p.Start()
			}
		}
	}
	if t := all[topicTransactions]; t != nil {
		for _, p := range t.Partitions {
			p.Start()
		}
	}
}

func (b *Broker) newEnv() {
	b.env = &shard.Env{
		Logger: b.cfg.Logger,
		Lookup: b.topics.partition,
		Coordinator: func(id string) *shard.Partition {
			t := b.topics.byName(topicTransactions)
			if t == nil {
				return nil
			}
			return t.Partitions[coordinatorPartition(id, len(t.Partitions))]
		},
		Groups: group.Config{
			MinSessionTimeoutMs:     int32(b.cfg.GroupSessionTimeoutMin.Milliseconds()),
			InitialRebalanceDelayMs: b.cfg.GroupInitialRebalanceDelay.Milliseconds(),
			NoGenerationCheck:       b.cfg.Faults.NoGenerationCheck,
		},
		Txn: txn.Config{
			MaxTimeoutMs:     int32(b.cfg.TransactionTimeoutMax.Milliseconds()),
			EarlyCommitMs:    earlyCommitMs,
			CoordinatorEpoch: b.meta.view().Starts,
			NextID:           b.ids.next,
		},
		ProducerIDExpirationMs: producerIDExpiration.Milliseconds(),
		Faults:                 b.cfg.Faults.Faults,
	}
}

func (b *Broker) openStore() (err error) {
	var specs []seglog.LogSpec
	for _, t := range b.meta.view().sortedTopics() {
		for i := range t.LogIDs {
			specs = append(specs, logSpec(b.cfg, t, i))
		}
	}
	b.store, err = seglog.Open(seglog.Options{
		FS: b.cfg.FS, Dir: b.cfg.Dir, Mode: b.cfg.mode(), SyncInterval: b.cfg.SyncInterval,
		SegmentBytes: b.cfg.SegmentBytes, OnDurable: b.env.OnDurable, Snapshot: b.saveSnapshot,
		Failpoints: seglog.Failpoints{AckBeforeSync: b.cfg.Faults.AckBeforeSync},
	}, specs)
	b.env.Store = b.store
	return err
}

// saveSnapshot has a partition write its producer state: a checkpoint is under
// way, and the next start should replay only what comes after it.
func (b *Broker) saveSnapshot(id seglog.LogID) {
	if view := b.topics.view.Load(); view != nil {
		if p := view.byLog[id]; p != nil {
			p.Save(nil)
		}
	}
}

// earlyCommitMs gives a client the time in which Kafka would still answer
// CONCURRENT_TRANSACTIONS after a commit, with room for a busy machine; see
// txn.Config.EarlyCommitMs.
const earlyCommitMs = 100

// producerIDExpiration is producer.id.expiration.ms; the scan runs every
// producerIDScan (producer.id.expiration.check.interval.ms).
const (
	producerIDExpiration = 24 * time.Hour
	producerIDScan       = 10 * time.Minute
)

// housekeep runs what happens by the clock, and watches the store.
func (b *Broker) housekeep() {
	defer b.wg.Done()
	expire := time.NewTicker(producerIDScan)
	defer expire.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.store.Done():
			if err := b.store.Err(); err != nil && b.ctx.Err() == nil {
				b.cfg.Logger.Error("writes stopped", "dir", b.cfg.Dir, "err", err,
					"remedy", "make the disk well (space, hardware), then restart the broker; nothing acknowledged is lost")
			}
			return
		case <-expire.C:
			b.eachPartition(func(p *shard.Partition) { p.ExpireProducers() })
		}
	}
}

func (b *Broker) eachPartition(f func(*shard.Partition)) {
	for _, t := range b.topics.view.Load().byName {
		for _, p := range t.Partitions {
			f(p)
		}
	}
}

// Addr is the address listened on, "" if there is none.
func (b *Broker) Addr() string {
	if b.ln == nil {
		return ""
	}
	return b.ln.Addr().String()
}

// Failed is closed when the broker can no longer write: a write or a sync of
// its journal failed. Err then tells why. Only a restart helps.
func (b *Broker) Failed() <-chan struct{} { return b.store.Done() }

// Err is why writes stopped, nil while they work.
func (b *Broker) Err() error { return b.store.Err() }

// Counters are counts since the start.
type Counters struct {
	Committed, Aborted int64 // transactions decided
	Fenced             int64 // requests refused for an old producer epoch
	Duplicates         int64 // batches recognised as sent before, not appended again
}

// Counters returns the counts so far.
func (b *Broker) Counters() Counters {
	c := b.env.Counters()
	return Counters{c.Committed.Load(), c.Aborted.Load(), c.Fenced.Load(), c.Duplicates.Load()}
}

// Close hangs up on its clients, writes a checkpoint and stops. The next Open
// then takes milliseconds. A request that was not answered has an unknown
// outcome, as when the process dies.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() { b.closeErr = b.stop(false) })
	return b.closeErr
}

// Crash stops the broker as a power cut would, as far as a process can: what
// was not synced is not written any more. For tests.
func (b *Broker) Crash() {
	b.closeOnce.Do(func() { b.closeErr = b.stop(true) })
}

func (b *Broker) stop(crash bool) error {
	b.cancel(ErrClosed)
	if b.ln != nil {
		b.ln.Close()
	}
	b.conns.closeAll()
	if crash {
		b.store.Crash()
	}
	b.wg.Wait()
	if !crash {
		var wg sync.WaitGroup
		b.eachPartition(func(p *shard.Partition) { wg.Add(1); p.Save(wg.Done) })
		wg.Wait()
	}
	b.eachPartition((*shard.Partition).Stop)
	b.env.Wait()
	// The shards were the last that ask for producer ids. A block that is being
	// reserved must be written before another broker may have the directory, or
	// it would put an old picture of the topics over a new one.
	b.ids.wg.Wait()
	defer b.lock.Close()
	if crash {
		return nil
	}
	return b.store.Close()
}

// coordinator finds the partition of an internal topic for a key, creating
// the topic at its first use.
func (b *Broker) coordinator(topic, key string) (*shard.Partition, error) {
	t, err := b.topics.internalTopic(topic)
	if err != nil {
		return nil, err
	}
	return t.Partitions[coordinatorPartition(key, len(t.Partitions))], nil
}

func (b *Broker) partition(topic string, partition int32) *shard.Partition {
	return b.topics.partition(batch.TopicPartition{Topic: topic, Partition: partition})
}
