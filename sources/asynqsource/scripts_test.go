package asynqsource

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
)

// A shelf is what a store holds of one queue, for tests of single scripts. Its clock stands.
type shelf struct {
	t      *testing.T
	client redis.UniversalClient
	k      keys
}

const (
	// shelfNow is the clock of a shelf, and shelfSince the same as asynq writes it.
	shelfNow   = 1_700_000_000
	shelfSince = "1700000000012345000"
)

func newShelf(t *testing.T) *shelf {
	t.Helper()
	m, client := redistest.Mini(t)
	m.SetTime(time.Unix(shelfNow, 12_345_000))
	return &shelf{t, client, keysOf(redistest.Name(t))}
}

// key is the key of what is called name: the end of one of asynq's keys, or of one of ours.
func (s *shelf) key(name string) string {
	switch name {
	case "fence", "tries", "suspects", "marks", "lock1", "lock2", "lock3", "lock4", "lock5":
		return strings.TrimSuffix(s.k.fence, "fence") + name
	}
	return s.k.prefix + name
}

// keys are those of names.
func (s *shelf) keys(names string) []string {
	var out []string
	for name := range strings.FieldsSeq(names) {
		out = append(out, s.key(name))
	}
	return out
}

// put does what lines say: a command, a name and the rest, in which | is a space.
func (s *shelf) put(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		var args []any
		for i, word := range strings.Fields(line) {
			switch {
			case i == 1:
				word = s.key(word)
			case word == "''":
				word = ""
			}
			word = strings.ReplaceAll(word, "|", " ")
			args = append(args, word)
		}
		if err := s.client.Do(s.t.Context(), args...).Err(); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	}
}

// holds lists what there is, by name.
func (s *shelf) holds() []string {
	s.t.Helper()
	ctx := s.t.Context()
	var all []string
	own := strings.TrimSuffix(s.k.fence, "fence")
	for _, key := range redistest.Keys(s.t, s.client, "*") {
		name := strings.TrimPrefix(strings.TrimPrefix(key, s.k.prefix), own)
		switch kind := s.client.Type(ctx, key).Val(); kind {
		case "list":
			all = append(all, fmt.Sprint(name, " ", s.client.LRange(ctx, key, 0, -1).Val()))
		case "hash":
			all = append(all, fmt.Sprint(name, " ", strings.TrimPrefix(fmt.Sprint(s.client.HGetAll(ctx, key).Val()), "map")))
		case "zset":
			var members []string
			for _, z := range s.client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				members = append(members, fmt.Sprintf("%v:%.3f", z.Member, z.Score))
			}
			all = append(all, fmt.Sprint(name, " ", members))
		case "set":
			all = append(all, fmt.Sprint(name, " ", slices.Sorted(slices.Values(s.client.SMembers(ctx, key).Val()))))
		default:
			all = append(all, fmt.Sprintf("%s %s", name, s.client.Get(ctx, key).Val()))
		}
	}
	slices.Sort(all)
	return all
}

// run runs a script and returns its answer.
func (s *shelf) run(sc *script, names string, args ...any) string {
	s.t.Helper()
	answer, err := sc.Run(s.t.Context(), s.client, s.keys(names), args...).Result()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer)
}

// want compares what there is with the lines of want, where ~ is the time of the shelf.
func (s *shelf) want(what, answer, wantAnswer string, want ...string) {
	s.t.Helper()
	if answer != wantAnswer {
		s.t.Errorf("%s: the answer is %s, want %s", what, answer, wantAnswer)
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "~", shelfSince)
	}
	slices.Sort(want)
	if got := s.holds(); !slices.Equal(got, want) {
		s.t.Errorf("%s: it holds\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

const openNames = "fence pending active lease tries suspects archived"

// What an open does with what the last owner left: it goes back in order. All of it is suspect,
// or, where one ran alone, that one is to blame. What is not there any more is no suspect.
func TestOpenGivesBack(t *testing.T) {
	left := []string{
		"rpush pending e d", "rpush active c b a", "zadd lease 1 a 1 b 1 c",
		"hset t:a msg A state active", "hset t:b msg B state active", // c was deleted by hand
		"hset tries b 5|1|99|why", "sadd suspects a b",
	}
	back := []string{"pending [e d c b a]", "t:a [msg:A pending_since:~ state:pending]"}
	for what, c := range map[string]struct {
		fence []string
		limit int
		want  string
		then  []string
	}{
		"nobody was there": {
			nil, 3, "[1 1 [a b]]",
			[]string{"fence [a: e:5 n:1 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it closed": {
			[]string{"hset fence t '' e 4 n 7 a b"}, 3, "[1 8 [a b]]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it died": {
			[]string{"hset fence t 4:w e 4 n 7"}, 3, "[1 8 [a b]]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it died, and what ran alone had ended": {
			[]string{"hset fence t 4:w e 4 n 7 a z"}, 3, "[1 8 [a b]]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it died while one ran alone": {
			[]string{"hset fence t 4:w e 4 n 7 a b"}, 3, "[1 8 [a b]]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending tried:1]", "suspects [a b]", "tries [b:5 2 99 why]"},
		},
		"it died while one ran alone, once too often": {
			[]string{"hset fence t 4:w e 4 n 7 a b"}, 2, "[1 8 [a]]",
			[]string{
				"fence [a: e:5 n:8 t:5:x]", "archived [b:1700000000.000]", "suspects [a]", "pending [e d c a]",
				"t:b [msg:B:+its peer crashed 2 times while it ran alone state:archived]",
			},
		},
		"what ran alone once too often was deleted by hand": {
			[]string{"hset fence t 4:w e 4 n 7 a b", "del t:b"}, 2, "[1 8 [a]]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "suspects [a]", "tries [b:5 2 99 why]"},
		},
		"it died while one ran alone that was never tried": {
			[]string{"hset fence t 4:w e 4 n 7 a b", "del tries"}, 3, "[1 8 [a b]]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending tried:1]", "suspects [a b]", "tries [b:0 1 0 ]"},
		},
	} {
		s := newShelf(t)
		s.put(left...)
		s.put(c.fence...)
		then := slices.Clone(c.then)
		for _, line := range back {
			if name, _, _ := strings.Cut(line, " "); !slices.ContainsFunc(then, func(l string) bool { return strings.HasPrefix(l, name+" ") }) {
				then = append(then, line)
			}
		}
		s.want(what, s.run(openScript, openNames, "5:x", "5", s.k.task, c.limit), c.want, then...)
	}
}

// An open that is late, or said again, changes nothing: of an older epoch, of the same, or of the
// token that stands.
func TestOpenIsOfTheNewest(t *testing.T) {
	for token, c := range map[string]struct{ epoch, want string }{
		"9:w": {"9", "[1 7 []]"}, "9:x": {"9", "[0 9]"}, "8:w": {"8", "[0 9]"}, "10:x": {"10", "[1 8 [a]]"},
	} {
		s := newShelf(t)
		s.put("hset fence t 9:w e 9 n 7", "rpush active a", "zadd lease 1 a", "hset t:a msg A state active")
		then := s.holds()
		if token == "10:x" { // numbers, not text
			then = []string{"fence [a: e:10 n:8 t:10:x]", "pending [a]", "t:a [msg:A pending_since:~ state:pending]", "suspects [a]"}
		}
		s.want(token, s.run(openScript, openNames, token, c.epoch, s.k.task, 3), c.want, then...)
	}
}

// A close gives back whatever there is, in order, and says whose the fence is if it is another's.
func TestCloseGivesBack(t *testing.T) {
	const names = "fence pending active lease"
	s := newShelf(t)
	s.want("no fence", s.run(closeScript, names, "5:x", "5", s.k.task), "[0 0]")
	s.put("hset fence t 5:x e 5 n 7 a b")
	var active, lease []any
	var back []string
	for i := range 2500 { // more than the script takes at once
		id := fmt.Sprint("i", i)
		active, back = append(active, id), append(back, id)
		lease = append(lease, 1, id)
	}
	s.put("rpush pending z")
	s.client.RPush(t.Context(), s.k.active, active...)
	s.client.Do(t.Context(), append([]any{"zadd", s.k.lease}, lease...)...)
	before := s.holds()
	for token, epoch := range map[string]string{"4:w": "4", "6:y": "6", "5:y": "5"} {
		s.want("another's", s.run(closeScript, names, token, epoch, s.k.task), "[0 5]", before...)
	}
	after := []string{"fence [a: e:5 n:7 t:]", "pending [z " + strings.Join(back, " ") + "]"}
	s.want("its own", s.run(closeScript, names, "5:x", "5", s.k.task), "[1]", after...)
	s.want("again", s.run(closeScript, names, "5:x", "5", s.k.task), "[1]", after...)
	s.want("an older one", s.run(closeScript, names, "4:x", "4", s.k.task), "[0 5]", after...)
}

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
		"a task that is not active": {"0 y", "0", "fence [a:c e:5 n:8 t:5:x]", "lease [a:1.000 b:1.000 z:1.000]"},
		"nobody":                    {"", "1", "fence [a:c e:5 n:8 t:5:x]", "lease [z:1.000 a:1700000030.000 b:1700000030.000]"},
	} {
		s := newShelf(t)
		s.put("hset fence t 5:x e 5 n 7 a c", "rpush active a b d y", "zadd lease 1 a 1 b 1 z 1 d", "hset tries a 2|1|9|old")
		s.want(what, s.settle("8", "7", c.alone, c.extend, "1 0 0 0 0 0", "d"), "[1]",
			c.want, c.lease, "active [a b y]", "tries [a:2 1 9 old]", "processed 1", "day:p 1")
	}
}

const fetchNames = "fence pending active lease paused scheduled retry completed tries"

// fetch runs fetch.lua as trip 7 of 5:x.
func (s *shelf) fetch(most, known int, forward string, bytes int) string {
	s.t.Helper()
	return s.run(fetchScript, fetchNames, "5:x", 7, most, known, s.k.task, forward, s.k.group, bytes)
}

// What a fetch takes, and in which order, what it leaves and what it says of the time to come.
func TestFetchTakes(t *testing.T) {
	task := func(id string) string {
		return "hset t:" + id + " msg " + strings.ToUpper(id) + id + " state pending pending_since 1" + id
	}
	const fence, ours = "hset fence t 5:x e 5 n 7", "fence [e:5 n:7 t:5:x]"
	pending := []string{fence, "rpush pending c b a", task("a"), task("b"), task("c")}
	for what, c := range map[string]struct {
		put         []string
		most, known int
		forward     string
		bytes       int
		want        string
		then        []string
	}{
		"a part": {
			pending, 2, 0, "0", 100, "[1 -2 0 a Aa 1a b Bb 1b]",
			[]string{
				ours, "pending [c]", "active [b a]", "lease [a:1700000030.000 b:1700000030.000]",
				"t:a [msg:Aa state:active]", "t:b [msg:Bb state:active]", "t:c [msg:Cc pending_since:1c state:pending]",
			},
		},
		"one that was tried": {
			append(slices.Clone(pending), "hset tries a 2|1|9|why|so", "hset t:a tried 1", "hset tries b 1|0|0|former", "hset tries c 1|0|0|"), 2, 0, "0", 100,
			"[1 -2 0 a Aa 1a 1700000000012 2 1 9 why so b Bb 1b]",
			[]string{
				ours, "pending [c]", "active [b a]", "lease [a:1700000030.000 b:1700000030.000]", "tries [a:2 1 9 why so c:1 0 0 ]",
				"t:a [msg:Aa state:active tried:1]", "t:b [msg:Bb state:active]", "t:c [msg:Cc pending_since:1c state:pending]",
			},
		},
		"one": {
			[]string{fence, "rpush pending b a", task("a")}, 1, 0, "0", 100, "[1 -2 0 a Aa 1a]",
			[]string{ours, "pending [b]", "active [a]", "lease [a:1700000030.000]", "t:a [msg:Aa state:active]"},
		},
		"all, to the byte": {
			pending, 3, 0, "0", 6, "[1 -2 0 a Aa 1a b Bb 1b c Cc 1c]",
			[]string{
				ours, "active [c b a]", "lease [a:1700000030.000 b:1700000030.000 c:1700000030.000]",
				"t:a [msg:Aa state:active]", "t:b [msg:Bb state:active]", "t:c [msg:Cc state:active]",
			},
		},
		"more than the bytes": {
			pending, 4, 0, "0", 2, "[1 -2 0 a Aa 1a]",
			[]string{
				ours, "pending [c b]", "active [a]", "lease [a:1700000030.000]", "t:a [msg:Aa state:active]",
				"t:b [msg:Bb pending_since:1b state:pending]", "t:c [msg:Cc pending_since:1c state:pending]",
			},
		},
		"one was deleted by hand, and one says not since when": {
			[]string{fence, "rpush pending c b a", "hset t:a msg A", task("c"), "rpush active z"}, 4, 1, "0", 100, "[1 -1 0 a A  c Cc 1c]",
			[]string{
				ours, "active [c a z]", "lease [a:1700000030.000 c:1700000030.000]", "t:a [msg:A state:active]", "t:c [msg:Cc state:active]",
			},
		},
		"all were deleted by hand": {[]string{fence, "rpush pending b a"}, 4, 0, "0", 100, "[1 -1 0]", []string{ours}},
		"paused": {
			append(slices.Clone(pending), "set paused 1"), 2, 0, "0", 100, "[1 -1 1]",
			[]string{
				ours, "paused 1", "pending [c b a]", "t:a [msg:Aa pending_since:1a state:pending]",
				"t:b [msg:Bb pending_since:1b state:pending]", "t:c [msg:Cc pending_since:1c state:pending]",
			},
		},
		"none are wanted": {
			[]string{fence, "rpush pending a", task("a")}, 0, 0, "0", 100, "[1 -2 0]",
			[]string{ours, "pending [a]", "t:a [msg:Aa pending_since:1a state:pending]"},
		},
		"the reply of before was lost": {
			[]string{fence, "rpush pending d", "rpush active c b a z", "zadd lease 1 a 1 b 1 c 1 z", task("a"), task("c"), task("d")}, 2, 1, "1", 100,
			"[1 -2 0 a Aa 1a c Cc 1c]",
			[]string{
				ours, "pending [d]", "active [c a z]", "lease [a:1.000 c:1.000 z:1.000]", "t:a [msg:Aa state:active]", "t:c [msg:Cc state:active]",
				"t:d [msg:Dd pending_since:1d state:pending]",
			},
		},
		"the store has fewer": {
			[]string{fence, "rpush pending d", "rpush active a", task("d")}, 2, 2, "1", 100, "[2]",
			[]string{ours, "pending [d]", "active [a]", "t:d [msg:Dd pending_since:1d state:pending]"},
		},
		"what is due, and is not asked for": {
			[]string{fence, "zadd scheduled 1 a", "zadd retry 1 b", "zadd completed 1 c"}, 1, 0, "0", 100, "[1 0 0]",
			[]string{ours, "scheduled [a:1.000]", "retry [b:1.000]", "completed [c:1.000]"},
		},
		"what is due": {
			[]string{
				fence, "zadd scheduled 1 a 2 b 1700000001 e", "zadd retry 1 c 1700000000.006 d 1700000000.512 f", "zadd completed 1 g 1700000001 h",
				task("a"), task("b"), task("c"), task("d"), task("g"), task("h"), "hset t:b group grp", "hset t:c group ''", "hset t:d state scheduled",
			}, 2, 0, "1", 100, "[1 -2 0 a Aa ~ c Cc ~]",
			[]string{
				ours, "scheduled [e:1700000001.000]", "retry [f:1700000000.512]", "completed [h:1700000001.000]", "pending [d]",
				"active [c a]", "lease [a:1700000030.000 c:1700000030.000]", "g:grp [b:1700000000.000]", "t:a [msg:Aa state:active]",
				"t:b [group:grp msg:Bb pending_since:1b state:aggregating]", "t:c [group: msg:Cc state:active]",
				"t:d [msg:Dd pending_since:~ state:pending]", "t:h [msg:Hh pending_since:1h state:pending]",
			},
		},
		"what comes first is scheduled": {
			[]string{fence, "zadd scheduled 1700000001 a 1700000009 b", "zadd retry 1700000002 c"}, 1, 0, "1", 100, "[1 988 0]",
			[]string{ours, "scheduled [a:1700000001.000 b:1700000009.000]", "retry [c:1700000002.000]"},
		},
		"what comes first is tried again": {
			[]string{fence, "zadd scheduled 1700000009 a", "zadd retry 1700000002 c"}, 1, 0, "1", 100, "[1 1988 0]",
			[]string{ours, "scheduled [a:1700000009.000]", "retry [c:1700000002.000]"},
		},
		"nothing comes": {[]string{fence}, 1, 0, "1", 100, "[1 -1 0]", []string{ours}},
		"another's": {
			[]string{"hset fence t 6:y e 6 n 7", "rpush pending a", task("a")}, 1, 0, "1", 100, "[0]",
			[]string{"fence [e:6 n:7 t:6:y]", "pending [a]", "t:a [msg:Aa pending_since:1a state:pending]"},
		},
		"no fence": {[]string{"rpush pending a"}, 1, 0, "1", 100, "[0]", []string{"pending [a]"}},
		"of another trip": {
			[]string{"hset fence t 5:x e 5 n 8", "rpush pending a", task("a")}, 1, 0, "1", 100, "[0]",
			[]string{"fence [e:5 n:8 t:5:x]", "pending [a]", "t:a [msg:Aa pending_since:1a state:pending]"},
		},
	} {
		s := newShelf(t)
		s.put(c.put...)
		s.want(what, s.fetch(c.most, c.known, c.forward, c.bytes), strings.ReplaceAll(c.want, "~", shelfSince), c.then...)
	}
}

// Where more is due than one trip moves, it says so, of each kind.
func TestFetchSaysThatMoreIsDue(t *testing.T) {
	for _, list := range []string{"scheduled", "retry", "completed"} {
		for n, flag := range map[int]int{99: 0, 100: 2} {
			for paused, ends := range map[int]int{1: -1, 0: -2} { // nothing is said of the time to come where no end was seen
				s := newShelf(t)
				s.put("hset fence t 5:x e 5 n 7")
				if paused == 1 {
					s.put("set paused 1")
				}
				for i := range n {
					s.put(fmt.Sprintf("zadd %s 1 i%d", list, i))
				}
				if got, want := s.fetch(paused, 0, "1", 100), fmt.Sprint([]int{1, ends, paused + flag}); got != want {
					t.Errorf("%d of %s are due, paused %d: the answer is %s, want %s", n, list, paused, got, want)
				}
			}
		}
	}
}

// What asynq says of a task takes what lies beside it along, if asynq's script has not failed;
// nothing of that is done by one that settles nothing.
func TestAsynqIsFencedInAndOut(t *testing.T) {
	const beside = "tries [a:2 1 9 old b:1 1 1 b]"
	for what, c := range map[string]struct {
		source        string
		alone         string
		number, of    string
		want          string
		fence, result string
		beside        []string
	}{
		"it settles what runs alone": {"redis.call('SET', KEYS[1], #KEYS .. #ARGV) return 9", "a", "7", "a", "9", "fence [a: n:7 t:5:x]", "r 21", []string{"tries [b:1 1 1 b]", "suspects [b]"}},
		"it settles another":         {"return {1, 2}", "b", "7", "a", "[1 2]", "fence [a:b n:7 t:5:x]", "", []string{"tries [b:1 1 1 b]", "suspects [b]"}},
		"it settles nothing":         {"return redis.status_reply('OK')", "a", "", "", "OK", "fence [a:a n:7 t:5:x]", "", []string{beside, "suspects [a b]"}},
		"it finds nothing":           {"return redis.error_reply('NOT FOUND')", "a", "7", "a", "NOT FOUND", "fence [a:a n:7 t:5:x]", "", []string{beside, "suspects [a b]"}},
		"it is of another trip":      {"return 9", "a", "6", "a", fencedReply + " the partition has another owner", "fence [a:a n:7 t:5:x]", "", []string{beside, "suspects [a b]"}},
	} {
		s := newShelf(t)
		s.put("hset fence t 5:x n 7 a "+c.alone, "hset tries a 2|1|9|old b 1|1|1|b", "sadd suspects a b")
		answer := s.run(newScript(before+c.source+after), "r q fence tries suspects", "arg", "5:x", c.number, c.of)
		then := append([]string{c.fence}, c.beside...)
		if c.result != "" {
			then = append(then, c.result)
		}
		s.want(what, answer, c.want, then...)
	}
	s := newShelf(t)
	answer := s.run(newScript(before+"return redis.call('SET', KEYS[1], 1)"+after), "r fence tries suspects", "5:x", "", "")
	s.want("no fence", answer, fencedReply+" the partition has another owner")
}

// Numbers of an ingress rise from owner to owner, and a plan that stands is told to each.
func TestPlanNumbers(t *testing.T) {
	s := newShelf(t)
	s.want("no fence", s.run(planScript, "fence tries", "5:x", 7, 0, s.k.task, "a", 3), "[]")
	s.put("hset fence t 5:x e 5 n 7")
	s.want("the store forgot all plans", s.run(planScript, "fence tries", "5:x", 7, 1, s.k.task, "a", 3), "[forgot]", "fence [e:5 n:7 t:5:x]")
	s.put("hset fence r 0")
	plan := func(what, token, answered, want string, then []string, tasks ...any) {
		t.Helper()
		s.want(what, s.run(planScript, "fence tries", append([]any{token, answered, 2, s.k.task}, tasks...)...), want, then...)
	}
	first := []string{"fence [e:5 n:7 r:2 t:5:x]", "tries [a:0 0 0 to 5-1 3 b:0 0 0 to 5-2 4]"}
	s.want("two", s.run(planScript, "fence tries", "5:x", 7, 0, s.k.task, "a", 3, "b", 4), "[5-1 3 5-2 4]", slices.Clone(first)...)
	s.want("the store forgot a plan", s.run(planScript, "fence tries", "5:x", 7, 3, s.k.task, "c", 1), "[forgot]", slices.Clone(first)...)
	plan("another's", "4:w", "7", "[]", first, "c", 1)
	plan("the store forgot", "5:x", "8", "[forgot]", first, "c", 1)
	s.put("hset fence t 6:y e 6 n 8", "hset tries c 2|1|9|sent|to|me|3")
	plan("the next owner thinks otherwise", "6:y", "7", "[5-2 4 6-3 1]",
		[]string{"fence [e:6 n:8 r:3 t:6:y]", "tries [a:0 0 0 to 5-1 3 b:0 0 0 to 5-2 4 c:0 0 0 to 6-3 1]"}, "b", 9, "c", 1)
}

// A number is pushed once, numbers are compared as numbers and by their epochs first, and a task
// whose id is taken gets another.
func TestRoutePushesOnce(t *testing.T) {
	s := newShelf(t)
	route := func(what, want string, then []string, tasks ...any) {
		t.Helper()
		s.want(what, s.run(routeScript, "pending marks", append([]any{"in", s.k.task, ""}, tasks...)...), want, then...)
	}
	a, b := "t:a [msg:A pending_since:~ state:pending]", "t:b [msg:B pending_since:~ state:pending]"
	route("two, and the first again", "2", []string{"marks [in:5-10]", "pending [b a]", a, b},
		"5-9", "a", "A", "a'", "+", "5-10", "b", "B", "b'", "+", "5-9", "a", "A", "a'", "+")
	route("again", "0", []string{"marks [in:5-10]", "pending [b a]", a, b}, "5-9", "a", "A", "a'", "+", "5-10", "b", "B", "b'", "+")
	route("an older owner", "0", []string{"marks [in:5-10]", "pending [b a]", a, b}, "4-11", "c", "C", "c'", "+")
	route("the next owner, with an id that is taken", "1",
		[]string{"marks [in:10-1]", "pending [a' b a]", a, b, "t:a' [msg:X+ pending_since:~ state:pending]"}, "10-1", "a", "X", "a'", "+")
}

// A full store refuses producers, and neither owners nor what asynq says of tasks: that is what
// empties it.
func TestAFullStoreIsWorked(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := &shelf{t, server.Client(), keysOf(redistest.Name(t))}
	s.put("hset fence t 5:x e 5 n 7", "hset t:a msg A", "lpush pending b", "hset t:b msg B tried 1", "hset tries b 1|0|0|why")
	server.Config("maxmemory", "1")
	if got := s.run(newScript("return redis.call('SET', KEYS[1], 1)"), "r"); !strings.Contains(got, "OOM") {
		t.Fatalf("the store is not full: %s", got)
	}
	if got := s.fetch(1, 0, "1", 1); !strings.HasPrefix(got, "[1 -2 0 b B  ") || !strings.HasSuffix(got, " 1 0 0 why]") {
		t.Errorf("fetch: %s", got)
	}
	if got := s.fetch(1, 0, "0", 1); !strings.HasPrefix(got, "[1 -2 0 b B  ") || !strings.HasSuffix(got, " 1 0 0 why]") {
		t.Errorf("fetch again, since the answer was lost: %s", got)
	}
	if got := s.settle("8", "7", "", "0"); got != "[1]" {
		t.Errorf("settle: %s", got)
	}
	source := before + "return redis.call('HSET', KEYS[1], 'msg', ARGV[1])" + after
	if got := s.run(newScript(source), "t:a fence tries suspects", "A2", "5:x", "8", ""); got != "0" {
		t.Errorf("asynq's own: %s", got)
	}
	if got := s.run(planScript, "fence tries", "5:x", 8, 0, s.k.task, "a", 3); got != "[5-1 3]" {
		t.Errorf("plan: %s", got)
	}
	push := func(force string) string {
		return s.run(routeScript, "pending marks", "in", s.k.task, force, "5-1", "c", "C", "c'", "+")
	}
	if got := push(""); !strings.Contains(got, "OOM") {
		t.Errorf("a push: %s", got)
	}
	if got := push("1"); got != "1" {
		t.Errorf("a push that empties the store: %s", got)
	}
	if got := s.run(closeScript, "fence pending active lease", "5:x", "5", s.k.task); got != "[1]" {
		t.Errorf("close: %s", got)
	}
	if got := s.run(openScript, openNames, "6:y", "6", s.k.task, 3); !strings.HasPrefix(got, "[1 9 ") {
		t.Errorf("open: %s", got)
	}
}
