// Package txn is the transaction coordinator of one `__transaction_state`
// partition, as a pure machine: [Machine.Decide] turns a command into effects,
// [Machine.Apply] is the only writer of durable state and also the boot replay.
//
// It follows Kafka's TransactionCoordinator, TransactionMetadata and
// TransactionStateManager (KIP-98, KIP-360, KIP-890, KIP-1228). The life of a
// transaction:
//
//	Empty ─add─▶ Ongoing ─end─▶ PrepareCommit ─markers─▶ CompleteCommit ─add─▶ Ongoing …
//	                     └────▶ PrepareAbort  ─markers─▶ CompleteAbort
//
// The record of Prepare is the decision. From then on the outcome is fixed: a
// crash at any later point ends in the same outcome, because [Resume] sends
// every marker of a prepared transaction again.
//
// What differs from Kafka, on purpose:
//
//   - A pending transition (51 between an append and its durability) does not
//     exist: records are applied at once and replies wait for durability.
//   - EndTxn is answered when all markers are appended and Complete is written,
//     not at Prepare. From the answer on, a late batch of that transaction is
//     refused by every partition, and the next transaction never meets 51.
//   - lastProducerEpoch is kept in a tagged field of the record (readers that do
//     not know it skip it), so a retried InitProducerId (KIP-360) gets the same
//     answer after a restart. Kafka keeps it in memory and answers 90.
//   - An epoch of 32767 is never handed out, not even from a log that Kafka
//     wrote before KAFKA-20090: InitProducerId rotates to a new producer id, and
//     a repeated EndTxn gets 90.
//   - The overflow retry of EndTxn v5 is recognised only if the producer id has
//     really been rotated. Kafka also accepts it while the id is unchanged,
//     which no client can mean.
//   - A repeated InitProducerId leaves previousProducerId alone, so that it can
//     be repeated again.
//   - A marker refused with 47 or 52 stops the marker's repetition as in Kafka,
//     but is reported ([Effects].Stalled), shown by [Machine.Describe], and
//     tried again after a restart.
//   - Commands parked for longer than [Config].MaxWaitMs are answered 51.
//
// Reply codes are those of the newest request version; [WireCode] maps a fenced
// producer's code for older versions.
//
// The package is pure: no goroutine, clock, I/O, randomness, logging or lock.
package txn
