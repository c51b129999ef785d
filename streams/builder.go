package streams

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/hanbeon/hanbeon/internal/task"
	"github.com/hanbeon/hanbeon/streams/serde"
)

// Builder collects the operators of a topology. Mistakes do not stop it: Build
// returns all of them together. A Builder is for one goroutine.
type Builder struct {
	nodes   []*node
	counter int
	errs    []error
	stores  map[string]*node
	sources map[string]*node
	names   map[string]bool
}

// NewBuilder starts an empty topology.
func NewBuilder() *Builder {
	return &Builder{stores: map[string]*node{}, sources: map[string]*node{}, names: map[string]bool{}}
}

// Topology is a finished topology, for New or for the test driver of streamstest.
type Topology struct{ compiled *task.Topology }

// Describe prints the topology in Kafka's TopologyDescription format.
func (t *Topology) Describe() string { return t.compiled.Describe() }

// Compiled is what the runtime and the test driver run. It is no part of the API.
func (t *Topology) Compiled() *task.Topology { return t.compiled }

// node is one operator. Its types are inside compile.
type node struct {
	name        string
	kind        task.NodeKind
	topic       string
	repartition bool
	partitions  int32
	store       *task.StoreSpec

	parents, children []*node

	// ignoresValue: the handler never looks at its value argument.
	ignoresValue bool
	// readsOld: the table handler looks at the old value of a change.
	readsOld bool
	// passesOld: the table handler only passes the old value on.
	passesOld bool

	// compile makes the handler of one task: a task.Handler for a source, a
	// handler or tableHandler of the node's input types for others.
	compile func(a *assembly) any
}

// needsOld says whether a child of this table node wants the old value.
func (n *node) needsOld() bool {
	return slices.ContainsFunc(n.children, func(c *node) bool {
		return c.readsOld || c.passesOld && c.needsOld()
	})
}

// add links a node under its parents. An empty name is made of role and counter.
func (b *Builder) add(n *node, role string, parents ...*node) *node {
	if n.name == "" {
		n.name = b.nextName(role)
	}
	if b.names[n.name] {
		b.fail(n, "the name is taken: give each operator its own")
	}
	b.names[n.name] = true
	n.parents = parents
	for _, p := range parents {
		p.children = append(p.children, n)
	}
	b.nodes = append(b.nodes, n)
	return n
}

// nextName counts as Kafka's InternalStreamsBuilder does.
func (b *Builder) nextName(role string) string {
	b.counter++
	return fmt.Sprintf("%s-%010d", role, b.counter-1)
}

func (b *Builder) fail(n *node, format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf("%s: %s", n.name, fmt.Sprintf(format, args...)))
}

// addStore gives a node a store.
func (b *Builder) addStore(n *node, name string, inMemory, noChangelog bool) {
	if owner, taken := b.stores[name]; taken {
		b.fail(n, "store %q already belongs to %s: give it another name", name, owner.name)
		return
	}
	b.checkTopicName(n, "store name", name)
	b.stores[name] = n
	n.store = &task.StoreSpec{Name: name, Persistent: !inMemory}
	if !noChangelog {
		n.store.ChangelogTopic = name + "-changelog"
	}
}

// checkTopicName holds names to what a Kafka topic may be called.
func (b *Builder) checkTopicName(n *node, what, name string) {
	if name == "" {
		b.fail(n, "the %s is empty", what)
		return
	}
	for _, c := range []byte(name) {
		legal := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !legal {
			b.fail(n, "%s %q: use letters, digits, '.', '_' and '-' only", what, name)
			return
		}
	}
	if len(name) > 249 || name == "." || name == ".." {
		b.fail(n, "%s %q: Kafka does not allow it as a topic name", what, name)
	}
}

// checkFunc reports a nil function, which would panic at the first record.
func (b *Builder) checkFunc(n *node, isNil bool) {
	if isNil {
		b.fail(n, "its function is nil")
	}
}

// one takes the only option of a call.
func one[O any](b *Builder, n string, opts []O) O {
	var zero O
	switch len(opts) {
	case 0:
		return zero
	case 1:
		return opts[0]
	}
	b.errs = append(b.errs, fmt.Errorf("%s: %d options of type %T: put them into one", n, len(opts), zero))
	return zero
}

// codecFor picks the first serde given, else the one that the type implies.
func codecFor[T any](b *Builder, n *node, role string, given ...serde.Serde[T]) codec[T] {
	for _, s := range given {
		if s != nil {
			return newCodec(s)
		}
	}
	if s, ok := serde.For[T](); ok {
		return newCodec(s)
	}
	b.fail(n, "no serde is known for its %s type %s: pass one in the operator's options, such as serde.JSON[%[2]s]()", role, reflect.TypeFor[T]())
	return codec[T]{}
}

// codec adds Kafka's null to a serde.
type codec[T any] struct {
	serde serde.Serde[T]
	null  serde.NullSerde[T] // nil for a type without a null
}

func newCodec[T any](s serde.Serde[T]) codec[T] {
	null, _ := s.(serde.NullSerde[T])
	return codec[T]{serde: s, null: null}
}

// decode reads data; null is true when there is no value for T to stand for it.
func (c *codec[T]) decode(data []byte) (v T, null bool, err error) {
	if data != nil {
		v, err = c.serde.Decode(data)
		return v, false, err
	}
	if c.null != nil {
		return c.null.Null(), false, nil
	}
	return v, true, nil
}

// encode writes v into buf; the result is nil for null. It returns the buffer for
// the next time.
func (c *codec[T]) encode(buf []byte, v T) (data, next []byte, err error) {
	if c.null != nil && c.null.IsNull(v) {
		return nil, buf, nil
	}
	buf, err = c.serde.Append(buf[:0], v)
	if buf == nil {
		buf = make([]byte, 0, bufferBytes) // an empty value is not null
	}
	return buf, buf, err
}

// bufferBytes is how large the buffers of processors start.
const bufferBytes = 64

// Build finishes the topology. Its error joins all mistakes, each naming its operator.
func (b *Builder) Build() (*Topology, error) {
	errs := slices.Clone(b.errs)
	if len(b.sources) == 0 {
		errs = append(errs, errors.New("topology: it reads no topic: begin with streams.Stream or streams.Table"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Topology{compiled: b.compile()}, nil
}
