package runtime

import (
	"cmp"
	"maps"
	"slices"
)

// sortedKeys returns a map's keys in order, so that map order never reaches
// a request or a log.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
