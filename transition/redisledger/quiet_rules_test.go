package redisledger

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

func grants(ids ...partition.ID) []partition.Grant {
	var list []partition.Grant
	for _, id := range ids {
		list = append(list, partition.Grant{ID: id, Epoch: 7})
	}
	return list
}

// A Sync is quiet if it says what was said before and answered in full, and nothing that
// could mean something the second time: whatever is different, the store hears all of it.
func TestWhatIsQuiet(t *testing.T) {
	was := machine.Request{
		Session: "s", Peer: "p", Weight: 1, State: machine.Live, View: 3, Tags: "a", Barrier: true, Arrived: 5, Strategy: "sticky",
		Hold: grants(1, 2),
	}
	answer := machine.Answer{Mine: []machine.Held{{Grant: grants(1)[0]}, {Grant: grants(2)[0]}}}
	before := func(edit func(*said)) said {
		var q quiet
		q.keep(was, "stamp", answer)
		s := q.of("s")
		if edit != nil {
			edit(&s)
		}
		return s
	}
	for name, c := range map[string]struct {
		now   func(*machine.Request)
		then  func(*said)
		quiet bool
	}{
		"the same":                       {func(*machine.Request) {}, nil, true},
		"it leaves":                      {func(r *machine.Request) { r.State = machine.Leaving }, nil, false},
		"it is gone":                     {func(r *machine.Request) { r.State = machine.Gone }, func(s *said) { s.request.State = machine.Gone }, false},
		"it knows another roll":          {func(r *machine.Request) { r.View++ }, nil, false},
		"it has another id":              {func(r *machine.Request) { r.Peer = "q" }, nil, false},
		"it has another weight":          {func(r *machine.Request) { r.Weight++ }, nil, false},
		"it is unwell":                   {func(r *machine.Request) { r.Unwell = true }, nil, false},
		"it has other tags":              {func(r *machine.Request) { r.Tags = "b" }, nil, false},
		"it has no barrier":              {func(r *machine.Request) { r.Barrier = false }, nil, false},
		"it has arrived":                 {func(r *machine.Request) { r.Arrived++ }, nil, false},
		"it shares out by another":       {func(r *machine.Request) { r.Strategy = "jump" }, nil, false},
		"it holds less":                  {func(r *machine.Request) { r.Hold = grants(1) }, nil, false},
		"it holds under another epoch":   {func(r *machine.Request) { r.Hold[1].Epoch++ }, nil, false},
		"it claims":                      {func(r *machine.Request) { r.Claim = []partition.ID{3} }, nil, false},
		"it releases":                    {func(r *machine.Request) { r.Release = grants(3) }, nil, false},
		"it claimed":                     {func(*machine.Request) {}, func(s *said) { s.request.Claim = []partition.ID{3} }, false},
		"it released":                    {func(*machine.Request) {}, func(s *said) { s.request.Release = grants(3) }, false},
		"it claims the same again":       {func(r *machine.Request) { r.Claim = []partition.ID{3} }, func(s *said) { s.request.Claim = []partition.ID{3} }, false},
		"it was not answered in full":    {func(*machine.Request) {}, func(s *said) { s.stamp = "" }, false},
		"a hold was refused":             {func(*machine.Request) {}, func(s *said) { s.answer.Mine = s.answer.Mine[:1] }, false},
		"a hold was of another epoch":    {func(*machine.Request) {}, func(s *said) { s.answer.Mine[1].Grant.Epoch++ }, false},
		"more was granted than it holds": {func(*machine.Request) {}, func(s *said) { s.answer.Mine = append(s.answer.Mine, machine.Held{Grant: grants(9)[0]}) }, true},
	} {
		now := was
		now.Hold = slices.Clone(was.Hold)
		c.now(&now)
		if got := before(c.then).same(now); got != c.quiet {
			t.Errorf("%s: quiet is %v, want %v", name, got, c.quiet)
		}
	}
}

// What is remembered is what was said then, whatever its caller does with its slices since;
// of a session that is gone nothing is.
func TestWhatWasSaidIsKept(t *testing.T) {
	var q quiet
	r := machine.Request{Session: "s", State: machine.Live, Hold: grants(1), Claim: []partition.ID{2}, Release: grants(3)}
	a := machine.Answer{Mine: []machine.Held{{Grant: grants(1)[0]}}, Line: &machine.Line{Partitions: []partition.ID{1}}}
	q.keep(r, "stamp", a)
	r.Hold[0].ID, r.Claim[0], r.Release[0].ID, a.Mine[0].Grant.ID, a.Line.Partitions[0] = 8, 8, 8, 8, 8
	s := q.of("s")
	again := copied(s.answer)
	again.Mine[0].Grant.ID, again.Line.Partitions[0] = 9, 9
	if s = q.of("s"); s.request.Hold[0].ID != 1 || s.request.Claim[0] != 2 || s.request.Release[0].ID != 3 ||
		s.answer.Mine[0].Grant.ID != 1 || s.answer.Line.Partitions[0] != 1 {
		t.Errorf("what was said is now %+v", s)
	}
	if s := q.of("another"); s.stamp != "" {
		t.Errorf("another session has said %+v", s)
	}
	r.State = machine.Gone
	q.keep(r, "stamp", a)
	if s := q.of("s"); s.stamp != "" {
		t.Errorf("it is gone, and has said %+v", s)
	}
}

// pool is a client of which the test says how many connections it has lost.
type pool struct{ stale uint32 }

func (p *pool) PoolStats() *redis.PoolStats { return &redis.PoolStats{StaleConns: p.stale} }

// A doubt is said until a call was answered that was written after its reason.
func TestWhenThereIsADoubt(t *testing.T) {
	client := &pool{stale: 3}
	d := newDoubts(client, "key")
	says := func(what string, c *doubt, want string) {
		t.Helper()
		if got, err := c.MarshalBinary(); err != nil || string(got) != want {
			t.Errorf("%s: the doubt is %s, %v, want %s", what, got, err, want)
		}
	}
	first := d.call(t.Context())
	says("nothing has happened", first, "0")
	first.failed()
	says("a call has failed", d.call(t.Context()), "1")
	again := d.call(t.Context())
	says("a call has failed, and another", again, "1")
	again.answered()
	says("a call was answered", d.call(t.Context()), "0")
	client.stale++
	lost := d.call(t.Context())
	says("a connection was lost", lost, "1")
	client.stale++ // while the call is under way
	lost.answered()
	after := d.call(t.Context())
	says("one more was lost since it was written", after, "1")
	after.answered()
	says("that was answered", d.call(t.Context()), "0")
	forgot := d.call(t.Context())
	forgot.forgot = true
	says("the server did not know the script", forgot, "2")
}

// cluster is a client of which the test says who has the ledger.
type cluster struct {
	pool
	master *redis.Client
}

func (c *cluster) MasterForKey(context.Context, string) (*redis.Client, error) { return c.master, nil }

// Another node of a cluster may not know what was answered last. That the dead one has lost
// connections is not in the client's count any longer.
func TestDoubtOfAnotherNode(t *testing.T) {
	a, b := redis.NewClient(&redis.Options{}), redis.NewClient(&redis.Options{})
	defer a.Close()
	defer b.Close()
	client := &cluster{master: a}
	d := newDoubts(client, "key")
	says := func(what string, c *doubt, want string) {
		t.Helper()
		if got, err := c.MarshalBinary(); err != nil || string(got) != want {
			t.Errorf("%s: the doubt is %s, %v, want %s", what, got, err, want)
		}
	}
	answered := func(what, want string) {
		t.Helper()
		c := d.call(t.Context())
		says(what, c, want)
		c.answered()
	}
	answered("the first call", "0")
	answered("nothing has happened", "0")
	client.pool.stale++
	answered("a connection to a node without the ledger was lost", "0")
	client.master = b
	answered("another has it", "1")
	answered("that was answered", "0")

	c := d.call(t.Context())
	client.master = a
	says("another has it while the call looks for a connection", c, "1")
	c.answered()
	answered("who of both has answered is not known", "1")
	answered("that was answered", "0")

	c = d.call(t.Context())
	says("nothing has happened", c, "0")
	says("the node sent it on to another", c, "1")
}
