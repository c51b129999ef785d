// Package faults holds the negative controls of the streams runtime: switches
// that break exactly-once on purpose, with which the checkers of package verify
// must go red. They reach the runtime through the context of App.Run, so no
// public configuration can set them.
package faults

import "context"

// Set says which properties are broken. The zero value breaks nothing.
type Set struct {
	// OffsetsOutsideTransaction commits offsets with a plain OffsetCommit
	// after the transaction.
	OffsetsOutsideTransaction bool
	// StoreBeforeCommit applies the stores' overlay before the transaction's
	// outcome is known.
	StoreBeforeCommit bool
	// NoGroupMetadata leaves member and generation out of TxnOffsetCommit, so
	// that a zombie is not fenced.
	NoGroupMetadata bool
	// UnknownIsAborted treats an unknown outcome as an abort without asking.
	UnknownIsAborted bool
}

type key struct{}

// With returns a context whose App.Run runs with the faults.
func With(ctx context.Context, s Set) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the faults of the context.
func From(ctx context.Context) Set {
	s, _ := ctx.Value(key{}).(Set)
	return s
}
