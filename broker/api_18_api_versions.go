package broker

import (
	"maps"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, key 18, versions 0 to 4, with the finalized features from
// which clients learn that transaction.version 2 (KIP-890) is spoken here.

// features are finalized at these levels. KIP-848 groups come later.
var features = []struct {
	name          string
	min, max, now int16
}{
	{"transaction.version", 0, 2, 2},
}

// softwareName is what a client may call itself (ApiVersionsRequest.isValid).
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func (b *Broker) apiVersions(r *request) reply {
	req := r.Request.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	keys := slices.Sorted(maps.Keys(b.apis))
	switch {
	case req.Version < 0: // a version we do not know: the answer is version 0, and says what we know
		resp.Version, resp.ErrorCode = 0, kerr.UnsupportedVersion.Code
		keys = []int16{kmsg.ApiVersions.Int16()}
	case req.Version >= 3 && !(softwareName.MatchString(req.ClientSoftwareName) && softwareName.MatchString(req.ClientSoftwareVersion)):
		resp.ErrorCode, resp.FinalizedFeaturesEpoch = kerr.InvalidRequest.Code, -1
		return reply{resp: resp}
	}
	for _, key := range keys {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, b.apis[key].min, b.apis[key].max
		if key == kmsg.Produce.Int16() {
			// librdkafka picks its record format by a minimum of 0
			// (KAFKA-18659); versions 0 to 2 are refused all the same.
			k.MinVersion = 0
		}
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	if req.Version < 3 {
		return reply{resp: resp}
	}
	resp.FinalizedFeaturesEpoch = int64(b.meta.view().Starts)
	for _, f := range features {
		if f.min > 0 || req.Version >= 4 { // version 3 clients choke on a minimum of 0
			s := kmsg.NewApiVersionsResponseSupportedFeature()
			s.Name, s.MinVersion, s.MaxVersion = f.name, f.min, f.max
			resp.SupportedFeatures = append(resp.SupportedFeatures, s)
		}
		l := kmsg.NewApiVersionsResponseFinalizedFeature()
		l.Name, l.MinVersionLevel, l.MaxVersionLevel = f.name, f.now, f.now
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, l)
	}
	return reply{resp: resp}
}
