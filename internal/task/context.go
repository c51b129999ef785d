package task

// Context is the record under way, besides key and value. There is one per task. A
// processor that changes a field for its children sets it back afterwards.
type Context struct {
	// TimestampMs is the timestamp that the next output carries.
	TimestampMs int64
	Headers     []Header
	// NullKey and NullValue tell Kafka's null from a zero value, since a Go type
	// such as string or int64 has no null.
	NullKey, NullValue bool

	// Topic, Partition and Offset are where the record came from.
	Topic     string
	Partition int32
	Offset    int64
	// StreamTimeMs is the largest timestamp that the task has seen.
	StreamTimeMs int64
}

// Handler decodes one record and runs it through the processors after a source.
type Handler func(rec *Record, ctx *Context) error

// Output sends to one sink topic or, in a store, to its changelog.
type Output struct {
	name      string
	topic     string
	collector Collector
}

// Topic is the topic's full name.
func (o *Output) Topic() string { return o.topic }

// PartitionCount is the number of partitions of the topic, 0 where not known.
func (o *Output) PartitionCount() int32 { return o.collector.PartitionCount(o.topic) }

// Send sends one record with the timestamp and headers of the context; partition -1
// asks for the default partitioner. Key and value are copied.
func (o *Output) Send(partition int32, key, value []byte, ctx *Context) error {
	err := o.collector.Send(o.topic, partition, key, value, ctx.Headers, ctx.TimestampMs)
	if err != nil {
		return &StageError{Stage: StageSend, Node: o.name + " (topic " + o.topic + ")", Err: err}
	}
	return nil
}
