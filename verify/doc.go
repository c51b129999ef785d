// Package verify holds the checkers that decide whether a run kept the
// exactly-once promise: an independent word count, and checks of the input
// topic, the sink topic, the changelog, the stores and the committed offsets
// against it.
//
// A checker is plain data: records are added to it in the order in which they
// were read, and it is then asked for a result. Nothing here reads a topic,
// starts a process or looks at a clock, so the same checkers serve the demo,
// the conformance runs and the unit tests. Each has a negative control in its
// tests: a history that breaks the property, for which the checker must go red.
package verify
