package verify

import "fmt"

// PartitionProgress is how far the application has read one source partition.
type PartitionProgress struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Committed is the group's committed offset, the next one to be read, or -1
	// where the group has committed none.
	Committed int64 `json:"committed"`
	// End is the partition's high watermark.
	End int64 `json:"end"`
	// Unread is the number of committed data records at or after Committed. It
	// is less than End-Committed where transaction markers or aborted records
	// take up offsets.
	Unread int64 `json:"unread"`
}

// String names the partition and its offsets.
func (p PartitionProgress) String() string {
	return fmt.Sprintf("%s-%d: committed %d, end %d, %d records unread", p.Topic, p.Partition, p.Committed, p.End, p.Unread)
}

// OffsetsResult lists the source partitions whose committed offset is wrong.
type OffsetsResult struct {
	Partitions int `json:"partitions"`
	// Behind were not read to the end: a restart would count records again.
	Behind []PartitionProgress `json:"behind,omitempty"`
	// Ahead are committed past the end: records to come would be lost.
	Ahead []PartitionProgress `json:"ahead,omitempty"`
}

// CheckOffsets checks that every source partition is committed at its end: all
// that was counted is marked as read, and nothing that is not there.
func CheckOffsets(progress []PartitionProgress) OffsetsResult {
	r := OffsetsResult{Partitions: len(progress)}
	for _, p := range progress {
		switch {
		case p.Committed > p.End:
			r.Ahead = append(r.Ahead, p)
		case p.Unread > 0:
			r.Behind = append(r.Behind, p)
		}
	}
	return r
}

// AtEnd reports whether every partition is committed at its end.
func (r OffsetsResult) AtEnd() bool { return len(r.Behind) == 0 && len(r.Ahead) == 0 }
