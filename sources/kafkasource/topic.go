package kafkasource

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
)

// bounds are what the topic has of a partition.
type bounds struct {
	start, end int64 // the first record, and the one that comes next
	stable     int64 // the end for who begins there: what a transaction has open comes when it is committed
	life       string
}

// topic asks for the topic and says what is wrong with it.
func (s *Source) topic(ctx context.Context) (kmsg.MetadataResponseTopic, error) {
	fail := func(err error) (kmsg.MetadataResponseTopic, error) {
		return kmsg.MetadataResponseTopic{}, fmt.Errorf("kafkasource: topic %s: %w", s.cfg.Topic, explain(err))
	}
	if err := reach(ctx, s.client); err != nil {
		return fail(err)
	}
	t, err := s.describe(ctx, s.cfg.Topic, kadm.OpRead)
	if err != nil {
		return fail(err)
	}
	return t, nil
}

// describe asks the broker about a topic, past what the client remembers, and whether the user may do with it
// what is to be done.
func (s *Source) describe(ctx context.Context, topic string, do kadm.ACLOperation) (kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation, req.IncludeTopicAuthorizedOperations = false, true
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	reply, err := req.RequestWith(ctx, prompt.Client{Client: s.client})
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	if len(reply.Topics) != 1 {
		return kmsg.MetadataResponseTopic{}, errShort
	}
	t := reply.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return t, err
	}
	if len(t.Partitions) == 0 {
		return t, kerr.UnknownTopicOrPartition
	}
	// A broker that does not say what the user may do does not say either that it may describe, which it did.
	if may := kadm.DecodeACLOperations(t.AuthorizedOperations); slices.Contains(may, kadm.OpDescribe) && !slices.Contains(may, do) {
		return t, kerr.TopicAuthorizationFailed
	}
	return t, nil
}

// lifeOf is what tells a topic from another one of its name; "" is unknown: brokers that have
// no ids, or not yet, say zero.
func lifeOf(id [16]byte) string {
	if id == ([16]byte{}) {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// bounds asks what the topic has of partition p.
func (s *Source) bounds(ctx context.Context, p int32) (bounds, error) {
	t, err := s.topic(ctx)
	if err != nil {
		return bounds{}, err
	}
	if !slices.ContainsFunc(t.Partitions, func(q kmsg.MetadataResponseTopicPartition) bool { return q.Partition == p }) {
		return bounds{}, fmt.Errorf("kafkasource: topic %s: partition %d does not exist any more: give it %d partitions again", s.cfg.Topic, p, s.known())
	}
	b := bounds{life: lifeOf(t.TopicID)}
	for _, ask := range []struct {
		timestamp int64
		isolation int8
		at        *int64
	}{{-2, 0, &b.start}, {-1, 0, &b.end}, {-1, 1, &b.stable}} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: s.cfg.Topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{
			Partition: p, CurrentLeaderEpoch: -1, Timestamp: ask.timestamp, MaxNumOffsets: 1,
		}}}}
		req.ReplicaID, req.IsolationLevel = -1, ask.isolation
		reply, err := req.RequestWith(ctx, prompt.Client{Client: s.client})
		if err == nil {
			*ask.at, err = listed(reply)
		}
		if err != nil {
			return bounds{}, fmt.Errorf("kafkasource: offsets of %s/%d: %w", s.cfg.Topic, p, explain(err))
		}
	}
	return b, nil
}

var errShort = errors.New("the broker's answer lacks what was asked for")

func listed(reply *kmsg.ListOffsetsResponse) (int64, error) {
	if len(reply.Topics) != 1 || len(reply.Topics[0].Partitions) != 1 {
		return 0, errShort
	}
	at := reply.Topics[0].Partitions[0]
	return at.Offset, kerr.ErrorForCode(at.ErrorCode)
}

// committed returns what the group of the mirror has for partition p, -1 if nothing, and whether it
// has anything for another. What it has of another life of the topic is nothing.
func (s *Source) committed(ctx context.Context, p int32, life string) (at int64, others bool, err error) {
	all, err := s.offsets(ctx)
	if err != nil {
		return 0, false, err
	}
	at = -1
	for q, o := range all {
		if ofAnother(o, life) {
			continue
		}
		if q == p {
			at = o.At
		} else if o.At >= 0 {
			others = true
		}
	}
	return at, others, nil
}

// offsets returns what the group has committed of those partitions of the topic, without any of all that it knows;
// nothing if there is no such group.
func (s *Source) offsets(ctx context.Context, of ...int32) (map[int32]kadm.OffsetResponse, error) {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = s.cfg.Group
	if of != nil {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = s.cfg.Topic, of
		g.Topics = append(g.Topics, t)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, g)
	reply, err := req.RequestWith(ctx, prompt.Client{Client: s.client})
	at := make(map[int32]kadm.OffsetResponse)
	if err == nil {
		err = s.offsetsIn(reply, at)
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kafkasource: offsets of group %s: %w", s.cfg.Group, explain(err))
	}
	return at, nil
}

func (s *Source) offsetsIn(reply *kmsg.OffsetFetchResponse, at map[int32]kadm.OffsetResponse) error {
	if len(reply.Groups) != 1 {
		return errShort
	}
	err := kerr.ErrorForCode(reply.Groups[0].ErrorCode)
	for _, t := range reply.Groups[0].Topics {
		for _, p := range t.Partitions {
			err = cmp.Or(err, kerr.ErrorForCode(p.ErrorCode)) // also of a topic whose name is not known: it may be this one
			if t.Topic != s.cfg.Topic {
				continue
			}
			o := kadm.OffsetResponse{Offset: kadm.Offset{At: p.Offset}}
			if p.Metadata != nil {
				o.Metadata = *p.Metadata
			}
			at[p.Partition] = o
		}
	}
	return err
}

// hints say what to do about an error of the broker.
var hints = []struct {
	err  error
	hint string
}{
	{kerr.UnknownTopicOrPartition, "create it, or correct its name: it is not created by reading. If it is there, the broker has just started, and knows of it in a moment"},
	{kerr.InvalidTopicException, "correct its name"},
	{kerr.TopicAuthorizationFailed, "the user lacks rights: it needs READ and DESCRIBE on the topic, WRITE and DESCRIBE on the dead topic, and CREATE if it is to be made"},
	{kerr.GroupAuthorizationFailed, "the user lacks READ on the group that offsets are mirrored to; Group \"-\" mirrors nothing"},
	{kerr.ClusterAuthorizationFailed, "the user lacks WRITE on the topic that is written to; before Kafka 3.0 also IDEMPOTENT_WRITE on the cluster"},
	{kerr.SaslAuthenticationFailed, "the broker refuses the user or the password"},
	{kerr.UnsupportedSaslMechanism, "the broker does not offer this SASL mechanism"},
	{kerr.MessageTooLarge, "give the topic that it is written to a larger max.message.bytes"},
	{kerr.InvalidRecord, "a topic with cleanup.policy compact takes no record without a key: make that of a dead topic delete"},
	{kerr.CoordinatorNotAvailable, "a broker is away or has just started; if it stays, the brokers have no place for the offsets of groups: offsets.topic.replication.factor may be above their number"},
	{kerr.UnknownMemberID, "a consumer is subscribed with this group: stop it; one that was killed counts until its session timeout is over. " +
		"If it is to go on, give the mirror a group of its own"},
}

// explain adds to an error of the broker what to do about it.
func explain(err error) error {
	for _, h := range hints {
		if errors.Is(err, h.err) {
			return fmt.Errorf("%w (%s)", err, h.hint)
		}
	}
	return explainDial(err)
}
