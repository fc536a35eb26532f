package kafkaprogress

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// A standstill lets something happen between two requests of a store: right before it
// initializes its transactional id, and right before it looks after that.
type standstill struct {
	asked atomic.Int32 // how often it has initialized
	begin atomic.Pointer[func()]
	look  atomic.Pointer[func() error] // its error breaks the connection
}

// in is the option that puts it into a store.
func (h *standstill) in(c *Config) {
	c.Options = append(c.Options, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &standing{conn, h}, err
	}))
}

type standing struct {
	net.Conn
	h *standstill
}

func (c *standing) Write(b []byte) (int, error) {
	kind := int16(-1)
	if len(b) > 6 { // behind its size a request begins with its kind
		kind = int16(binary.BigEndian.Uint16(b[4:]))
	}
	switch kmsg.Key(kind) {
	case kmsg.InitProducerID:
		c.h.asked.Add(1)
		if do := c.h.begin.Swap(nil); do != nil {
			(*do)()
		}
	case kmsg.OffsetFetch:
		if c.h.asked.Load() < 2 { // the first is that of its open
			break
		}
		if do := c.h.look.Swap(nil); do != nil {
			if err := (*do)(); err != nil {
				return 0, err
			}
		}
	}
	return c.Conn.Write(b)
}

// One who stands still between its look and its fence, while another opens, finds that when
// it looks again: it is no owner, and what the other has said stands.
func TestOvertakenBetweenTheLooks(t *testing.T) {
	on(t, func(s *stage) {
		var h standstill
		late, owner := s.store(h.in), s.store()
		overtake := func() { s.open(owner, 2); s.admits(owner, 2, 10, 12) }
		h.begin.Store(&overtake)
		g, tok := owns(1)
		if _, err := late.Open(s.ctx, g, tok, 0); !errors.Is(err, sources.ErrFenced) {
			s.Errorf("one who was overtaken opens: %v", err)
		}
		if err := s.says(late, 1, 90); !errors.Is(err, sources.ErrFenced) && !errors.Is(err, sources.ErrForgot) {
			s.Errorf("one who was overtaken settles: %v", err)
		}
		s.admits(owner, 2, 11, 14)
		if f := s.open(s.store(), 3); f.Base != 11 || len(f.Done) != 2 {
			s.Errorf("found %+v", f)
		}
		// Whoever can see that it is late does not fence anybody only to learn that.
		asked := h.asked.Load()
		if _, err := late.Open(s.ctx, g, tok, 0); !errors.Is(err, sources.ErrFenced) || h.asked.Load() != asked {
			s.Errorf("it opens again: %v, and has initialized %d times since", err, h.asked.Load()-asked)
		}
	})
}

// The same with an owner that does not know what became of its last call, and begins anew.
func TestOvertakenWhileItBeginsAnew(t *testing.T) {
	on(t, func(s *stage) {
		var h standstill
		old, owner := s.store(h.in), s.store()
		s.open(old, 1)
		s.admits(old, 1, 2)
		old.owners[1].unsure = true
		overtake := func() { s.open(owner, 2); s.admits(owner, 2, 10, 12) }
		h.begin.Store(&overtake)
		s.refuses(old, 1, 2)
		if at := s.offset(); at != 10 {
			s.Errorf("the group stands at %d, want 10", at)
		}
		s.admits(owner, 2, 11, 14)
	})
}

// It is cut off before it could look: it does not know yet whether it is the owner.
func TestCutOffWhileItBeginsAnew(t *testing.T) {
	on(t, func(s *stage) {
		var h standstill
		old, owner := s.store(h.in), s.store()
		s.open(old, 1)
		s.admits(old, 1, 2)
		old.owners[1].unsure = true
		overtake := func() { s.open(owner, 2); s.admits(owner, 2, 10, 12) }
		h.begin.Store(&overtake)
		ctx, cut := context.WithCancel(s.ctx)
		away := func() error { cut(); return net.ErrClosed }
		h.look.Store(&away)
		g, tok := owns(1)
		if _, err := old.Settle(ctx, g, tok, &progress.Request{Base: 90, Gate: 100, Alone: progress.None}, nil); err == nil || h.look.Load() != nil {
			s.Fatalf("it was not cut off: %v", err)
		}
		s.refuses(old, 1, 2)
		if at := s.offset(); at != 10 {
			s.Errorf("the group stands at %d, want 10", at)
		}
		s.admits(owner, 2, 11, 14)
	})
}

// What the brokers refuse was not done, whichever of the requests they refuse; and an offset
// that they do not tell is not one that is not there.
func TestWhatTheBrokersRefuse(t *testing.T) {
	on(t, func(s *stage) {
		if s.broker.Cluster == nil {
			s.Skip("a broker refuses nothing on command")
		}
		refuse := func(kind kmsg.Key, code int16) {
			s.broker.Cluster.ControlKey(int16(kind), func(r kmsg.Request) (kmsg.Response, error, bool) {
				reply := r.ResponseKind()
				reply.SetVersion(r.GetVersion())
				switch r := r.(type) {
				case *kmsg.TxnOffsetCommitRequest:
					reply.(*kmsg.TxnOffsetCommitResponse).Topics = []kmsg.TxnOffsetCommitResponseTopic{{
						Topic:      s.topic,
						Partitions: []kmsg.TxnOffsetCommitResponseTopicPartition{{Partition: 1, ErrorCode: code}},
					}}
				case *kmsg.EndTxnRequest:
					end := reply.(*kmsg.EndTxnResponse)
					end.ErrorCode, end.ProducerID = code, -1
				case *kmsg.OffsetFetchRequest:
					reply.(*kmsg.OffsetFetchResponse).Groups = []kmsg.OffsetFetchResponseGroup{{
						Group: r.Groups[0].Group,
						Topics: []kmsg.OffsetFetchResponseGroupTopic{{
							Topic:      s.topic,
							Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{{Partition: 1, Offset: -1, ErrorCode: code}},
						}},
					}}
				}
				return reply, nil, true
			})
		}
		st := s.store()
		s.open(st, 1)
		at := int64(10)
		for _, kind := range []kmsg.Key{kmsg.TxnOffsetCommit, kmsg.EndTxn} {
			refuse(kind, kerr.GroupAuthorizationFailed.Code)
			if err := s.says(st, 1, at); !errors.Is(err, kerr.GroupAuthorizationFailed) {
				s.Errorf("%v is refused, and a settle says %v", kind, err)
			}
			s.admits(st, 1, at)
			if now := s.offset(); now != at {
				s.Errorf("the group stands at %d, want %d", now, at)
			}
			at++
		}
		refuse(kmsg.OffsetFetch, kerr.GroupAuthorizationFailed.Code)
		g, tok := owns(2)
		next := s.store()
		if f, err := next.Open(s.ctx, g, tok, 0); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			s.Errorf("the offset is not told, and who opens has %+v, %v", f, err)
		}
		refuse(kmsg.OffsetFetch, kerr.UnstableOffsetCommit.Code) // it waits
		if f := s.open(next, 2); f.Base != at-1 {
			s.Errorf("found %+v, want base %d", f, at-1)
		}
	})
}

// What stood before is put back, as by brokers that have lost the last commits, or what was
// written by somebody who may not: the owner knows better, and says it again.
func TestWhatIsNotTheOwnersIsReplaced(t *testing.T) {
	on(t, func(s *stage) {
		st := s.store()
		s.open(st, 2)
		s.admits(st, 2, 2)
		s.offset() // until it shows
		admin := kadm.NewClient(s.broker.Client())
		before, err := admin.FetchOffsetsForTopics(s.ctx, s.name, s.topic)
		if err != nil {
			s.Fatal(err)
		}
		s.admits(st, 2, 10, 12)
		older, _ := before.Lookup(s.topic, 1)
		anothers := older.Offset
		table := newTable(2)
		table.install(partition.Token{Epoch: 1, Session: "another"})
		table.writes = 1000
		anothers.Metadata, _ = table.encode(4096, time.Now())
		for name, o := range map[string]kadm.Offset{"an older commit": older.Offset, "another's": anothers} {
			s.offset()
			var set kadm.Offsets
			set.Add(o)
			done, err := admin.CommitOffsets(s.ctx, s.name, set)
			if err == nil {
				err = done.Error()
			}
			if err != nil || s.offset() != 2 {
				s.Fatal(err)
			}
			s.idles(st, 2)
			if at := s.offset(); at != 10 {
				s.Errorf("%s stands, at %d", name, at)
			}
		}
		if f := s.open(s.store(), 3); f.Base != 10 || len(f.Done) != 1 {
			s.Errorf("found %+v", f)
		}
	})
}

// idles says something that changes nothing.
func (s *stage) idles(st *Store, e partition.Epoch) {
	s.Helper()
	g, tok := owns(e)
	if _, err := st.Settle(s.ctx, g, tok, &progress.Request{Alone: progress.None}, nil); err != nil {
		s.Fatal(err)
	}
}

// A look behind the fence that fails is no answer: a partition of which the group did not answer is not begun
// anew, and what an owner knows is not said over what a successor may have said.
func TestALookThatFailsIsNoAnswer(t *testing.T) {
	on(t, func(s *stage) {
		if s.broker.Cluster == nil {
			s.Skip("a broker refuses nothing on command")
		}
		var refuses atomic.Bool
		s.broker.Cluster.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			s.broker.Cluster.KeepControl()
			reply := r.ResponseKind().(*kmsg.OffsetFetchResponse)
			reply.Groups = []kmsg.OffsetFetchResponseGroup{{Group: s.name, ErrorCode: kerr.GroupAuthorizationFailed.Code}}
			return reply, nil, r.(*kmsg.OffsetFetchRequest).RequireStable && refuses.Load()
		})
		st := s.store()
		s.open(st, 1)
		s.admits(st, 1, 3)
		st.owners[1].unsure = true
		refuses.Store(true)
		if err := s.says(st, 1, 4); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			s.Errorf("settled: %v", err)
		}
		g, tok := owns(2)
		if _, err := s.store().Open(s.ctx, g, tok, 0); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			s.Errorf("opened: %v", err)
		}
		refuses.Store(false)
		if at := s.offset(); at != 3 {
			s.Errorf("the group stands at %d, want 3", at)
		}
		if f := s.open(s.store(), 2); f.Base != 3 {
			s.Errorf("found %+v", f)
		}
	})
}

// What could not be said yet is said by the next call, also if that changes nothing.
func TestWhatWasNotSaidIsSaidByTheNext(t *testing.T) {
	on(t, func(s *stage) {
		st := s.store()
		s.open(st, 1)
		o := st.owners[1]
		o.table.settle(&progress.Request{Base: 3, Gate: 100, Alone: progress.None, Done: []int64{7}}, nil, time.Now())
		o.dirty = true
		s.idles(st, 1)
		if at := s.offset(); at != 3 {
			s.Errorf("the group stands at %d, want 3", at)
		}
	})
}

// A base is moved once, right after the open: said again it changes nothing, and where
// more is known than there was it is refused.
func TestResetIsOnce(t *testing.T) {
	on(t, func(s *stage) {
		st := s.store()
		seen := s.open(st, 1).Writes
		g, tok := owns(1)
		if _, err := st.Reset(s.ctx, g, tok, seen+1, 50, "life"); !errors.Is(err, sources.ErrForgot) {
			s.Errorf("more was seen than there is: %v", err)
		}
		first, err := st.Reset(s.ctx, g, tok, seen, 50, "life")
		again, err2 := st.Reset(s.ctx, g, tok, seen, 50, "life")
		if err != nil || err2 != nil || first != again || s.offset() != 50 {
			s.Errorf("reset, %d writes, %v; again, %d writes, %v; the group stands at %d", first, err, again, err2, s.offset())
		}
		s.admits(st, 1, 51, 60)
		if _, err := st.Reset(s.ctx, g, tok, seen, 70, "life"); err == nil {
			s.Error("a base is moved after something was settled")
		}
		if f := s.open(s.store(), 2); f.Base != 51 || f.Life != "life" || len(f.Done) != 1 {
			s.Errorf("found %+v", f)
		}
	})
}

// Of two ownerships in one process the newer stands, whatever the older one says or closes,
// and one that is not known is told so.
func TestTwoOwnershipsInOneProcess(t *testing.T) {
	on(t, func(s *stage) {
		st := s.store()
		s.open(st, 1)
		s.admits(st, 1, 2)
		s.open(st, 2)
		s.refuses(st, 1, 2)
		g, tok := owns(1)
		if err := st.Close(s.ctx, g, tok); err != nil {
			s.Errorf("the older one closes: %v", err)
		}
		s.admits(st, 2, 10)
		if err := s.says(st, 3, 90); !errors.Is(err, sources.ErrForgot) {
			s.Errorf("one that was never opened settles: %v", err)
		}
		g, tok = owns(2)
		tok.Session = "another"
		if _, err := s.store().Open(s.ctx, g, tok, 0); !errors.Is(err, sources.ErrFenced) {
			s.Errorf("another opens under the same epoch: %v", err)
		}
		s.admits(st, 2, 11)
		g, tok = owns(2)
		for range 2 {
			if err := st.Close(s.ctx, g, tok); err != nil {
				s.Errorf("close: %v", err)
			}
		}
		if f := s.open(s.store(), 3); f.Base != 11 {
			s.Errorf("found %+v", f)
		}
	})
}

// Behind its fence an owner looks at what is stable: a commit that was answered shows only
// after a moment otherwise. An offset that is old is said again, so that it is not forgotten.
func TestLooksAreStableAndOffsetsAreKept(t *testing.T) {
	on(t, func(s *stage) {
		if s.broker.Cluster == nil {
			s.Skip("a broker does not tell what it is asked")
		}
		var mu sync.Mutex
		var asked []string
		for kind, name := range map[kmsg.Key]string{kmsg.InitProducerID: "fence", kmsg.OffsetFetch: "look", kmsg.TxnOffsetCommit: "commit"} {
			s.broker.Cluster.ControlKey(int16(kind), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				mu.Lock()
				defer mu.Unlock()
				what := name
				if r, ok := r.(*kmsg.OffsetFetchRequest); ok && r.RequireStable {
					what = "stable look"
				}
				asked = append(asked, what)
				return nil, nil, false
			})
		}
		says := func(what string, want ...string) {
			s.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(asked, want) {
				s.Errorf("%s asks for %q, want %q", what, asked, want)
			}
			asked = nil
		}
		st := s.store()
		s.open(st, 1)
		says("an open", "look", "fence", "stable look", "commit")
		s.idles(st, 1)
		says("an owner that has nothing to say", "stable look")
		st.owners[1].kept = time.Now().Add(-refresh)
		s.idles(st, 1)
		says("an owner whose offset is old", "commit")
		st.owners[1].unsure = true
		s.idles(st, 1)
		says("an owner that begins anew", "look", "fence", "stable look", "stable look")
		s.idles(st, 1)
		says("an owner that has begun anew", "stable look")
	})
}
