package verify

// LineChecker checks that the input topic holds every line that was fed, once.
// It tells a fault of the feeding producer, or of the broker behind it, from
// one of the application: a line that is twice in the input is rightly counted
// twice.
type LineChecker struct {
	seen    []uint8 // per line number: 1 once it was read
	records int64
	twice   int64
	unknown int64
}

// LinesResult is what the input topic holds. All numbers are lines.
type LinesResult struct {
	Fed     int64 `json:"fed"`
	Records int64 `json:"records"`
	Lost    int64 `json:"lost"`
	Twice   int64 `json:"twice"`
	// Unknown is the number of records with a line number that was never fed.
	Unknown int64 `json:"unknown"`
}

// NewLineChecker returns a checker for the lines 0 ≤ number < fed.
func NewLineChecker(fed int) *LineChecker {
	return &LineChecker{seen: make([]uint8, fed)}
}

// Add takes the number of a line read from the input topic.
func (c *LineChecker) Add(number int64) {
	c.records++
	if number < 0 || number >= int64(len(c.seen)) {
		c.unknown++
		return
	}
	switch c.seen[number] {
	case 0:
		c.seen[number] = 1
	default:
		c.twice++
	}
}

// Result says which of the fed lines are missing or there more than once.
func (c *LineChecker) Result() LinesResult {
	r := LinesResult{Fed: int64(len(c.seen)), Records: c.records, Twice: c.twice, Unknown: c.unknown}
	for _, n := range c.seen {
		if n == 0 {
			r.Lost++
		}
	}
	return r
}

// ExactlyOnce reports whether each line is there once and nothing else is.
func (r LinesResult) ExactlyOnce() bool { return r.Lost == 0 && r.Twice == 0 && r.Unknown == 0 }
