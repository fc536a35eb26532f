package redisprogress_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A log that lies elsewhere begins where its first owner says, and nowhere else later.
func TestOpenBegins(t *testing.T) {
	ctx, name := t.Context(), redistest.Name(t)
	s, err := redisprogress.NewStore(redistest.New(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for e := range partition.Epoch(2) {
		e++
		f, err := s.Open(ctx, partition.Grant{ID: 7, Epoch: e}, partition.Token{Epoch: e, Session: "a"}, 10*int64(e))
		if err != nil || f.Base != 10 {
			t.Errorf("epoch %d begins at %d, want 10 (%v)", e, f.Base, err)
		}
	}
}

// A log that lies elsewhere and has lost its fence begins anew, and with it all that is known of it: what was
// done in a life whose base is forgotten would pass tasks that nobody has done.
func TestOpenWithoutAFenceForgets(t *testing.T) {
	ctx, name, client := t.Context(), redistest.Name(t), redistest.New(t)
	s, err := redisprogress.NewStore(client, name)
	if err != nil {
		t.Fatal(err)
	}
	open := func(e partition.Epoch) (partition.Grant, partition.Token, progress.Found) {
		t.Helper()
		g, tok := partition.Grant{ID: 7, Epoch: e}, partition.Token{Epoch: e, Session: "a"}
		f, err := s.Open(ctx, g, tok, 2)
		if err != nil {
			t.Fatal(err)
		}
		return g, tok, f
	}
	g, tok, f := open(1)
	_, err = s.Settle(ctx, g, tok, &progress.Request{
		Seen: f.Writes, Read: 9, Base: 4, Gate: 9, Alone: progress.None, Lift: []int64{3}, Done: []int64{2, 5},
		Others: []progress.Verdict{{Position: 6, Outcome: progress.Retry, Attempt: 1}},
	}, make([]progress.Content, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, f := open(2); f.Base != 4 || f.Gate != 9 || len(f.Done) != 1 || len(f.Lifted) != 1 || len(f.Tried) != 1 {
		t.Errorf("found %+v, want what was said", f)
	}
	client.Del(ctx, redisprogress.Elsewhere(name, 7).Fence)
	if _, _, f := open(3); f.Base != 2 || len(f.Done)+len(f.Lifted)+len(f.Tried) > 0 {
		t.Errorf("without a fence: found %+v, want nothing from 2 on", f)
	}
}

// Who comes with an epoch that another has overtaken is told whose log it was to be, and which epoch stands.
func TestOpenUnderAnOlderEpoch(t *testing.T) {
	ctx, name := t.Context(), redistest.Name(t)
	s, err := redisprogress.NewStore(redistest.New(t), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(ctx, partition.Grant{ID: 7, Epoch: 5}, partition.Token{Epoch: 5, Session: "b"}, 0); err != nil {
		t.Fatal(err)
	}
	late := partition.Grant{ID: 7, Epoch: 4}
	_, err = s.Open(ctx, late, partition.Token{Epoch: 4, Session: "a"}, 0)
	if fenced, ok := errors.AsType[*sources.FencedError](err); !ok || *fenced != (sources.FencedError{Grant: late, Stored: 5}) {
		t.Errorf("under epoch 4, where 5 stands: %v", err)
	}
}

// A log whose leftovers are none is not opened: without them what is done would run again.
func TestOpenOfWhatNobodyHasWritten(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	for what, c := range map[string]struct {
		write func(redisprogress.Keys) error
		said  string // empty: a script reads it first, and says so in its own words
	}{
		"done": {func(k redisprogress.Keys) error {
			return client.ZAdd(ctx, k.Done, redis.Z{Score: 1, Member: "x"}).Err()
		}, ""},
		"tries of nothing": {func(k redisprogress.Keys) error { return client.HSet(ctx, k.Tries, "x", "1").Err() }, ""},
		"tries of none":    {func(k redisprogress.Keys) error { return client.HSet(ctx, k.Tries, "3", "x").Err() }, `the tries of "3"`},
		"lifted":           {func(k redisprogress.Keys) error { return client.HSet(ctx, k.Lifted, "x", "").Err() }, `lifted is "x"`},
	} {
		t.Run(what, func(t *testing.T) {
			name := redistest.Name(t)
			s, err := redisprogress.NewStore(client, name)
			if err != nil {
				t.Fatal(err)
			}
			open := func(e partition.Epoch) error {
				_, err := s.Open(ctx, partition.Grant{ID: 7, Epoch: e}, partition.Token{Epoch: e, Session: "a"}, 2)
				return err
			}
			if err := open(1); err != nil {
				t.Fatal(err)
			}
			if err := c.write(redisprogress.Elsewhere(name, 7)); err != nil {
				t.Fatal(err)
			}
			if err := open(2); err == nil || !strings.Contains(err.Error(), c.said) {
				t.Errorf("opened with %v, want an error that says %s", err, c.said)
			}
		})
	}
}

// Whether a log has begun, and which life of it the positions are of, is read where it was
// written: a replica that lags knows of an older one, or of none.
func TestOpenReadsNoReplica(t *testing.T) {
	ctx, name := t.Context(), redistest.Name(t)
	_, client := redistest.Lagging(t)
	s, err := redisprogress.NewStore(client, name)
	if err != nil {
		t.Fatal(err)
	}
	g, tok := partition.Grant{ID: 7, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
	f, err := s.Open(ctx, g, tok, 0)
	if err == nil {
		_, err = s.Reset(ctx, g, tok, f.Writes, 0, "one")
	}
	if err == nil {
		f, err = s.Open(ctx, g, tok, 0)
	}
	if err != nil || f.Life != "one" {
		t.Errorf("the life is %q (%v), want the one that was stored", f.Life, err)
	}
	if base, life, err := s.Stands(ctx, 7); base != f.Base || life != "one" || err != nil {
		t.Errorf("it stands at %d of %q, %v, after it was opened", base, life, err)
	}
}

// A reset moves the base of a log that lies elsewhere; what was known of positions that
// come again is forgotten, the rest is not. A late one changes nothing.
func TestReset(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   int64
		life   string
		lifted []int64
	}{
		{"forward", 5, "one", []int64{1}},
		{"where it is", 3, "one", []int64{1}},
		{"back", 0, "one", nil},
		{"another life", 5, "two", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, name := t.Context(), redistest.Name(t)
			s, err := redisprogress.NewStore(redistest.New(t), name)
			if err != nil {
				t.Fatal(err)
			}
			g, tok := partition.Grant{ID: 7, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
			if base, _, err := s.Stands(ctx, 7); base >= 0 || err != nil {
				t.Fatalf("it stands at %d, %v", base, err)
			}
			f, err := s.Open(ctx, g, tok, 0)
			if err != nil || f.Base != 0 || f.Life != "" {
				t.Fatalf("open: %+v, %v", f, err)
			}
			writes, err := s.Reset(ctx, g, tok, f.Writes, 0, "one")
			if err != nil {
				t.Fatal(err)
			}
			retry := func(pos int64) progress.Verdict {
				return progress.Verdict{Position: pos, Outcome: progress.Retry, Attempt: 1}
			}
			_, err = s.Settle(ctx, g, tok, &progress.Request{
				Seen: writes, Read: 9, Base: 3, Gate: 9, Alone: progress.None, Lift: []int64{1}, Done: []int64{4, 6, 8},
				Others: []progress.Verdict{retry(1), retry(3), retry(7)},
			}, make([]progress.Content, 3))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(ctx, g, tok); err != nil {
				t.Fatal(err)
			}
			g.Epoch, tok = 2, partition.Token{Epoch: 2, Session: "b"}
			if f, err = s.Open(ctx, g, tok, 0); err != nil || f.Base != 3 || f.Life != "one" || !slices.Equal(f.Lifted, []int64{1}) {
				t.Fatalf("open: %+v, %v", f, err)
			}
			seen := f.Writes
			for range 2 { // said again it changes nothing
				if writes, err = s.Reset(ctx, g, tok, seen, c.base, c.life); err != nil || writes != seen+1 {
					t.Fatalf("%d writes (%v), want %d: a store that forgets this one would not be found out", writes, err, seen+1)
				}
			}
			if _, err := s.Settle(ctx, g, tok, &progress.Request{
				Seen: writes, Read: 20, Base: 12, Gate: 20, Alone: progress.None, Done: []int64{15},
			}, nil); err != nil {
				t.Fatal(err)
			}
			// One that comes late is told, and wipes nothing out.
			if _, err := s.Reset(ctx, g, tok, seen, c.base, c.life); err == nil || errors.Is(err, sources.ErrFenced) {
				t.Errorf("a late reset: %v", err)
			}
			old := partition.Token{Epoch: 1, Session: "a"}
			if _, err := s.Reset(ctx, partition.Grant{ID: 7, Epoch: 1}, old, 0, 0, "old"); !errors.Is(err, sources.ErrFenced) {
				t.Errorf("a reset by the owner before: %v", err)
			}
			if err := s.Close(ctx, g, tok); err != nil {
				t.Fatal(err)
			}
			g.Epoch, tok = 3, partition.Token{Epoch: 3, Session: "c"}
			f, err = s.Open(ctx, g, tok, 0)
			if err != nil {
				t.Fatal(err)
			}
			if f.Base != 12 || f.Life != c.life || !slices.Equal(f.Done, []int64{15}) || !slices.Equal(f.Lifted, c.lifted) {
				t.Errorf("found %+v, want base 12, life %s, done 15, lifted %v", f, c.life, c.lifted)
			}
		})
	}
}

// A reset forgets what it makes untrue of the log, and nothing else.
func TestResetKeeps(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then string // the lives
		base        int64
		done, tries []string
		suspects    int64
	}{
		{"forward to what is done", "one", "one", 6, []string{"6", "8"}, []string{"1", "7"}, 9},
		{"forward to what was tried", "one", "one", 7, []string{"8"}, []string{"1", "7"}, 9},
		{"forward, of a log without a life", "", "one", 5, []string{"6", "8"}, []string{"1", "7"}, 9},
		{"forward beyond all that was started", "one", "one", 12, nil, []string{"1"}, 12},
		{"where it is", "one", "one", 3, []string{"4", "6", "8"}, []string{"1", "3", "7"}, 9},
		{"back", "one", "one", 2, nil, nil, 2},
		{"forward in another life", "one", "two", 5, nil, nil, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, name, client := t.Context(), redistest.Name(t), redistest.New(t)
			s, err := redisprogress.NewStore(client, name)
			if err != nil {
				t.Fatal(err)
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			open := func(e partition.Epoch) (partition.Grant, partition.Token, progress.Found) {
				t.Helper()
				g, tok := partition.Grant{ID: 7, Epoch: e}, partition.Token{Epoch: e, Session: "a"}
				f, err := s.Open(ctx, g, tok, 0)
				must(err)
				return g, tok, f
			}
			g, tok, f := open(1)
			writes, err := s.Reset(ctx, g, tok, f.Writes, 0, c.first)
			must(err)
			r := &progress.Request{
				Seen: writes, Read: 9, Base: 3, Gate: 9, Alone: progress.None, Lift: []int64{1}, Done: []int64{4, 6, 8},
			}
			for _, pos := range []int64{1, 3, 7} {
				r.Others = append(r.Others, progress.Verdict{Position: pos, Outcome: progress.Retry, Attempt: 1})
			}
			_, err = s.Settle(ctx, g, tok, r, make([]progress.Content, 3))
			must(err)

			g, tok, f = open(2) // the owner before has crashed
			if _, err := s.Reset(ctx, g, tok, f.Writes+1, c.base, c.then); !errors.Is(err, sources.ErrForgot) {
				t.Errorf("the store knows fewer writes than it answered: %v", err)
			}
			_, err = s.Reset(ctx, g, tok, f.Writes, c.base, c.then)
			must(err)
			k := redisprogress.Elsewhere(name, 7)
			done, err := client.ZRange(ctx, k.Done, 0, -1).Result()
			must(err)
			tries, err := client.HKeys(ctx, k.Tries).Result()
			must(err)
			slices.Sort(tries)
			if !slices.Equal(done, c.done) || !slices.Equal(tries, c.tries) {
				t.Errorf("done %v, tried %v; want %v and %v", done, tries, c.done, c.tries)
			}
			if _, _, f := open(3); f.Suspects != c.suspects {
				t.Errorf("suspects below %d, want %d", f.Suspects, c.suspects)
			}
		})
	}
}

// A log elsewhere has no list of what is delayed: whoever reads of a key of the wrong kind, at each attempt, learns nothing.
func TestARequeueOfALogElsewhereIsRefused(t *testing.T) {
	ctx := t.Context()
	s, err := redisprogress.NewStore(redistest.New(t), redistest.Name(t))
	if err != nil {
		t.Fatal(err)
	}
	g, tok := partition.Grant{ID: 7, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
	f, err := s.Open(ctx, g, tok, 2)
	if err != nil {
		t.Fatal(err)
	}
	r := &progress.Request{Seen: f.Writes, Read: 9, Base: 2, Gate: 9, Alone: progress.None, Others: []progress.Verdict{{Position: 6, Outcome: progress.Requeue, Attempt: 1}}}
	if _, err := s.Settle(ctx, g, tok, r, make([]progress.Content, 1)); err == nil || !strings.Contains(err.Error(), "position 6: a Requeue of a log elsewhere") {
		t.Errorf("a requeue of a log elsewhere: %v, want that it is told", err)
	}
}

// A store that knows of no such epoch has lost it; one that knows a greater one has another owner.
func TestRefusals(t *testing.T) {
	ctx, name, client := t.Context(), redistest.Name(t), redistest.New(t)
	s, err := redisprogress.NewStore(client, name)
	if err != nil {
		t.Fatal(err)
	}
	g, tok := partition.Grant{ID: 7, Epoch: 2}, partition.Token{Epoch: 2, Session: "a"}
	said := func() (settled, reset error) {
		_, settled = s.Settle(ctx, g, tok, &progress.Request{Seen: 1, Alone: progress.None}, nil)
		_, reset = s.Reset(ctx, g, tok, 1, 0, "one")
		return settled, reset
	}
	if settled, reset := said(); !errors.Is(settled, sources.ErrForgot) || !errors.Is(reset, sources.ErrForgot) {
		t.Errorf("nothing is known: %v, %v", settled, reset)
	}
	if _, err := s.Open(ctx, partition.Grant{ID: 7, Epoch: 3}, partition.Token{Epoch: 3, Session: "b"}, 0); err != nil {
		t.Fatal(err)
	}
	settled, reset := said()
	for _, err := range []error{settled, reset} {
		if fenced, ok := errors.AsType[*sources.FencedError](err); !ok || fenced.Stored != 3 {
			t.Errorf("epoch 3 stands: %v", err)
		}
	}
}

// Where a log ends is noted beside a fence, and makes none.
func TestEnds(t *testing.T) {
	ctx, name, client := t.Context(), redistest.Name(t), redistest.New(t)
	s, err := redisprogress.NewStore(client, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(ctx, partition.Grant{ID: 7, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Ends(ctx, map[partition.ID]int64{7: 9, 8: 9}); err != nil {
		t.Fatal(err)
	}
	if end := client.HGet(ctx, redisprogress.Elsewhere(name, 7).Fence, "x").Val(); end != "9" {
		t.Errorf("the log ends at %q, want 9", end)
	}
	if client.Exists(ctx, redisprogress.Elsewhere(name, 8).Fence).Val() != 0 {
		t.Error("a partition that nobody has opened has a fence")
	}
	client.Set(ctx, redisprogress.Elsewhere(name, 8).Fence, "of somebody else", 0)
	for range 20 { // in any order
		if err := s.Ends(ctx, map[partition.ID]int64{7: 9, 8: 9}); err == nil {
			t.Fatal("one that was not noted is no error")
		}
	}
}

// A full store refuses what would make it fuller, and lets everything through that ends tasks.
func TestFullStore(t *testing.T) {
	server := redistest.Server(t)
	for _, list := range []bool{true, false} {
		t.Run(fmt.Sprint("list ", list), func(t *testing.T) {
			s := newStore(t, server.Client(), list)
			tok := func(e partition.Epoch) partition.Token { return partition.Token{Epoch: e, Session: "a"} }
			if list {
				for _, e := range []string{"t0", "t1", "t2", "t3", "t4"} {
					s.Push(e)
				}
				s.must(s.client.ZAdd(s.ctx, s.keys.Delayed, redis.Z{Score: 1, Member: "due"}).Err())
			}
			server.Config("maxmemory", "1")
			defer server.Config("maxmemory", "0")
			if err := s.client.RPush(s.ctx, s.keys.Fence+":x", "x").Err(); !redis.HasErrorPrefix(err, "OOM") {
				t.Fatalf("a push in a full store: %v", err)
			}
			o := s.Open(tok(1))
			if list {
				s.Move()
			}
			other := func(pos int64, o progress.Outcome) []progress.Verdict {
				return []progress.Verdict{{Position: pos, Outcome: o, Attempt: 1}}
			}
			for _, r := range []progress.Request{
				{Gate: 5},
				{Gate: 5, Base: 1},
				{Gate: 5, Base: 2, Lift: []int64{1}},
				{Gate: 5, Base: 2, Done: []int64{3}},
				{Gate: 5, Base: 3, Others: other(2, progress.Retry), Lift: []int64{2}},
				{Gate: 5, Base: 4, Others: other(2, progress.Dead)},
			} {
				r.Seen, r.Alone = o.Writes, progress.None
				if a := s.Settle(tok(1), &r, []string{"body"}[:len(r.Others)]); a.Status != progress.Admitted || a.Base != r.Base {
					t.Errorf("%+v is answered with %+v", r, a)
				}
			}
			s.Close(tok(1))
			if o := s.Open(tok(2)); o.Refused || o.Base != 4 {
				t.Errorf("opened again: %+v", o)
			}
		})
	}
	t.Run("reset", func(t *testing.T) {
		s, err := redisprogress.NewStore(server.Client(), redistest.Name(t))
		if err != nil {
			t.Fatal(err)
		}
		g, tok := partition.Grant{ID: 7, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
		f, err := s.Open(t.Context(), g, tok, 0)
		if err != nil {
			t.Fatal(err)
		}
		server.Config("maxmemory", "1")
		if _, err := s.Reset(t.Context(), g, tok, f.Writes, 0, "one"); err != nil {
			t.Error(err)
		}
	})
}

// What a Ring has of a name is elsewhere once a server is away.
func TestRingIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	if _, err := redisprogress.NewStore(ring, "mail"); err == nil || !strings.Contains(err.Error(), "give a *redis.Client") {
		t.Errorf("got %v", err)
	}
}

// Who may push and not take away would push what is due again with each sweep.
func TestNobodyPushesWhatHeMayNotTake(t *testing.T) {
	server := redistest.Server(t)
	s := newStore(t, server.Client(), true)
	s.must(s.client.Do(s.ctx, "acl", "setuser", "peer", "on", ">secret", "~*", "+@all", "-zrem").Err())
	s.must(s.client.ZAdd(s.ctx, s.keys.Delayed, redis.Z{Score: 1, Member: "due"}).Err())
	peer := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "peer", Password: "secret", ContextTimeoutEnabled: true})
	t.Cleanup(func() { peer.Close() })
	for range 2 {
		pipe := peer.Pipeline()
		cmd := s.log(partition.Token{Epoch: 1, Session: "a"}).Move(s.ctx, pipe, 10, true)
		pipe.Exec(s.ctx) // the command has the error
		if _, _, err := redisprogress.Moved(cmd); err == nil || !redisconfig.Forbidden(err) {
			t.Errorf("got %v", err)
		}
	}
	if st := s.State(); len(st.Pending) > 0 || !slices.Equal(st.Delayed, []string{"due"}) {
		t.Errorf("pending %v, delayed %v", st.Pending, st.Delayed)
	}
}

// What an owner may not end writing he does not begin: each attempt would cut the list again by tasks that nobody has
// run, forget what is done, or write a letter again.
func TestNobodySettlesWhatHeMayNotEnd(t *testing.T) {
	t.Parallel()
	for right, dead := range map[string]bool{"-hset": false, "-ltrim": false, "-zadd": true} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			server := redistest.Server(t)
			s := &scripts{store: newStore(t, server.Client(), true)}
			for _, e := range []string{"t0", "t1", "t2", "t3"} {
				s.Push(e)
			}
			tok := s.owner(1)
			s.admitted(tok, 0, done(1))
			before := s.State()
			s.must(s.client.Do(s.ctx, "acl", "setuser", "peer", "on", ">secret", "~*", "+@all", right).Err())
			peer := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "peer", Password: "secret", ContextTimeoutEnabled: true})
			t.Cleanup(func() { peer.Close() })
			r := &progress.Request{Seen: s.seen, Read: 4, Base: 2, Gate: 4, Alone: progress.None}
			var letters []redisprogress.Content
			if dead {
				r.Base = 0
				other(2, progress.Dead, 1)(r)
				letters = []redisprogress.Content{{Body: []byte("letter")}}
			}
			for range 2 {
				pipe := peer.Pipeline()
				cmd := s.log(tok).Settle(s.ctx, pipe, r, letters, nil, true)
				pipe.Exec(s.ctx) // the command has the error
				if err := cmd.Err(); err == nil || !redisconfig.Forbidden(err) {
					t.Errorf("got %v", err)
				}
			}
			if st := s.State(); !reflect.DeepEqual(st, before) {
				t.Errorf("it was %+v, and is %+v", before, st)
			}
		})
	}
}
