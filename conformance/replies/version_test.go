//go:build conformance

package replies_test

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, and requests that are none.
var versionScenarios = []scenario{
	{"ApiVersions: every version", apiVersions},
	{"versions that are not served", func(s *script) {
		c := s.client("a")
		for _, head := range []struct {
			what    string
			key     int16
			version int16
		}{
			{"Produce v99", 0, 99}, {"Produce v0", 0, 0}, {"Produce v2", 0, 2}, {"Fetch v3", 1, 3}, {"ListOffsets v0", 2, 0},
			{"OffsetCommit v1", 8, 1}, {"EndTxn v6", 26, 6}, {"api key 999", 999, 0}, {"api key -1", -1, 0}, {"Metadata v-1", 3, -1},
		} {
			c.raw(head.what, frame(head.key, head.version, nil))
		}
	}},
	{"frames that are no requests", func(s *script) {
		c := s.client("a")
		c.raw("an empty frame", []byte{0, 0, 0, 0})
		c.raw("a negative size", []byte{0xff, 0xff, 0xff, 0xff})
		c.raw("a frame of three bytes", []byte{0, 0, 0, 3, 1, 2, 3})
		c.raw("plain text", []byte("GET / HTTP/1.1\r\n\r\n"))
		c.raw("Metadata v9 without a body", frame(3, 9, nil))
		c.raw("Metadata v9 with an absurd count", frame(3, 9, []byte{0, 0xff, 0xff, 0xff, 0xff, 0x0f}))
		c.raw("Metadata v1 with an absurd count", frame(3, 1, []byte{0x7f, 0xff, 0xff, 0xff}))
		c.raw("Metadata v1 with an absurd string", frame(3, 1, []byte{0, 0, 0, 1, 0x7f, 0xff}))
	}},
	{"bytes after the body", func(s *script) {
		s.client("a").raw("Metadata v1 and three bytes", frame(3, 1, []byte{0, 0, 0, 0, 1, 2, 3}))
	}},
}

// frame is a request with a header (client id "a") and these bytes as its body.
func frame(key, version int16, body []byte) []byte {
	b := make([]byte, 4, 64)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 1, 0, 1, 'a')
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// apiVersions compares the rows of the requests that ours serves: what it does
// not serve is listed in docs/compatibility.md.
func apiVersions(s *script) {
	served := []int16{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 32, 42, 47, 60, 61, 65, 66, 75}
	for _, v := range []int16{0, 1, 2, 3, 4, 5, 99} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = v, "conformance", "1"
		s.apiVersions(req, served)
	}
	for _, name := range []string{"", "with space"} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, name, "1"
		s.apiVersions(req, served)
	}
}

func (s *script) apiVersions(req *kmsg.ApiVersionsRequest, served []int16) {
	resp, err := s.client("a").ask(req)
	if r := typed[*kmsg.ApiVersionsResponse](resp); r != nil {
		r.ApiKeys = slices.DeleteFunc(r.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return !slices.Contains(served, k.ApiKey) })
		const kept = "transaction.version"
		r.SupportedFeatures = slices.DeleteFunc(r.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool { return f.Name != kept })
		r.FinalizedFeatures = slices.DeleteFunc(r.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return f.Name != kept })
		if len(r.SupportedFeatures) == 0 {
			r.SupportedFeatures = nil // a tagged field: absent or empty is the same
		}
		r.FinalizedFeaturesEpoch = min(r.FinalizedFeaturesEpoch, 1)
	}
	s.record("a", req, resp, err)
}
