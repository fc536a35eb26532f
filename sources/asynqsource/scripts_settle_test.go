package asynqsource

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

const settleNames = "fence pending active lease retry archived completed tries suspects day:p day:f processed failed lock1 lock2 lock3 lock4 lock5"

// settle runs settle.lua as trip n of 5:x, where answered was told. verdicts begin with how many
// of each kind there are.
func (s *shelf) settle(n, answered, alone, extend string, verdicts ...any) string {
	s.t.Helper()
	args := append([]any{"5:x", n, answered, s.k.task, alone, extend, shelfNow + 1000}, verdicts...)
	if len(verdicts) == 0 {
		args = append(args, "")
	}
	return s.run(settleScript, settleNames, args...)
}

// A trip is admitted under the token that stands, if the store knows what it has answered, and if
// no later one was: what is not admitted changes nothing.
func TestSettleIsAdmitted(t *testing.T) {
	for what, c := range map[string]struct{ fence, n, answered, want, then string }{
		"no fence":                 {"", "8", "7", "[0 0]", ""},
		"another's":                {"hset fence t 6:y e 6 n 7", "8", "7", "[0 6]", "fence [e:6 n:7 t:6:y]"},
		"the store forgot":         {"hset fence t 5:x e 5 n 9", "11", "10", "[2]", "fence [e:5 n:9 t:5:x]"},
		"it is late":               {"hset fence t 5:x e 5 n 10", "9", "7", "[3 10]", "fence [e:5 n:10 t:5:x]"},
		"it is said again":         {"hset fence t 5:x e 5 n 10", "10", "9", "[1]", "fence [e:5 n:10 t:5:x]"},
		"it is the next":           {"hset fence t 5:x e 5 n 9", "10", "9", "[1]", "fence [e:5 n:10 t:5:x]"},
		"some before it were lost": {"hset fence t 5:x e 5 n 9", "12", "9", "[1]", "fence [e:5 n:12 t:5:x]"},
	} {
		s := newShelf(t)
		s.put("rpush active a", "hset t:a msg A state active")
		if c.fence != "" {
			s.put(c.fence)
		}
		then := []string{"active [a]", "t:a [msg:A state:active]"}
		if c.then != "" {
			then = append(then, c.then)
		}
		if c.want == "[1]" {
			then = []string{c.then, "day:p 1", "processed 1"}
		}
		s.want(what, s.settle(c.n, c.answered, "", "0", "1 0 0 0 0 0", "a"), c.want, then...)
	}
}

// What becomes of tasks, each in all that asynq knows of it. What is not active any more was
// settled before: nothing happens to it, nor to what stands beside it.
func TestSettleSaysWhatBecame(t *testing.T) {
	type verdict struct {
		what  string
		given []string
		said  []any
		then  []string
		not   bool // counted among neither
		fails bool // counted among the failed
	}
	for _, c := range []verdict{
		{"done", nil, []any{"1 0 0 0 0 0", "a"}, nil, false, false},
		{"its own lock", []string{"set lock1 a"}, []any{"0 1 0 0 0 0", "a"}, nil, false, false},
		{"another's lock", []string{"set lock1 z"}, []any{"0 1 0 0 0 0", "a"}, []string{"lock1 z"}, false, false},
		{"kept, and the lock is not its own to end", []string{"set lock1 a"}, []any{"0 0 1 0 0 0", "a", "A2", 60, "0"}, []string{"lock1 a", "completed [a:1700000060.000]", "t:a [msg:A2 state:completed]"}, false, false},
		{"kept, with its own lock", []string{"set lock1 a"}, []any{"0 0 1 0 0 0", "a", "A2", 60, "1"}, []string{"completed [a:1700000060.000]", "t:a [msg:A2 state:completed]"}, false, false},
		{"kept, with another's lock", []string{"set lock1 z"}, []any{"0 0 1 0 0 0", "a", "A2", 60, "1"}, []string{"lock1 z", "completed [a:1700000060.000]", "t:a [msg:A2 state:completed]"}, false, false},
		{
			"tried again in its place", nil, []any{"0 0 0 1 0 0", "a", "3", "1500", "new", "A2"},
			[]string{"active [z a z]", "lease [z:1.000 a:5.000]", "t:a [msg:A2 state:active tried:1]", "tries [a:3 1 1700000001512 old z:1 1 1 z]"}, false, true,
		}, {
			"put off in its place", nil, []any{"0 0 0 1 0 0", "a", "-3", "1500", "new", "A2"},
			[]string{"active [z a z]", "lease [z:1.000 a:5.000]", "t:a [msg:A2 state:active tried:1]", "tries [a:3 1 1700000001512 old z:1 1 1 z]"}, true, false,
		}, {
			"without an error before", []string{"hset tries a 2|1|9|"}, []any{"0 0 0 1 0 0", "a", "3", "1500", "new", "A2"},
			[]string{"active [z a z]", "lease [z:1.000 a:5.000]", "t:a [msg:A2 state:active tried:1]", "tries [a:3 1 1700000001512 new z:1 1 1 z]"}, false, true,
		}, {
			"never tried before", []string{"hdel tries a"}, []any{"0 0 0 1 0 0", "a", "1", "1500", "new", "A2"},
			[]string{"active [z a z]", "lease [z:1.000 a:5.000]", "t:a [msg:A2 state:active tried:1]", "tries [a:1 0 1700000001512 new z:1 1 1 z]"}, false, true,
		}, {
			"back at once", nil, []any{"0 0 0 0 1 0", "a", "3", "0", "new", "A2"},
			[]string{"pending [a y]", "t:a [msg:A2 pending_since:~ state:pending tried:1]", "tries [a:3 1 0 old z:1 1 1 z]"}, false, true,
		}, {
			"back, and not counted", nil, []any{"0 0 0 0 1 0", "a", "-1", "0", "new", "A2"},
			[]string{"pending [a y]", "t:a [msg:A2 pending_since:~ state:pending tried:1]", "tries [a:2 1 0 old z:1 1 1 z]"}, true, false,
		}, {
			"back later", nil, []any{"0 0 0 0 1 0", "a", "3", "2500", "new", "A2"},
			[]string{"retry [a:1700000002.512]", "t:a [msg:A2 state:retry tried:1]", "tries [a:3 1 0 old z:1 1 1 z]"}, false, true,
		},
		{"dead", nil, []any{"0 0 0 0 0 1", "a", "A2"}, []string{"archived [a:1700000000.000]", "t:a [msg:A2 state:archived]"}, false, true},
	} {
		s := newShelf(t)
		prepare := func(extra ...string) {
			// The owner has handed out a, alone; z stands for all others.
			s.put("hset fence t 5:x e 5 n 7 a a", "rpush pending y", "rpush active z a z", "zadd lease 1 z 5 a", "hset t:a msg A state active",
				"hset tries a 2|1|9|old z 1|1|1|z", "sadd suspects a z", "set processed 10", "set failed 5")
			s.put(append(c.given, extra...)...)
		}
		prepare()
		then := append([]string{"fence [a: e:5 n:8 t:5:x]", "suspects [z]"}, c.then...)
		for _, line := range []string{"pending [y]", "active [z z]", "lease [z:1.000]", "tries [z:1 1 1 z]"} {
			if name, _, _ := strings.Cut(line, " "); !slices.ContainsFunc(then, func(l string) bool { return strings.HasPrefix(l, name+" ") }) {
				then = append(then, line)
			}
		}
		switch {
		case c.fails:
			then = append(then, "processed 11", "failed 6", "day:p 1", "day:f 1")
		case c.not:
			then = append(then, "processed 10", "failed 5")
		default:
			then = append(then, "processed 11", "failed 5", "day:p 1")
		}
		s.want(c.what, s.settle("8", "7", "", "0", c.said...), "[1]", slices.Clone(then)...)
		s.want(c.what+", said again", s.settle("8", "7", "", "0", c.said...), "[1]", slices.Clone(then)...)
		// And where somebody has taken it out since, all stays as it is.
		s.client.FlushAll(t.Context())
		prepare("lrem active 0 a", "zrem lease a")
		untouched := s.holds()
		untouched[slices.Index(untouched, "fence [a:a e:5 n:7 t:5:x]")] = "fence [a:a e:5 n:8 t:5:x]"
		s.want(c.what+", and it is not active", s.settle("8", "7", "", "0", c.said...), "[1]", untouched...)
	}
}

// One trip says it of many, each with its own words, whether or not those before it count.
func TestSettleSaysItOfEach(t *testing.T) {
	s := newShelf(t)
	s.put("hset fence t 5:x e 5 n 7", "rpush active d2 l2 l3 k2 r2 q2 x2", "zadd lease 1 d2 1 l2 1 l3 1 k2 1 r2 1 q2 1 x2",
		"set lock1 l1", "set lock2 l2", "set lock3 l3", "set lock4 k1", "set lock5 k2", "hset t:r2 msg R state active")
	answer := s.settle("8", "7", "", "0", "2 3 2 2 2 2", "d1", "d2", "l1", "l2", "l3", "k1", "K1", 60, "1", "k2", "K2", 70, "1",
		"r1", "1", "1000", "e1", "R1", "r2", "1", "2000", "e2", "R2", "q1", "1", "0", "f1", "Q1", "q2", "1", "0", "f2", "Q2",
		"x1", "X1", "x2", "X2")
	s.want("two of each", answer, "[1]", "fence [e:5 n:8 t:5:x]", "lock1 l1", "lock4 k1", "active [r2]", "lease [r2:1.000]",
		"completed [k2:1700000070.000]", "t:k2 [msg:K2 state:completed]", "t:r2 [msg:R2 state:active tried:1]", "pending [q2]",
		"t:q2 [msg:Q2 pending_since:~ state:pending tried:1]", "tries [q2:1 0 0 f2 r2:1 0 1700000002012 e2]",
		"archived [x2:1700000000.000]", "t:x2 [msg:X2 state:archived]", "processed 7", "failed 3", "day:p 7", "day:f 3")
}

// The counters of a day end when asynq ends them, whoever counts on.
func TestSettleCountsTheDay(t *testing.T) {
	s := newShelf(t)
	s.put("hset fence t 5:x e 5 n 7", "rpush active a b")
	for n, want := range []time.Duration{1000 * time.Second, 5 * time.Second} {
		s.settle(fmt.Sprint(8+n), "7", "", "0", "0 0 0 0 0 1", []string{"a", "b"}[n], "X")
		for _, key := range s.keys("day:p day:f") {
			if got := s.client.TTL(t.Context(), key).Val(); got > want || got < want-time.Second {
				t.Errorf("after %d tasks %s lives %v, want %v", n+1, key, got, want)
			}
			s.client.Expire(t.Context(), key, 5*time.Second) // another's, of before
		}
	}
}

// What lies beside the tasks goes with them, whichever of it there is.
func TestSettleLeavesNothingBeside(t *testing.T) {
	for _, beside := range []string{"hset tries a 2|1|9|old", "sadd suspects a"} {
		s := newShelf(t)
		s.put("hset fence t 5:x e 5 n 7", "rpush active a", beside)
		s.want(beside, s.settle("8", "7", "", "0", "1 0 0 0 0 0", "a"), "[1]", "fence [e:5 n:8 t:5:x]", "processed 1", "day:p 1")
	}
}

// Only what is said to be the lock of a task is looked at: one that is called what a counter says
// ends no counter.
func TestSettleEndsItsLockOnly(t *testing.T) {
	for _, said := range [][]any{{"1 0 0 0 0 0", "5"}, {"0 0 1 0 0 0", "5", "X", 60, "0"}} {
		s := newShelf(t)
		s.put("hset fence t 5:x e 5 n 7", "rpush active 5", "set failed 5", "set processed 4", "set lock1 5")
		s.settle("8", "7", "", "0", said...)
		if got := s.holds(); !slices.Contains(got, "failed 5") || !slices.Contains(got, "processed 5") || !slices.Contains(got, "lock1 5") {
			t.Errorf("%v: it holds %q", said[0], got)
		}
	}
}

// Who runs alone is noted if it is the run that is meant, and stays noted while others end. The
// leases of what is active are extended, and no others made.
func TestSettleNotesWhoRunsAlone(t *testing.T) {
	for what, c := range map[string]struct {
		alone, extend, want string
		lease               string
	}{
		"the first run":             {"0 b", "0", "fence [a:b e:5 n:8 t:5:x]", "lease [a:1.000 b:1.000 z:1.000]"},
		"the third run":             {"2 a", "0", "fence [a:a e:5 n:8 t:5:x]", "lease [a:1.000 b:1.000 z:1.000]"},
		"a run that is over":        {"1 a", "0", "fence [a:c e:5 n:8 t:5:x]", "lease [a:1.000 b:1.000 z:1.000]"},
		"a task that is not active": {"0 w", "0", "fence [a:c e:5 n:8 t:5:x]", "lease [a:1.000 b:1.000 z:1.000]"},
		"nobody":                    {"", "1", "fence [a:c e:5 n:8 t:5:x]", "lease [z:1.000 a:1700000030.000 b:1700000030.000]"},
	} {
		s := newShelf(t)
		s.put("hset fence t 5:x e 5 n 7 a c", "rpush active a b d y", "zadd lease 1 a 1 b 1 z 1 d", "hset tries a 2|1|9|old")
		s.want(what, s.settle("8", "7", c.alone, c.extend, "1 0 0 0 0 0", "d"), "[1]",
			c.want, c.lease, "active [a b y]", "tries [a:2 1 9 old]", "processed 1", "day:p 1")
	}
}

// A script that fails is not rolled back: where a key holds something else, what it was told of
// stays active until that can be said.
func TestASettleThatFailsLosesNothing(t *testing.T) {
	verdicts := map[string][]any{
		"done":    {"1 0 0 0 0 0", "a"},
		"kept":    {"0 0 1 0 0 0", "a", "A2", 60, "0"},
		"retry":   {"0 0 0 1 0 0", "a", 1, 0, "why", "A2"},
		"requeue": {"0 0 0 0 1 0", "a", 1, 0, "why", "A2"},
		"later":   {"0 0 0 0 1 0", "a", 1, 1000, "why", "A2"},
		"dead":    {"0 0 0 0 0 1", "a", "A2"},
	}
	for key, hit := range map[string]string{
		"lease":     "done kept retry requeue later dead",
		"tries":     "done kept retry requeue later dead",
		"suspects":  "done kept retry requeue later dead",
		"completed": "kept",
		"pending":   "requeue later",
		"retry":     "requeue later",
		"archived":  "dead",
	} {
		for what, said := range verdicts {
			s := newShelf(t)
			s.put("hset fence t 5:x e 5 n 7", "rpush active a", "hset t:a msg A state active")
			if key != "lease" {
				s.put("zadd lease 1 a")
			}
			s.put("set " + key + " x")
			for n := range 2 {
				got := s.settle(fmt.Sprint(8+n), "7", "", "0", said...)
				if want := slices.Contains(strings.Fields(hit), what); strings.Contains(got, "WRONGTYPE") != want {
					t.Errorf("%s where %s holds something else: %s", what, key, got)
				}
				if held := s.holds(); strings.Contains(got, "WRONGTYPE") && !slices.Contains(held, "active [a]") {
					t.Errorf("%s where %s holds something else: it holds\n\t%s", what, key, strings.Join(held, "\n\t"))
				}
			}
		}
	}
}

// A task whose key holds something else is no task any more, and keeps nothing from the others.
func TestSettleOfWhatIsOverwritten(t *testing.T) {
	for what, c := range map[string]struct {
		said []any
		then []string
	}{
		"kept":    {[]any{"0 0 2 0 0 0", "a", "A2", 60, "0", "b", "B2", 60, "0"}, []string{"completed [a:1700000060.000 b:1700000060.000]", "t:b [msg:B2 state:completed]"}},
		"retry":   {[]any{"0 0 0 2 0 0", "a", 1, 0, "why", "A2", "b", 1, 0, "why", "B2"}, []string{"t:b [msg:B2 state:active tried:1]"}},
		"requeue": {[]any{"0 0 0 0 2 0", "a", 1, 0, "why", "A2", "b", 1, 0, "why", "B2"}, []string{"pending [b a]"}},
		"dead":    {[]any{"0 0 0 0 0 2", "a", "A2", "b", "B2"}, []string{"archived [a:1700000000.000 b:1700000000.000]", "t:b [msg:B2 state:archived]"}},
		"locked":  {[]any{"0 2 0 0 0 0", "a", "b"}, nil},
	} {
		s := newShelf(t)
		s.put("hset fence t 5:x e 5 n 7", "rpush active b a", "zadd lease 1 a 1 b", "set t:a x", "hset t:b msg B state active", "rpush lock1 x")
		if got := s.settle("8", "7", "", "0", c.said...); got != "[1]" {
			t.Errorf("%s: the answer is %s", what, got)
		}
		held := s.holds()
		for _, want := range append(c.then, "lock1 [x]") {
			if !slices.Contains(held, want) {
				t.Errorf("%s: it holds\n\t%s\nwant %s", what, strings.Join(held, "\n\t"), want)
			}
		}
	}
}

// A task whose lease was deleted is active all the same: its retries count, and that it runs alone.
func TestSettleWithoutLeases(t *testing.T) {
	s := newShelf(t)
	s.put("hset fence t 5:x e 5 n 7", "rpush active b a", "hset t:a msg A state active")
	s.want("a retry", s.settle("8", "7", "0 b", "0", "0 0 0 1 0 0", "a", 1, 0, "why", "A2"), "[1]",
		"active [b a]", "t:a [msg:A2 state:active tried:1]", fmt.Sprintf("tries [a:1 0 %d012 why]", shelfNow),
		"fence [a:b e:5 n:8 t:5:x]", "day:p 1", "day:f 1", "processed 1", "failed 1")
}

// Who lost a right while he worked takes no task out of active that he could not put where it goes.
func TestNobodySettlesWhatHeMayNotPut(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	admin := server.Client()
	for right, said := range map[string][]any{
		"-zadd":  {"0 0 0 0 1 0", "a", 1, 1000, "why", "A2"},
		"-lpush": {"0 0 0 0 1 0", "a", 1, 0, "why", "A2"},
		"-hset":  {"0 0 0 0 1 0", "a", 1, 0, "why", "A2"},
		"-zrem":  {"0 0 0 0 0 1", "a", "A2"},
	} {
		k := keysOf(QueueOf(redistest.Name(t)+right, 0))
		admin.HSet(t.Context(), k.fence, "t", "5:x", "e", 5, "n", 7)
		admin.LPush(t.Context(), k.active, "a")
		admin.ZAdd(t.Context(), k.lease, redis.Z{Score: 1, Member: "a"})
		admin.HSet(t.Context(), k.task+"a", "msg", "A", "state", "active")
		peer := lacking(t, server, right)
		err := settleScript.Run(t.Context(), peer, []string{
			k.fence, k.pending, k.active, k.lease, k.retry, k.archived, k.completed, k.tries, k.suspects,
			k.processed + "day", k.failed + "day", k.processed, k.failed,
		}, append([]any{"5:x", 8, 7, k.task, "", "0", 1}, said...)...).Err()
		if err == nil || !redisconfig.Forbidden(err) {
			t.Errorf("%s: %v", right, err)
		}
		if n := admin.LLen(t.Context(), k.active).Val(); n != 1 {
			t.Errorf("%s: active has %d tasks, want the one", right, n)
		}
	}
}
