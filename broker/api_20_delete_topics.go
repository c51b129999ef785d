package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanbeon/hanbeon/internal/seglog"
)

// DeleteTopics, key 20, versions 1 to 6.

func (b *Broker) deleteTopics(r *request) reply {
	req := r.Request.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	var last seglog.LSN
	wanted, refused := b.topicsToDelete(req)
	resp.Topics = refused
	for _, want := range wanted {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = want.Topic, want.TopicID
		var t *topic
		if want.Topic != nil {
			t, out.ErrorCode = b.topics.byName(*want.Topic), kerr.UnknownTopicOrPartition.Code
		} else {
			t, out.ErrorCode = b.topics.byID(want.TopicID), kerr.UnknownTopicID.Code
		}
		if t != nil {
			out.Topic, out.TopicID, out.ErrorCode = &t.Name, t.ID, 0
			if isInternal(t.Name) {
				// Kafka allows it, and loses every group or transaction.
				out.ErrorCode, out.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("internal topics cannot be deleted")
			} else if lsn, err := b.topics.remove(t.Name); err != nil {
				out.ErrorCode, out.ErrorMessage = kerr.KafkaStorageError.Code, kmsg.StringPtr(err.Error())
			} else {
				last = max(last, lsn)
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return reply{resp: resp, lsn: last}
}

// topicsToDelete sorts out what a request may not say: a topic with a name and
// an id, with neither, or twice, be it once by name and once by id. Nothing
// that is named in such a way is deleted (ControllerApis.deleteTopics).
func (b *Broker) topicsToDelete(req *kmsg.DeleteTopicsRequest) (wanted []kmsg.DeleteTopicsRequestTopic, refused []kmsg.DeleteTopicsResponseTopic) {
	refuse := func(name *string, id topicID, msg string) {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID, out.ErrorCode, out.ErrorMessage = name, id, kerr.InvalidRequest.Code, &msg
		refused = append(refused, out)
	}
	topics := req.Topics
	for _, name := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		topics = append(topics, t)
	}
	byName, byID := map[string]int{}, map[topicID]int{}
	for _, t := range topics {
		switch {
		case t.Topic != nil && t.TopicID != topicID{}:
			refuse(t.Topic, t.TopicID, "a topic may not be given by name and by id")
		case t.Topic != nil:
			if byName[*t.Topic]++; byName[*t.Topic] == 2 {
				refuse(t.Topic, topicID{}, "the topic is named more than once in the request")
			}
		case t.TopicID == topicID{}:
			refuse(nil, topicID{}, "a topic has neither a name nor an id")
		default:
			if byID[t.TopicID]++; byID[t.TopicID] == 2 {
				refuse(nil, t.TopicID, "the topic's id is in the request more than once")
			}
		}
	}
	for _, t := range topics {
		live := (*topic)(nil)
		switch {
		case t.Topic != nil && t.TopicID == topicID{} && byName[*t.Topic] == 1:
			if live = b.topics.byName(*t.Topic); live != nil && byID[live.ID] > 0 {
				refuse(t.Topic, live.ID, "the topic is in the request by name and by id")
				continue
			}
			wanted = append(wanted, t)
		case t.Topic == nil && byID[t.TopicID] == 1:
			if live = b.topics.byID(t.TopicID); live != nil && byName[live.Name] > 0 {
				continue // refused with its name
			}
			wanted = append(wanted, t)
		}
	}
	return wanted, refused
}
