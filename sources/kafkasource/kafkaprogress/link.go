package kafkaprogress

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
)

// A link is the client, made when it is first needed: what it may say depends on what the
// brokers can do.
type link struct {
	options []kgo.Opt

	asking chan struct{} // holds a value while somebody asks, once for all
	client *prompt.Client
	// explicit says that a group must be added to a transaction before it is committed
	// to, and that a transaction's end does not raise the producer's epoch: brokers
	// before transactions of version 2 (KIP-890).
	explicit bool
}

// get returns the client.
func (l *link) get(ctx context.Context) (*prompt.Client, error) {
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.client != nil {
		return l.client, nil
	}
	client, err := l.dial(kversion.V4_1_0())
	if err != nil {
		return nil, err
	}
	// Ping tries each broker once and says why it failed.
	err = client.Ping(ctx)
	var reply *kmsg.ApiVersionsResponse
	if err == nil {
		reply, err = kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	}
	if err != nil {
		go client.Close() // it waits for what was given up
		return nil, err
	}
	l.explicit = true
	for _, f := range reply.FinalizedFeatures {
		if f.Name == "transaction.version" && f.MaxVersionLevel >= 2 {
			l.explicit = false
		}
	}
	if l.explicit {
		client.Close()
		if client, err = l.dial(kversion.V3_9_0()); err != nil {
			return nil, err
		}
	}
	l.client = client
	return client, nil
}

// dial makes a client that says no more than those versions know. Later ones name topics
// by their ids only.
func (l *link) dial(versions *kversion.Versions) (*prompt.Client, error) {
	client, err := kgo.NewClient(append(append([]kgo.Opt{kgo.ClientID("countoff")}, l.options...), kgo.MaxVersions(versions))...)
	return &prompt.Client{Client: client}, err
}

func (l *link) close() {
	l.asking <- struct{}{}
	defer func() { <-l.asking }()
	if l.client != nil {
		l.client.Close()
	}
}

// A producer is what the broker knows the owner of a transactional id by.
type producer struct {
	id    int64
	epoch int16
}

// transactionTimeout is how long a transaction may stay open that nobody ends. The next
// owner does not wait for it.
const transactionTimeout = 30 * time.Second

// seek asks which broker keeps a transactional id, for as long as brokers may take to find one the first
// time. Whoever needs that one asks until all time is up, and does not say then that there is none.
func (s *Store) seek(ctx context.Context, id string) error {
	client, err := s.link.get(ctx)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, s.firstUse)
	defer cancel()
	for {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKeys = 1, []string{id}
		reply, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(reply.ErrorCode)
		if !errors.Is(err, kerr.CoordinatorNotAvailable) || pause(wait, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// begin initializes a transactional id: all who did before are fenced, and what they have
// under way is over when it returns.
func (s *Store) begin(ctx context.Context, id string) (producer, error) {
	client, err := s.link.get(ctx)
	if err != nil {
		return producer{}, err
	}
	var p producer
	err = patiently(ctx, func() error {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, int32(transactionTimeout/time.Millisecond)
		reply, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		p = producer{reply.ProducerID, reply.ProducerEpoch}
		return kerr.ErrorForCode(reply.ErrorCode)
	})
	return p, err
}

// An offset is what the group has of a partition.
type offset struct {
	at    int64
	table *table // nil: not written by countoff
}

// read asks the group for the offset of a partition, -1 if there is none, and for what is
// known of it, nil if that is not ours. Stable waits until no commit is under way.
func (s *Store) read(ctx context.Context, id partition.ID, stable bool) (t *table, at int64, err error) {
	found, err := s.offsets(ctx, []partition.ID{id}, stable)
	if o, ok := found[id]; ok && err == nil {
		return o.table, o.at, nil
	}
	return nil, -1, err
}

// offsets asks the group for the offsets of partitions; those that it has are returned.
func (s *Store) offsets(ctx context.Context, ids []partition.ID, stable bool) (map[partition.ID]offset, error) {
	what := fmt.Sprintf("offsets of %s", s.cfg.Topic)
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, s.fail(what, err)
	}
	ps := make([]int32, len(ids))
	for i, id := range ids {
		ps[i] = int32(id)
	}
	found := make(map[partition.ID]offset, len(ids))
	err = patiently(ctx, func() error {
		clear(found)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = stable
		req.Groups = []kmsg.OffsetFetchRequestGroup{{
			Group: s.cfg.Group, MemberEpoch: -1,
			Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: s.cfg.Topic, Partitions: ps}},
		}}
		reply, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		return offsetsIn(reply, found)
	})
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, s.fail(what, err)
	}
	return found, nil
}

var errShort = errors.New("the broker's answer lacks what was asked for")

func offsetsIn(reply *kmsg.OffsetFetchResponse, found map[partition.ID]offset) error {
	if len(reply.Groups) != 1 {
		return errShort
	}
	if err := kerr.ErrorForCode(reply.Groups[0].ErrorCode); err != nil {
		return err
	}
	if len(reply.Groups[0].Topics) != 1 {
		return errShort
	}
	for _, p := range reply.Groups[0].Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return err
		}
		if p.Offset < 0 {
			continue
		}
		o := offset{at: p.Offset}
		if p.Metadata != nil {
			var err error
			if o.table, err = decode(*p.Metadata, time.Now()); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
			if life, ok := strings.CutPrefix(*p.Metadata, MirrorMark); ok {
				o.table = newTable(p.Offset)
				o.table.life = life
			}
		}
		found[partition.ID(p.Partition)] = o
	}
	return nil
}

// transact commits the offset of a partition under its owner's producer. An error says
// that the producer was fenced, or that nothing is known.
func (s *Store) transact(ctx context.Context, o *owner, at int64, metadata string) error {
	client, err := s.link.get(ctx)
	if err != nil {
		return err
	}
	id := s.id(o.grant.ID)
	if s.link.explicit {
		err = patiently(ctx, func() error {
			req := kmsg.NewPtrAddOffsetsToTxnRequest()
			req.TransactionalID, req.Group = id, s.cfg.Group
			req.ProducerID, req.ProducerEpoch = o.producer.id, o.producer.epoch
			reply, err := req.RequestWith(ctx, client)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(reply.ErrorCode)
		})
		if err != nil {
			return err
		}
	}
	err = patiently(ctx, func() error {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group = id, s.cfg.Group
		req.ProducerID, req.ProducerEpoch = o.producer.id, o.producer.epoch
		req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: s.cfg.Topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{
			Partition: int32(o.grant.ID), Offset: at, LeaderEpoch: -1, Metadata: &metadata,
		}}}}
		reply, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		if len(reply.Topics) != 1 || len(reply.Topics[0].Partitions) != 1 {
			return errShort
		}
		return kerr.ErrorForCode(reply.Topics[0].Partitions[0].ErrorCode)
	})
	if err != nil {
		return err
	}
	return patiently(ctx, func() error {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.Commit = id, true
		req.ProducerID, req.ProducerEpoch = o.producer.id, o.producer.epoch
		reply, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(reply.ErrorCode); err != nil {
			return err
		}
		if reply.Version >= 5 && reply.ProducerID >= 0 {
			o.producer = producer{reply.ProducerID, reply.ProducerEpoch}
		}
		return nil
	})
}

// patiently says a call again while the broker is still ending a transaction.
func patiently(ctx context.Context, call func() error) error {
	const longest = 100 * time.Millisecond
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, longest) {
		err := call()
		if !errors.Is(err, kerr.ConcurrentTransactions) && !errors.Is(err, kerr.UnstableOffsetCommit) {
			return err
		}
		if over := pause(ctx, wait); over != nil {
			return errors.Join(err, over)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fenced reports whether the broker refuses the producer: another one has initialized its
// transactional id since, or the broker has given it up. Kafka 4.1 says unknown server error
// to a transaction that ends while another one initializes.
func fenced(err error) bool {
	for _, refusal := range [...]error{
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID,
		kerr.InvalidTxnState, kerr.TransactionAbortable, kerr.UnknownServerError,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}
