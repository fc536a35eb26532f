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

const openNames = "fence pending active lease tries suspects archived aggregation_sets groups"

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
			nil, 3, "[1 1 [a b] []]",
			[]string{"fence [a: e:5 n:1 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it closed": {
			[]string{"hset fence t '' e 4 n 7 a b"}, 3, "[1 8 [a b] []]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it died": {
			[]string{"hset fence t 4:w e 4 n 7"}, 3, "[1 8 [a b] []]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it died, and what ran alone had ended": {
			[]string{"hset fence t 4:w e 4 n 7 a z", "del suspects"}, 3, "[1 8 [a b] []]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending]", "suspects [a b]", "tries [b:5 1 99 why]"},
		},
		"it died while one ran alone": {
			[]string{"hset fence t 4:w e 4 n 7 a b"}, 3, "[1 8 [a b] []]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b [msg:B pending_since:~ state:pending tried:1]", "suspects [a b]", "tries [b:5 2 99 why]"},
		},
		"it died while one ran alone, once too often": {
			[]string{"hset fence t 4:w e 4 n 7 a b"}, 2, "[1 8 [a] [b its peer crashed 2 times while it ran alone]]",
			[]string{
				"fence [a: e:5 n:8 t:5:x]", "archived [b:1700000000.000]", "suspects [a]", "pending [e d c a]",
				"t:b [msg:B:+its peer crashed 2 times while it ran alone state:archived]",
			},
		},
		"it died while one ran alone, once too often, that waited for nothing": { // who runs it again does so without the former crashes
			[]string{"hset fence t 4:w e 4 n 7 a b", "hset tries b 5|1|0|why"}, 2, "[1 8 [a] [b its peer crashed 2 times while it ran alone]]",
			[]string{
				"fence [a: e:5 n:8 t:5:x]", "archived [b:1700000000.000]", "suspects [a]", "pending [e d c a]",
				"t:b [msg:B:+its peer crashed 2 times while it ran alone state:archived]",
			},
		},
		"what ran alone once too often was deleted by hand": {
			[]string{"hset fence t 4:w e 4 n 7 a b", "del t:b"}, 2, "[1 8 [a] []]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "suspects [a]"},
		},
		"the key of what ran alone holds something else": {
			[]string{"hset fence t 4:w e 4 n 7 a b", "del t:b", "set t:b x"}, 3, "[1 8 [a b] []]",
			[]string{"fence [a: e:5 n:8 t:5:x]", "t:b x", "suspects [a b]", "tries [b:5 2 99 why]"},
		},
		"it died while one ran alone that was never tried": {
			[]string{"hset fence t 4:w e 4 n 7 a b", "del tries"}, 3, "[1 8 [a b] []]",
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
		s.want(what, s.run(openScript, openNames, "5:x", "5", s.k.task, c.limit, s.k.group), c.want, then...)
	}
}

// Where a key holds something else an open fails before it has charged or moved anything: it is said
// again, and each time would charge once more.
func TestAnOpenThatFailsChangesNothing(t *testing.T) {
	for _, key := range []string{"pending", "lease", "archived", "suspects", "aggregation_sets", "groups"} {
		s := newShelf(t)
		s.put("hset fence t 4:w e 4 n 7 a b", "rpush active b", "hset t:b msg B state active tried 1", "hset tries b 5|1|99|why", "set "+key+" x")
		then := s.holds()
		for range 2 {
			got := s.run(openScript, openNames, "5:x", "5", s.k.task, 2, s.k.group)
			if !strings.Contains(got, "WRONGTYPE") {
				t.Errorf("%s holds something else: the answer is %s", key, got)
			}
			s.want(key+" holds something else", "", "", slices.Clone(then)...)
		}
	}
}

// sets puts sets that asynq took out of groups: one of them is empty, and one holds something else, as
// does the group of another.
func (s *shelf) sets() {
	s.put("zadd g:g 3 c", "zadd g:g:1 1 a 2 b", "zadd g:x:y:2 4 d", "set g:z:4 x", "set g:q x", "zadd g:q:5 1 e")
	for i, set := range []string{"g:1", "x:y:2", "none:3", "z:4", "q:5"} {
		s.client.ZAdd(s.t.Context(), s.k.sets, redis.Z{Score: float64(i + 1), Member: s.k.group + set})
	}
}

// An owner puts back what the last one has taken out of groups, and lists these again. One that is said
// again does not: the set may be its own.
func TestOpenPutsSetsBack(t *testing.T) {
	s := newShelf(t)
	s.put("hset fence t 4:w e 4 n 7")
	s.sets()
	then := []string{
		"fence [a: e:5 n:8 t:5:x]", "groups [g x:y]", "g:g [a:1.000 b:2.000 c:3.000]", "g:x:y [d:4.000]",
		"g:z:4 x", "g:q x", "g:q:5 [e:1.000]", fmt.Sprintf("aggregation_sets [%sz:4:4.000 %[1]sq:5:5.000]", s.k.group),
	}
	s.want("the last owner's", s.run(openScript, openNames, "5:x", "5", s.k.task, 3, s.k.group), "[1 8 [] []]", slices.Clone(then)...)
	s.put("del g:z:4", "zadd g:z:4 1 f")
	then[4] = "g:z:4 [f:1.000]"
	s.want("its own", s.run(openScript, openNames, "5:x", "5", s.k.task, 3, s.k.group), "[1 8 [] []]", slices.Clone(then)...)
}

// Of sets that nothing came of asynq's own script does not list the groups.
func TestSetsAreListedAgain(t *testing.T) {
	s := newShelf(t)
	s.put("hset fence t 5:x e 5 n 7")
	s.sets()
	names := "aggregation_sets groups fence tries suspects"
	s.want("those that are over", s.run(regroupScript, names, s.k.group, 1, "5:x", "", "", "0"), "0",
		"fence [e:5 n:7 t:5:x]", "groups [g]", "g:g [a:1.000 b:2.000 c:3.000]", "g:x:y:2 [d:4.000]", "g:z:4 x", "g:q x", "g:q:5 [e:1.000]",
		fmt.Sprintf("aggregation_sets [%sx:y:2:2.000 %[1]snone:3:3.000 %[1]sz:4:4.000 %[1]sq:5:5.000]", s.k.group))
}

// An open that is late, or said again, changes nothing: of an older epoch, of the same, or of the
// token that stands.
func TestOpenIsOfTheNewest(t *testing.T) {
	for token, c := range map[string]struct{ epoch, want string }{
		"9:w": {"9", "[1 7 [] []]"}, "9:x": {"9", "[0 9]"}, "8:w": {"8", "[0 9]"}, "10:x": {"10", "[1 8 [a] []]"},
	} {
		s := newShelf(t)
		s.put("hset fence t 9:w e 9 n 7", "rpush active a", "zadd lease 1 a", "hset t:a msg A state active")
		then := s.holds()
		if token == "10:x" { // numbers, not text
			then = []string{"fence [a: e:10 n:8 t:10:x]", "pending [a]", "t:a [msg:A pending_since:~ state:pending]", "suspects [a]"}
		}
		s.want(token, s.run(openScript, openNames, token, c.epoch, s.k.task, 3, s.k.group), c.want, then...)
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
		answer := s.run(newScript(before+c.source+after), "r q fence tries suspects", "arg", "5:x", c.number, c.of, "0")
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

// asynq's scripts are not rolled back either: where a key holds something else, they do not begin. What is
// not active any more gets no lease by them.
func TestAsynqLosesNothingByAKey(t *testing.T) {
	source := `redis.call('LREM', KEYS[1], 0, ARGV[1]) redis.call('ZREM', KEYS[2], ARGV[1]) redis.call('ZADD', KEYS[3], 1, ARGV[1]) return 1`
	for _, goes := range []string{"retry", "archived", "completed"} {
		for _, key := range []string{"lease", goes} {
			s := newShelf(t)
			s.put("hset fence t 5:x n 7 a a", "rpush active a", "set "+key+" x")
			then := s.holds()
			if got := s.run(newScript(before+source+after), "active lease "+goes+" fence tries suspects", "a", "5:x", "7", "a", "0"); !strings.Contains(got, "WRONGTYPE") {
				t.Errorf("%s of what becomes %s: the answer is %s", key, goes, got)
			}
			s.want(key, "", "", then...)
		}
	}
	s := newShelf(t)
	s.put("hset fence t 5:x n 7", "set pending x", "rpush active a", "zadd lease 1 a")
	then := s.holds()
	if got := s.run(newScript(before+source+after), "active lease pending fence tries suspects", "a", "5:x", "7", "a", "0"); !strings.Contains(got, "WRONGTYPE") {
		t.Errorf("pending of what is requeued: the answer is %s", got)
	}
	s.want("pending", "", "", then...)
	s = newShelf(t)
	s.put("hset fence t 5:x n 7 a z", "rpush active b")
	s.want("what has ended", s.run(newScript(before+"return 1"+after), "active lease fence tries suspects", "a", "5:x", "7", "a", "0"), "1", "active [b]", "fence [a:z n:7 t:5:x]")
	s.want("what was deleted", s.run(newScript(before+"return 1"+after), "active lease fence tries suspects", "b", "5:x", "7", "b", "0"), "1",
		"active [b]", "fence [a:z n:7 t:5:x]", "lease [b:0.000]")
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
	route := func(what, want string, then []string, epoch int, tasks ...any) {
		t.Helper()
		s.want(what, s.run(routeScript, "pending marks", append([]any{"in", s.k.task, "", epoch}, tasks...)...), want, then...)
	}
	a, b := "t:a [msg:A pending_since:~ state:pending]", "t:b [msg:B pending_since:~ state:pending]"
	route("two, and the first again", "[2]", []string{"marks [in:5-10]", "pending [b a]", a, b},
		5, "5-9", "a", "A", "a'", "+", "", "5-10", "b", "B", "b'", "+", "", "5-9", "a", "A", "a'", "+", "")
	route("again", "[0]", []string{"marks [in:5-10]", "pending [b a]", a, b}, 5, "5-9", "a", "A", "a'", "+", "", "5-10", "b", "B", "b'", "+", "")
	route("an older owner", "[-1 5]", []string{"marks [in:5-10]", "pending [b a]", a, b}, 4, "4-11", "c", "C", "c'", "+", "")
	route("the plan of an older owner, again", "[0]", []string{"marks [in:5-10]", "pending [b a]", a, b}, 10, "4-11", "c", "C", "c'", "+", "")
	route("a plan from before epochs began anew", "[-1 11]", []string{"marks [in:5-10]", "pending [b a]", a, b},
		10, "10-1", "c", "C", "c'", "+", "", "11-1", "d", "D", "d'", "+", "")
	s.put("set lock1 a", "set lock2 z", "rpush lock3 x")
	s.client.Expire(t.Context(), s.key("lock1"), time.Hour)
	x := func(id, lock string) string { return "t:" + id + " [msg:X+ pending_since:~ state:pending" + lock + "]" }
	of := func(lock string) string { return " unique_key:" + s.key(lock) }
	route("the next owner, with ids that are taken", "[4]",
		[]string{"marks [in:10-4]", "pending [a4 a3 a2 a1 b a]", a, b, x("a1", of("lock1")), x("a2", of("lock2")), x("a3", of("lock3")), x("a4", ""), "lock1 a1", "lock2 z", "lock3 [x]"},
		10, "10-1", "a", "X", "a1", "+", s.key("lock1"), "10-2", "a", "X", "a2", "+", s.key("lock2"), "10-3", "a", "X", "a3", "+", s.key("lock3"),
		"10-4", "a", "X", "a4", "+", "")
	if ttl := s.client.TTL(t.Context(), s.key("lock1")).Val(); ttl != time.Hour {
		t.Errorf("the lock of a task that has another id ends in %v", ttl)
	}
}

// Where the queue holds something else nothing of a task is written.
func TestRouteToNoQueue(t *testing.T) {
	s := newShelf(t)
	s.put("set pending x")
	if got := s.run(routeScript, "pending marks", "in", s.k.task, "", 5, "5-9", "a", "A", "a'", "+", ""); !strings.Contains(got, "WRONGTYPE") {
		t.Errorf("the answer is %s", got)
	}
	s.want("no queue", "", "", "pending x")
}

// A full store refuses producers, and neither owners nor what asynq says of tasks: that is what
// empties it.
func TestAFullStoreIsWorked(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := &shelf{t, server.Client(), keysOf(redistest.Name(t))}
	s.put("hset fence t 5:x e 5 n 7", "hset t:a msg A", "lpush pending b z", "hset t:b msg B tried 1", "hset tries b 1|0|0|why")
	server.Config("maxmemory", "1")
	if got := s.run(newScript("return redis.call('SET', KEYS[1], 1)"), "r"); !strings.Contains(got, "OOM") {
		t.Fatalf("the store is not full: %s", got)
	}
	if got := s.fetch(1, 0, "1", 1); !strings.HasPrefix(got, "[1 -2 0 b B  ") || !strings.HasSuffix(got, " 1 0 0 why]") {
		t.Errorf("fetch: %s", got)
	}
	if got := s.fetch(1, 0, "0", 1); !strings.HasPrefix(got, "[1 -2 4 b B  ") || !strings.HasSuffix(got, " 1 0 0 why]") {
		t.Errorf("fetch again, since the answer was lost: %s", got)
	}
	if got := s.settle("8", "7", "", "0"); got != "[1]" {
		t.Errorf("settle: %s", got)
	}
	source := before + "return redis.call('HSET', KEYS[1], 'msg', ARGV[1])" + after
	if got := s.run(newScript(source), "t:a fence tries suspects", "A2", "5:x", "8", "", "0"); got != "0" {
		t.Errorf("asynq's own: %s", got)
	}
	if got := s.run(planScript, "fence tries", "5:x", 8, 0, s.k.task, "a", 3); got != "[5-1 3]" {
		t.Errorf("plan: %s", got)
	}
	push := func(force string) string {
		return s.run(routeScript, "pending marks", "in", s.k.task, force, 5, "5-1", "c", "C", "c'", "+", "")
	}
	if got := push(""); !strings.Contains(got, "OOM") {
		t.Errorf("a push: %s", got)
	}
	if got := push("1"); got != "[1]" {
		t.Errorf("a push that empties the store: %s", got)
	}
	if got := s.run(openScript, openNames, "6:y", "6", s.k.task, 3, s.k.group); !strings.HasPrefix(got, "[1 9 ") {
		t.Errorf("open, of one who has died at his work: %s", got)
	}
	if got := s.run(closeScript, "fence pending active lease", "6:y", "6", s.k.task); got != "[1]" {
		t.Errorf("close: %s", got)
	}
}

// Who lost a right while he worked gives no task back twice.
func TestNobodyGivesBackWhatHeMayNotTakeOut(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	admin := server.Client()
	for _, right := range []string{"-ltrim", "-zrem"} {
		k := keysOf(QueueOf(redistest.Name(t)+right, 0))
		admin.HSet(t.Context(), k.fence, "t", "5:x", "e", 5, "n", 7)
		admin.LPush(t.Context(), k.active, "a")
		admin.ZAdd(t.Context(), k.lease, redis.Z{Score: 1, Member: "a"})
		admin.HSet(t.Context(), k.task+"a", "msg", "A", "state", "active")
		peer := lacking(t, server, right)
		for range 2 {
			err := closeScript.Run(t.Context(), peer, []string{k.fence, k.pending, k.active, k.lease}, "5:x", 5, k.task).Err()
			if err == nil || !redisconfig.Forbidden(err) {
				t.Errorf("%s: %v", right, err)
			}
			if in, out := admin.LLen(t.Context(), k.active).Val(), admin.LLen(t.Context(), k.pending).Val(); in != 1 || out != 0 {
				t.Errorf("%s: active has %d tasks and pending %d, want 1 and 0", right, in, out)
			}
		}
	}
}

// lacking returns a client of a user who has all rights but right, as in "-ltrim".
func lacking(t *testing.T, server *redistest.Process, right string) *redis.Client {
	t.Helper()
	user := "without" + right
	if err := server.Client().Do(t.Context(), "acl", "setuser", user, "on", ">secret", "~*", "+@all", right).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "secret"})
	t.Cleanup(func() { client.Close() })
	return client
}
