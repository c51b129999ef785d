//go:build conformance

package replies_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/batch"
)

// naming turns messages into lines of text that two peers can have in common.
// What a peer makes up itself (ids) is numbered in the order of its first
// appearance in the replies of a script.
type naming struct {
	peer    *peer
	suffix  string
	topics  map[[16]byte]string       // ids that the script knows
	numbers map[string]map[string]int // kind → value → number
}

func newNaming(p *peer, suffix string) *naming {
	return &naming{peer: p, suffix: suffix, topics: map[[16]byte]string{}, numbers: map[string]map[string]int{}}
}

func (n *naming) number(kind, value string) string {
	m := n.numbers[kind]
	if m == nil {
		m = map[string]int{}
		n.numbers[kind] = m
	}
	if m[value] == 0 {
		m[value] = len(m) + 1
	}
	return fmt.Sprintf("%s#%d", kind, m[value])
}

// scriptMs is how long the time of a script lasts: its times are those from the
// peer's baseMs on.
const scriptMs = 60_000

// time shows a time that the script chose relative to its base, and one that
// the peer's clock gave as "now".
func (n *naming) time(ms int64) string {
	switch {
	case ms >= n.peer.baseMs && ms < n.peer.baseMs+scriptMs:
		return fmt.Sprintf("T+%d", ms-n.peer.baseMs)
	case ms > n.peer.baseMs && ms < n.peer.baseMs+48*3600*1000:
		return "now"
	}
	return fmt.Sprint(ms)
}

// lines lists the fields of a reply.
func (n *naming) lines(resp kmsg.Response) []line {
	if r, ok := resp.(*kmsg.FindCoordinatorResponse); ok && r.Version >= 4 {
		r.NodeID = n.peer.nodeID // is not on the wire
	}
	var out []line
	n.walk(&out, "", reflect.ValueOf(resp).Elem())
	return out
}

// describe shows a request on one line, without the fields that are zero.
func (n *naming) describe(req kmsg.Request) string {
	var all []line
	n.walk(&all, "", reflect.ValueOf(req).Elem())
	parts := []string{fmt.Sprintf("%s v%d", kmsg.NameForKey(req.Key()), req.GetVersion())}
	for _, l := range all {
		if l.value != "0" && l.value != `""` && l.value != "null" && l.value != "false" && !strings.HasSuffix(l.value, " entries") {
			parts = append(parts, l.path+"="+l.value)
		}
	}
	return strings.Join(parts, " ")
}

// skipped fields are never compared. Messages are for people, and every broker
// has its own words.
var skipped = []string{"Version", "UnknownTags", "ThrottleMillis", "ErrorMessage"}

func (n *naming) walk(out *[]line, path string, v reflect.Value) {
	typ := v.Type()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() || slices.Contains(skipped, f.Name) {
			continue
		}
		if p, ok := v.Interface().(kmsg.ProduceResponseTopicPartition); ok && p.ErrorCode != 0 && f.Name == "LogStartOffset" {
			continue // Kafka fills it in in some refusals and not in others; it says nothing
		}
		p := f.Name
		if path != "" {
			p = path + "." + p
		}
		n.field(out, p, f.Name, v.Field(i))
	}
}

func (n *naming) field(out *[]line, path, name string, v reflect.Value) {
	add := func(value string) { *out = append(*out, line{path, value}) }
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			add("null")
			return
		}
		n.field(out, path, name, v.Elem())
	case reflect.Struct:
		n.walk(out, path, v)
	case reflect.Array: // an id
		add(n.topicID(v.Interface().([16]byte)))
	case reflect.Slice:
		n.slice(out, path, name, v)
	case reflect.String:
		add(n.text(name, v.String()))
	case reflect.Bool:
		add(strconv.FormatBool(v.Bool()))
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		add(n.integer(name, v.Int()))
	default:
		add(fmt.Sprint(v.Interface()))
	}
}

// topicID shows an id that the script knows by its topic's name.
func (n *naming) topicID(id [16]byte) string {
	switch name := n.topics[id]; {
	case id == [16]byte{}:
		return "0"
	case name != "":
		return "id of " + strings.ReplaceAll(name, n.suffix, "")
	}
	return n.number("topic-id", fmt.Sprint(id))
}

func (n *naming) integer(name string, v int64) string {
	switch name {
	case "ErrorCode":
		if v == 0 {
			return "0"
		}
		if err := kerr.TypedErrorForCode(int16(v)); err != nil {
			return fmt.Sprintf("%d %s", v, err.Message)
		}
	case "ProducerID":
		if v >= 0 {
			return n.number("producer", fmt.Sprint(v))
		}
	case "NodeID", "Leader", "LeaderID", "ControllerID", "Replicas", "ISR", "CurrentLeader":
		if v == int64(n.peer.nodeID) {
			return "node"
		}
	case "Port":
		if v > 0 {
			return "port"
		}
	case "CoordinatorEpoch":
		if v >= 0 {
			return "epoch"
		}
	case "LogAppendTime", "Timestamp", "StartTimestamp", "LastTimestamp", "FinalizedFeaturesEpoch":
		return n.time(v)
	}
	return fmt.Sprint(v)
}

func (n *naming) text(name, v string) string {
	switch name {
	case "Host":
		if v != "" {
			return "host"
		}
	case "ClusterID":
		return "cluster"
	case "MemberID", "LeaderID":
		// A member id is the client's or the instance's name with a UUID.
		if v != "" && !strings.HasSuffix(v, "?") && len(v) > 36 {
			return n.number("member", v)
		}
	}
	return strconv.Quote(strings.ReplaceAll(v, n.suffix, ""))
}

func (n *naming) slice(out *[]line, path, name string, v reflect.Value) {
	add := func(value string) { *out = append(*out, line{path, value}) }
	if v.Type().Elem().Kind() == reflect.Uint8 {
		switch b := v.Bytes(); {
		case b == nil:
			add("null")
		case name == "RecordBatches" || name == "Records":
			n.batches(out, path, b)
		default:
			add(strconv.Quote(string(b)))
		}
		return
	}
	if v.IsNil() {
		add("null")
		return
	}
	if v.Type().Elem().Kind() != reflect.Struct {
		var parts []string
		for i := range v.Len() {
			var one []line
			n.field(&one, "", name, v.Index(i))
			parts = append(parts, one[0].value)
		}
		if name == "Partitions" {
			slices.Sort(parts) // a set
		}
		add("[" + strings.Join(parts, " ") + "]")
		return
	}
	add(fmt.Sprintf("%d entries", v.Len()))
	keys, sorted := n.entries(v)
	for i, e := range sorted {
		n.walk(out, fmt.Sprintf("%s[%s]", path, keys[i]), e)
	}
}

// entries gives each entry of a list a key: what identifies it, and a number
// if there are several. Kafka's own order is often that of a hash table, so the
// list is put in the order of the keys. Ids that were made up cannot decide,
// unless they have been seen before.
func (n *naming) entries(v reflect.Value) (keys []string, sorted []reflect.Value) {
	type entry struct {
		order, key string
		value      reflect.Value
	}
	var list []entry
	for i := range v.Len() {
		e := entry{value: v.Index(i)}
		for j := range e.value.NumField() {
			f, name := reflect.Indirect(e.value.Field(j)), e.value.Type().Field(j).Name
			switch {
			case name == "Name", name == "Topic", name == "Group", name == "TransactionalID", name == "ResourceName", name == "CoordinatorKey", name == "Key":
				if f.IsValid() && f.String() != "" {
					e.key = strings.ReplaceAll(f.String(), n.suffix, "")
					e.order = f.String()
				}
			case name == "TopicID":
				if id := f.Interface().([16]byte); e.order == "" && id != [16]byte{} {
					e.key = n.topicID(id)
					e.order = e.key
				}
			case name == "MemberID" && len(f.String()) > 36: // made of the client's name and a UUID
				e.order += f.String()[:len(f.String())-36]
			case name == "ProducerID":
				if number := n.numbers["producer"][fmt.Sprint(f.Int())]; number > 0 { // seen before
					e.order += fmt.Sprintf("%05d ", number)
				}
			case name == "Partition", name == "ApiKey":
				e.key = fmt.Sprint(f.Int())
				e.order = fmt.Sprintf("%010d", f.Int()+1)
			}
			if f.IsValid() && (name == "Error" || name == "Offset" || name == "BaseOffset" || name == "FirstOffset") {
				e.order += fmt.Sprint(f.Int())
			}
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b entry) int { return strings.Compare(a.order, b.order) })
	seen := map[string]int{}
	for i, e := range list {
		if e.key == "" {
			e.key = fmt.Sprint(i)
		}
		if seen[e.key]++; seen[e.key] > 1 {
			e.key = fmt.Sprintf("%s #%d", e.key, seen[e.key])
		}
		keys, sorted = append(keys, e.key), append(sorted, e.value)
	}
	return keys, sorted
}

// batches shows record batches with their records.
func (n *naming) batches(out *[]line, path string, b []byte) {
	count := 0
	for len(b) > 0 {
		if count > 0 && (len(b) < 12 || len(b) < 12+int(binary.BigEndian.Uint32(b[8:]))) {
			break // Kafka cuts the last batch at the limit, and clients drop it
		}
		p := fmt.Sprintf("%s[%d]", path, count)
		h, raw, rest, err := batch.Split(b)
		if err != nil {
			*out = append(*out, line{p, fmt.Sprintf("%d bytes that are no batch", len(b))})
			break
		}
		count++
		b = rest
		*out = append(*out, line{p, n.batch(h, raw)})
	}
	*out = append(*out, line{path, fmt.Sprintf("%d batches", count)})
}

func (n *naming) batch(h batch.Header, raw []byte) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d..%d", h.BaseOffset, h.LastOffset())
	if h.HasProducer() {
		fmt.Fprintf(&s, " %s epoch %d", n.number("producer", fmt.Sprint(int64(h.ProducerID))), h.Epoch)
	}
	fmt.Fprintf(&s, " sequence %d", h.BaseSequence)
	for _, bit := range []struct {
		set  bool
		name string
	}{
		{h.IsTransactional(), "transactional"}, {h.IsControl(), "control"}, {h.IsAppendTime(), "append-time"},
		{h.Attributes&batch.AttrDeleteHorizon != 0, "delete-horizon"}, {!batch.CheckCRC(raw), "bad CRC"},
	} {
		if bit.set {
			s.WriteString(" " + bit.name)
		}
	}
	fmt.Fprintf(&s, " codec %d times %s to %s", h.Codec(), n.time(h.BaseTimestampMs), n.time(h.MaxTimestampMs))
	if h.IsControl() {
		kind, _, err := batch.ParseMarker(raw)
		fmt.Fprintf(&s, " marker %v %v", kind, err)
		return s.String()
	}
	for r, err := range batch.Records(raw) {
		if err != nil {
			fmt.Fprintf(&s, " broken: %v", err)
			break
		}
		value := r.Value
		if len(value) > 20 && bytes.Count(value, value[:1]) == len(value) {
			value = fmt.Appendf(nil, "%d × %c", len(value), value[0])
		}
		fmt.Fprintf(&s, " {%d %s %q=%q}", int64(h.BaseOffset)+int64(r.OffsetDelta), n.time(h.TimestampMs(&r)), r.Key, value)
	}
	return s.String()
}
