package kafkaprogress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/progress"
)

// A stage is a topic of which several processes keep the progress.
type stage struct {
	*testing.T
	ctx    context.Context
	broker *kafkatest.Broker
	name   string
	topic  string
}

// on runs a test on brokers with transactions as they are, and as they were.
func on(t *testing.T, test func(s *stage)) {
	begin := func(t *testing.T, b *kafkatest.Broker) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		test(&stage{T: t, ctx: ctx, broker: b, name: kafkatest.Name(t), topic: b.Topic(2)})
	}
	t.Run("transactions of version 2", func(t *testing.T) { begin(t, kafkatest.New(t)) })
	t.Run("Kafka 3.9", func(t *testing.T) { begin(t, kafkatest.Fake(t, kfake.MaxVersions(kversion.V3_9_0()))) })
}

// store is the store as another process has it.
func (s *stage) store(edit ...func(*Config)) *Store {
	s.Helper()
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	for _, e := range edit {
		e(&cfg)
	}
	st, err := NewStore(s.name, cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = st.Disconnect() })
	return st
}

func owns(e partition.Epoch) (partition.Grant, partition.Token) {
	return partition.Grant{ID: 1, Epoch: e}, partition.Token{Epoch: e, Session: partition.Session(fmt.Sprint("session", e))}
}

func (s *stage) open(st *Store, e partition.Epoch) progress.Found {
	s.Helper()
	g, tok := owns(e)
	f, err := st.Open(s.ctx, g, tok, 0)
	if err != nil {
		s.Fatalf("open under %d: %v", e, err)
	}
	return f
}

// says that positions are done, of 100 that were read.
func (s *stage) says(st *Store, e partition.Epoch, base int64, done ...int64) error {
	g, tok := owns(e)
	_, err := st.Settle(s.ctx, g, tok, &progress.Request{Base: base, Gate: 100, Read: 100, Alone: progress.None, Done: done}, nil)
	return err
}

func (s *stage) admits(st *Store, e partition.Epoch, base int64, done ...int64) {
	s.Helper()
	if err := s.says(st, e, base, done...); err != nil {
		s.Fatalf("settle under %d: %v", e, err)
	}
}

func (s *stage) refuses(st *Store, e, stands partition.Epoch) {
	s.Helper()
	err := s.says(st, e, 90, 95)
	if f, ok := errors.AsType[*sources.FencedError](err); !ok || f.Stored != stands {
		s.Fatalf("settle under %d: %v, want that %d stands", e, err, stands)
	}
}

// offset is what the group has.
func (s *stage) offset() int64 {
	s.Helper()
	_, at, err := s.store().read(s.ctx, 1, true)
	if err != nil {
		s.Fatal(err)
	}
	return at
}

// What is settled is found by the next owner, and shown by the group.
func TestHandOver(t *testing.T) {
	on(t, func(s *stage) {
		a, b := s.store(), s.store()
		if err := a.Ready(s.ctx); err != nil {
			t.Error(err)
		}
		if base, _, err := a.Stands(s.ctx, 1); base >= 0 || err != nil {
			t.Errorf("it stands at %d, %v", base, err)
		}
		s.open(a, 1)
		s.admits(a, 1, 3, 5, 7)
		g, tok := owns(1)
		if fences, err := b.Fences(s.ctx, []partition.ID{0, 1}); err != nil || len(fences) != 1 || fences[1] != tok {
			t.Errorf("the fences are %v, %v, want that of %v", fences, err, tok)
		}
		if err := a.Close(s.ctx, g, tok); err != nil {
			t.Fatal(err)
		}
		if base, _, err := b.Stands(s.ctx, 1); base != 3 || err != nil {
			t.Errorf("it stands at %d, %v, want 3", base, err)
		}
		f := s.open(b, 2)
		if f.Base != 3 || !slices.Equal(f.Done, []int64{5, 7}) || f.Suspects != 0 {
			t.Errorf("found %+v", f)
		}
		if at := s.offset(); at != 3 {
			t.Errorf("the group stands at %d, want 3", at)
		}
	})
}

// Brokers that have no place for transactions, as a single one that is to keep them three times, are told
// of at the start: the client asks them until time is up, and would say no more than that.
func TestNoPlaceForTransactions(t *testing.T) {
	on(t, func(s *stage) {
		if s.broker.Cluster == nil {
			s.Skip("a broker refuses nothing on command")
		}
		s.broker.Cluster.ControlKey(int16(kmsg.FindCoordinator), func(r kmsg.Request) (kmsg.Response, error, bool) {
			s.broker.Cluster.KeepControl()
			req, reply := r.(*kmsg.FindCoordinatorRequest), r.ResponseKind().(*kmsg.FindCoordinatorResponse)
			for _, key := range req.CoordinatorKeys {
				reply.Coordinators = append(reply.Coordinators, kmsg.FindCoordinatorResponseCoordinator{
					Key: key, NodeID: -1, Port: -1, ErrorCode: kerr.CoordinatorNotAvailable.Code,
				})
			}
			return reply, nil, req.CoordinatorType == 1
		})
		st := s.store()
		st.firstUse = time.Millisecond
		err := st.Ready(s.ctx)
		if !errors.Is(err, kerr.CoordinatorNotAvailable) || !strings.Contains(err.Error(), "transaction.state.log.replication.factor") ||
			!strings.Contains(err.Error(), "a broker is away or has just started") {
			s.Errorf("the start says %v", err)
		}
	})
}

// What the user may not do is told at the start.
func TestWhatTheUserMayNotDo(t *testing.T) {
	for _, c := range []struct {
		key     kmsg.Key
		refused *kerr.Error
		refuse  func(reply kmsg.Response, code int16)
	}{
		{kmsg.InitProducerID, kerr.TransactionalIDAuthorizationFailed, func(r kmsg.Response, code int16) { r.(*kmsg.InitProducerIDResponse).ErrorCode = code }},
		{kmsg.OffsetFetch, kerr.GroupAuthorizationFailed, func(r kmsg.Response, code int16) {
			r.(*kmsg.OffsetFetchResponse).ErrorCode = code // before version 8
			r.(*kmsg.OffsetFetchResponse).Groups = []kmsg.OffsetFetchResponseGroup{{ErrorCode: code}}
		}},
	} {
		t.Run(c.key.Name(), func(t *testing.T) {
			on(t, func(s *stage) {
				if s.broker.Cluster == nil {
					s.Skip("a broker refuses nothing on command")
				}
				s.broker.Cluster.ControlKey(int16(c.key), func(r kmsg.Request) (kmsg.Response, error, bool) {
					s.broker.Cluster.KeepControl()
					reply := r.ResponseKind()
					c.refuse(reply, c.refused.Code)
					if f, ok := reply.(*kmsg.OffsetFetchResponse); ok {
						f.Groups[0].Group = s.name
					}
					return reply, nil, true
				})
				if err := s.store().Ready(s.ctx); !errors.Is(err, c.refused) || !strings.Contains(err.Error(), "the user needs") {
					s.Errorf("the start says %v", err)
				}
			})
		})
	}
}

// A refused password and a broker that is gone are told of to an owner with what to do: of what cannot be settled the log
// has no more than this.
func TestWhyABrokerIsNotReached(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for _, c := range []struct {
		name, says, hint string
		options          func(*stage) []kgo.Opt
	}{
		{"password", "SASL_AUTHENTICATION_FAILED", "the broker refuses the user or the password", func(s *stage) []kgo.Opt {
			s.broker.Cluster.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				return r.ResponseKind(), nil, true
			})
			s.broker.Cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				reply := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
				reply.ErrorCode = kerr.SaslAuthenticationFailed.Code
				return reply, nil, true
			})
			return append(s.broker.Options(), kgo.SASL(plain.Auth{User: "ann", Pass: "wrong"}.AsMechanism()))
		}},
		{"gone", "connection refused", "start the broker", func(*stage) []kgo.Opt {
			return []kgo.Opt{kgo.SeedBrokers(gone.Addr().String())}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			on(t, func(s *stage) {
				if s.broker.Cluster == nil {
					s.Skip("a broker refuses nothing on command")
				}
				st := s.store()
				st.link.options = c.options(s)
				if _, _, err := st.Stands(s.ctx, 1); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.hint) {
					s.Errorf("it says %v", err)
				}
			})
		})
	}
}

// A broker that is still ending a transaction is asked again.
func TestABrokerThatIsNotDoneYet(t *testing.T) {
	on(t, func(s *stage) {
		if s.broker.Cluster == nil {
			s.Skip("a broker refuses nothing on command")
		}
		s.broker.Cluster.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) { // once
			reply := r.ResponseKind().(*kmsg.InitProducerIDResponse)
			reply.ErrorCode = kerr.ConcurrentTransactions.Code
			return reply, nil, true
		})
		st := s.store()
		s.open(st, 1)
		s.admits(st, 1, 3)
	})
}

// An owner that was followed by another, and does not know, moves nothing; and it does not
// disturb the one who followed.
func TestStaleOwner(t *testing.T) {
	on(t, func(s *stage) {
		old, owner := s.store(), s.store()
		s.open(old, 1)
		s.admits(old, 1, 2)
		if f := s.open(owner, 2); f.Base != 2 || f.Suspects != 100 {
			t.Errorf("found %+v, want base 2, and what the other had started as suspects", f)
		}
		s.admits(owner, 2, 10)
		before := owner.owners[1].producer
		s.refuses(old, 1, 2)
		g, tok := owns(1)
		if err := old.Close(s.ctx, g, tok); err != nil {
			t.Errorf("close: %v", err)
		}
		if at := s.offset(); at != 10 {
			t.Errorf("the group stands at %d, want 10", at)
		}
		s.admits(owner, 2, 11)
		if now := owner.owners[1].producer; now.id != before.id || int(now.epoch)-int(before.epoch) > 1 {
			t.Errorf("the owner's producer was %+v and is %+v: it was fenced by one who is over", before, now)
		}
	})
}

// The commit of an owner that was paused in the middle of it, between any two of its
// requests, is refused once another has opened.
func TestPausedInACommit(t *testing.T) {
	on(t, func(s *stage) {
		old, owner := s.store(), s.store()
		s.open(old, 1)
		stale := *old.owners[1]
		s.open(owner, 2)
		s.admits(owner, 2, 10)
		if err := old.transact(s.ctx, &stale, 90, "countoff:1:1:late"); !fenced(err) {
			t.Errorf("the late commit: %v, want that it is refused", err)
		}
		if at := s.offset(); at != 10 {
			t.Errorf("the group stands at %d, want 10", at)
		}
		s.admits(owner, 2, 11)
	})
}

// One who opens too late, since it was paused before it initialized, fences the owner's
// producer by that, finds the greater epoch and gives up; the owner goes on, and nothing
// is lost.
func TestLateOpener(t *testing.T) {
	on(t, func(s *stage) {
		late, owner := s.store(), s.store()
		s.open(owner, 2)
		s.admits(owner, 2, 10, 12)
		if _, err := late.begin(s.ctx, late.id(1)); err != nil { // it has looked long ago
			t.Fatal(err)
		}
		o := &owner2{late}
		if err := o.rest(s.ctx); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("the late opener: %v, want that it is fenced", err)
		}
		s.admits(owner, 2, 11, 14)
		g, tok := owns(2)
		if err := owner.Close(s.ctx, g, tok); err != nil {
			t.Fatal(err)
		}
		if f := s.open(late, 3); f.Base != 11 || !slices.Equal(f.Done, []int64{12, 14}) {
			t.Errorf("found %+v", f)
		}
	})
}

// owner2 is a late opener after its first look.
type owner2 struct{ *Store }

func (o *owner2) rest(ctx context.Context) error {
	g, tok := owns(1)
	t, _, err := o.read(ctx, g.ID, true)
	if err == nil {
		err = (&owner{grant: g, token: tok}).mayOpen(t)
	}
	return err
}

// One who has initialized and read before the owner opened commits nothing afterwards.
func TestOpenerThatIsOvertaken(t *testing.T) {
	on(t, func(s *stage) {
		late, owned := s.store(), s.store()
		g, tok := owns(1)
		o := &owner{grant: g, token: tok, table: newTable(0)}
		var err error
		if o.producer, err = late.begin(s.ctx, late.id(1)); err != nil {
			t.Fatal(err)
		}
		o.table.install(tok)
		s.open(owned, 2)
		s.admits(owned, 2, 10)
		if err := late.commit(s.ctx, o); !fenced(err) {
			t.Errorf("it commits: %v", err)
		}
		if _, err := late.Open(s.ctx, g, tok, 0); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("it opens: %v", err)
		}
		if at := s.offset(); at != 10 {
			t.Errorf("the group stands at %d, want 10", at)
		}
	})
}

// Many who open at once, in whatever order: the greatest epoch is the owner, and every
// other one is refused, at the latest when it has something to say.
func TestOpenersAtOnce(t *testing.T) {
	on(t, func(s *stage) {
		const n = 5
		stores := make([]*Store, n+1)
		var wg sync.WaitGroup
		for e := range n {
			stores[e+1] = s.store()
			wg.Go(func() {
				g, tok := owns(partition.Epoch(e + 1))
				if _, err := stores[e+1].Open(s.ctx, g, tok, 0); err != nil && !errors.Is(err, sources.ErrFenced) && !fenced(err) {
					t.Errorf("open under %d: %v", e+1, err)
				}
			})
		}
		wg.Wait()
		g, tok := owns(n)
		if _, err := stores[n].Open(s.ctx, g, tok, 0); err != nil { // again, if it gave up
			t.Fatal(err)
		}
		s.admits(stores[n], n, 10)
		for e := 1; e < n; e++ {
			if err := s.says(stores[e], partition.Epoch(e), 50); !errors.Is(err, sources.ErrFenced) && !errors.Is(err, sources.ErrForgot) {
				t.Errorf("%d settles: %v", e, err)
			}
		}
		s.admits(stores[n], n, 11)
		if at := s.offset(); at != 11 {
			t.Errorf("the group stands at %d, want 11", at)
		}
	})
}

// A call of which nothing is known is said again, whether it was carried out or not.
func TestNothingIsKnown(t *testing.T) {
	on(t, func(s *stage) {
		st := s.store()
		s.open(st, 1)
		s.admits(st, 1, 2)
		o := st.owners[1]
		answered := o.answered
		o.table.settle(&progress.Request{Base: 3, Gate: 100, Alone: progress.None, Done: []int64{7}}, nil, time.Now())
		if err := st.commit(s.ctx, o); err != nil { // carried out, and not answered
			t.Fatal(err)
		}
		o.answered, o.dirty, o.unsure = answered, true, true
		s.admits(st, 1, 3, 7)
		o.table.settle(&progress.Request{Base: 4, Gate: 100, Alone: progress.None, Done: []int64{8}}, nil, time.Now())
		o.dirty, o.unsure = true, true // not carried out
		s.admits(st, 1, 4, 8)
		if f := s.open(s.store(), 2); f.Base != 4 || !slices.Equal(f.Done, []int64{7, 8}) {
			t.Errorf("found %+v", f)
		}
	})
}

// Opening again with the token that stands changes nothing, and an owner that has nothing
// to say learns that it was followed.
func TestOpenAgainAndIdle(t *testing.T) {
	on(t, func(s *stage) {
		a := s.store()
		first := s.open(a, 1)
		s.admits(a, 1, 2)
		if again := s.open(s.store(), 1); again.Base != 2 || again.Suspects != 0 || again.Writes != first.Writes+1 {
			t.Errorf("opened again: %+v", again)
		}
		idle := func() error {
			g, tok := owns(1)
			_, err := a.Settle(s.ctx, g, tok, &progress.Request{Base: 2, Alone: progress.None}, nil)
			return err
		}
		if err := idle(); err != nil {
			t.Errorf("an idle owner: %v", err)
		}
		s.open(s.store(), 2)
		if err := idle(); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("an idle owner that was followed: %v", err)
		}
	})
}

// An offset that somebody else has committed is where the partition begins. Under an
// owner it decides nothing, nor does one that is gone: the owner knows better, and says so.
func TestPlainCommit(t *testing.T) {
	on(t, func(s *stage) {
		admin := kadm.NewClient(s.broker.Client())
		plain := func(at int64) {
			t.Helper()
			var o kadm.Offsets
			o.AddOffset(s.topic, 1, at, -1)
			done, err := admin.CommitOffsets(s.ctx, s.name, o)
			if err == nil {
				err = done.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		plain(40)
		var warned []error
		st := s.store(func(c *Config) { c.Warn = func(err error) { warned = append(warned, err) } })
		if fences, err := st.Fences(s.ctx, []partition.ID{1}); err != nil || len(fences) != 0 {
			t.Errorf("the fences are %v, %v, want that nothing is known", fences, err)
		}
		g, tok := owns(1)
		if f, err := st.Open(s.ctx, g, tok, 0); err != nil || f.Base != 40 || f.Life != "" {
			t.Fatalf("found %+v, %v, want base 40", f, err)
		}
		idle := func(what string) {
			t.Helper()
			s.offset() // until the last commit shows
			if _, err := st.Settle(s.ctx, g, tok, &progress.Request{Base: 40, Alone: progress.None}, nil); err != nil {
				t.Fatal(err)
			}
			if at := s.offset(); at != 40 {
				t.Errorf("%s: the group stands at %d, want 40", what, at)
			}
		}
		idle("its own")
		if len(warned) > 0 {
			t.Errorf("warned of %v, want nothing", warned)
		}
		plain(20)
		idle("another's commit")
		if len(warned) != 1 || !strings.Contains(warned[0].Error(), s.topic+"/1: ") || !strings.Contains(warned[0].Error(), "at 20 ") {
			t.Errorf("warned of %v, want of where somebody has set it", warned)
		}
		var set kadm.TopicsSet
		set.Add(s.topic, 1)
		if done, err := admin.DeleteOffsets(s.ctx, s.name, set); err != nil || done.Error() != nil {
			t.Fatal(err, done.Error())
		}
		idle("an offset that was deleted")
		if len(warned) != 1 {
			t.Errorf("warned of %v, want nothing more", warned)
		}
		if err := st.Close(s.ctx, g, tok); err != nil {
			t.Fatal(err)
		}
		warned = nil
		plain(60)
		if f := s.open(st, 2); f.Base != 60 {
			t.Errorf("found %+v, want base 60", f)
		}
		if len(warned) != 1 || !strings.Contains(warned[0].Error(), s.topic+"/1: ") || !strings.Contains(warned[0].Error(), "at 60, ") {
			t.Errorf("warned of %v, want of where somebody has set it between two owners", warned)
		}
		s.admits(st, 2, 70)
		if err := st.Close(s.ctx, partition.Grant{ID: 1, Epoch: 2}, partition.Token{Epoch: 2, Session: "session2"}); err != nil {
			t.Fatal(err)
		}
		plain(0) // is where somebody has set it, and not nowhere
		if base, _, err := st.Stands(s.ctx, 1); base < 0 || err != nil {
			t.Errorf("it stands at %d, %v", base, err)
		}
		g, tok = owns(3)
		if f, err := st.Open(s.ctx, g, tok, 50); err != nil || f.Base != 0 {
			t.Errorf("found %+v, %v, want base 0", f, err)
		}
	})
}

// A group that another name has as well is told of: what that one did is not done by this one.
func TestAGroupOfAnotherName(t *testing.T) {
	on(t, func(s *stage) {
		var told []error
		of := func(name string) *Store {
			own := *s
			own.name = name
			return own.store(func(c *Config) { c.Group, c.Warn = s.name, func(err error) { told = append(told, err) } })
		}
		var mirrored kadm.Offsets
		mirrored.Add(kadm.Offset{Topic: s.topic, Partition: 1, At: 2, LeaderEpoch: -1, Metadata: MirrorMark + "life"})
		if done, err := kadm.NewClient(s.broker.Client()).CommitOffsets(s.ctx, s.name, mirrored); err != nil || done.Error() != nil {
			t.Fatal(err, done.Error())
		}
		one := of(s.name)
		s.open(one, 1)
		if told != nil {
			t.Errorf("who goes on where the mirror stands is told %v", told)
		}
		s.admits(one, 1, 5)
		g, tok := owns(1)
		if err := one.Close(s.ctx, g, tok); err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			name string
			told bool
		}{{s.name, false}, {s.name + "-other", true}, {s.name, false}} {
			told = nil
			s.open(of(c.name), partition.Epoch(2+i))
			if is := len(told) == 1 && strings.Contains(told[0].Error(), "another name, or longer ago than transactional.id.expiration.ms"); is != c.told {
				t.Errorf("%s is told %v", c.name, told)
			}
		}
	})
}

// What does not fit into the metadata is told, and done again; a broker that takes less
// than was configured is given less.
func TestMetadataTooLarge(t *testing.T) {
	on(t, func(s *stage) {
		var told []error
		st := s.store(func(c *Config) {
			c.Metadata = 400
			c.Warn = func(err error) { told = append(told, err) }
		})
		s.open(st, 1)
		var done []int64
		for x := int64(1); x < 2000; x += 2 {
			done = append(done, x)
		}
		for range 2 {
			s.admits(st, 1, 0, done...)
		}
		if len(told) != 2 || !strings.Contains(told[0].Error(), "knows nothing of it") || !strings.Contains(told[1].Error(), "again") || !strings.Contains(told[1].Error(), "waits for a retry") {
			t.Errorf("told %v", told)
		}
		g, tok := owns(1)
		if err := st.Close(s.ctx, g, tok); err != nil {
			t.Fatal(err)
		}
		f := s.open(s.store(), 2)
		if f.Base != 0 || len(f.Done) == 0 || len(f.Done) == len(done) || !slices.Equal(f.Done, done[:len(f.Done)]) {
			t.Errorf("found %d of %d that were done: %v", len(f.Done), len(done), f.Done)
		}
		if s.broker.Cluster != nil { // it takes what it is given
			s.broker.Cluster.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				req, reply := r.(*kmsg.TxnOffsetCommitRequest), r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
				of := req.Topics[0]
				reply.Topics = []kmsg.TxnOffsetCommitResponseTopic{{Topic: of.Topic, TopicID: of.TopicID, Partitions: []kmsg.TxnOffsetCommitResponseTopicPartition{{
					Partition: of.Partitions[0].Partition, ErrorCode: kerr.OffsetMetadataTooLarge.Code,
				}}}}
				return reply, nil, len(*of.Partitions[0].Metadata) > 4096
			})
		}
		st = s.store(func(c *Config) { c.Metadata = 1 << 20 })
		s.open(st, 3)
		for x := int64(1); x < 20000; x += 2 {
			done = append(done, x)
		}
		err := s.says(st, 3, 0, done...)
		for n := 0; n < 10 && errors.Is(err, kerr.OffsetMetadataTooLarge); n++ {
			err = s.says(st, 3, 0, done...)
		}
		if err != nil {
			t.Errorf("settle: %v", err)
		}
	})
}

func TestConfig(t *testing.T) {
	_, err := NewStore("orders", Config{Metadata: 1})
	for _, word := range []string{"no topic", "Options", "Metadata 1"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %q", err, word)
		}
	}
	if _, err := NewStore("orders", Config{Topic: "t", Options: []kgo.Opt{nil}}); err == nil || !strings.Contains(err.Error(), "Options[0] is nil") {
		t.Errorf("an option that is nil: %v", err)
	}
	if _, err := NewStore("a name", Config{Topic: "t", Options: []kgo.Opt{kgo.SeedBrokers("localhost:1")}}); err == nil {
		t.Error("a name with a space is taken")
	}
	s, err := NewStore("orders", Config{Topic: "t", Options: []kgo.Opt{kgo.SeedBrokers("localhost:1")}})
	if err != nil || !s.Commits("orders") || s.Commits("other") {
		t.Errorf("%v, or it does not know its group", err)
	}
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("ready without a broker: %v", err)
	}
}

// What could not be closed is closed by the next call, and was not closed until then. What is closed is
// nobody's here.
func TestACloseThatFailsIsSaidAgain(t *testing.T) {
	on(t, func(s *stage) {
		if s.broker.Cluster == nil {
			s.Skip("a broker refuses nothing on command")
		}
		st := s.store()
		s.open(st, 1)
		s.admits(st, 1, 3)
		s.broker.Cluster.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) { // once
			req, reply := r.(*kmsg.TxnOffsetCommitRequest), r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
			reply.Topics = []kmsg.TxnOffsetCommitResponseTopic{{Topic: req.Topics[0].Topic, Partitions: []kmsg.TxnOffsetCommitResponseTopicPartition{{
				Partition: 1, ErrorCode: kerr.GroupAuthorizationFailed.Code,
			}}}}
			return reply, nil, true
		})
		g, tok := owns(1)
		if err := st.Close(s.ctx, g, tok); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			s.Fatalf("a close that the broker refuses: %v", err)
		}
		if st.limit != st.cfg.Metadata {
			s.Errorf("of the metadata only %d characters are used any more", st.limit)
		}
		if err := st.Close(s.ctx, g, tok); err != nil {
			s.Errorf("said again: %v", err)
		}
		if fences, err := s.store().Fences(s.ctx, []partition.ID{1}); err != nil || !fences[1].IsZero() {
			s.Errorf("the fences are %v, %v, want none", fences, err)
		}
		if err := s.says(st, 1, 4); !errors.Is(err, sources.ErrForgot) {
			s.Errorf("settled after the close: %v", err)
		}
	})
}
