package asynqsource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

const fetchNames = "fence pending active lease paused scheduled retry completed tries groups"

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
		"one is there twice": { // its hash was deleted, and it was enqueued again
			[]string{fence, "rpush pending b a c a b", task("a"), task("b"), task("c")}, 9, 0, "0", 100, "[1 -1 0 b Bb 1b a Aa 1a c Cc 1c]",
			[]string{
				ours, "active [c a b]", "lease [a:1700000030.000 b:1700000030.000 c:1700000030.000]",
				"t:a [msg:Aa state:active]", "t:b [msg:Bb state:active]", "t:c [msg:Cc state:active]",
			},
		},
		"one is active": {
			[]string{fence, "rpush pending b a", "rpush active z a", "hset t:a msg Aa state active", task("b")}, 9, 2, "0", 100, "[1 -1 0 b Bb 1b]",
			[]string{
				ours, "active [b z a]", "lease [b:1700000030.000]", "t:a [msg:Aa state:active]", "t:b [msg:Bb state:active]",
			},
		},
		"one is said to be active and is not": {
			[]string{fence, "rpush pending a", "hset t:a msg Aa state active"}, 9, 0, "0", 100, "[1 -1 0 a Aa ]",
			[]string{ours, "active [a]", "lease [a:1700000030.000]", "t:a [msg:Aa state:active]"},
		},
		"the key of one holds something else": {
			[]string{fence, "rpush pending c b a", task("a"), "set t:b x", task("c")}, 9, 0, "0", 100, "[1 -1 0 a Aa 1a c Cc 1c]",
			[]string{
				ours, "active [c a]", "lease [a:1700000030.000 c:1700000030.000]", "t:a [msg:Aa state:active]", "t:b x", "t:c [msg:Cc state:active]",
			},
		},
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
			"[1 -2 4 a Aa 1a c Cc 1c]",
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
				"active [c a]", "lease [a:1700000030.000 c:1700000030.000]", "g:grp [b:1700000000.000]", "groups [grp]", "t:a [msg:Aa state:active]",
				"t:b [group:grp msg:Bb pending_since:1b state:aggregating]", "t:c [group: msg:Cc state:active]",
				"t:d [msg:Dd pending_since:~ state:pending]", "t:h [msg:Hh pending_since:1h state:pending]",
			},
		},
		"what is due has a key that holds something else": {
			[]string{fence, "zadd scheduled 1 a 2 b", task("b"), "set t:a x"}, 2, 0, "1", 100, "[1 -1 0 b Bb ~]",
			[]string{ours, "active [b]", "lease [b:1700000030.000]", "t:a x", "t:b [msg:Bb state:active]"},
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

// A script that fails is not rolled back: where a key holds something else, nothing is lost of
// what it had in hand.
func TestAFetchThatFailsLosesNothing(t *testing.T) {
	task := func(id string) string { return "hset t:" + id + " msg M state pending pending_since 1" }
	for what, c := range map[string]struct {
		put  []string
		then []string
	}{
		"the tries": {
			[]string{"set tries x", "rpush pending b a"},
			[]string{"pending [b a]", "tries x"},
		},
		"the queue, with a task that is due": {
			[]string{"set pending x", "zadd retry 1 a", "zadd scheduled 1 b"},
			[]string{"pending x", "retry [a:1.000]", "scheduled [b:1.000]"},
		},
		"a group": {
			[]string{"hset t:a group g", "set g:g x", "zadd retry 1 a"},
			[]string{"g:g x", "retry [a:1.000]"},
		},
	} {
		s := newShelf(t)
		s.put("hset fence t 5:x e 5 n 7", task("a"), task("b"))
		s.put(c.put...)
		for _, forward := range []string{"0", "1"} {
			if got := s.fetch(2, 0, forward, 100); forward == "1" && !strings.Contains(got, "WRONGTYPE") {
				t.Errorf("%s: the answer is %s", what, got)
			}
		}
		held := s.holds()
		for _, want := range c.then {
			if !slices.Contains(held, want) {
				t.Errorf("%s: it holds\n\t%s\nwant %s", what, strings.Join(held, "\n\t"), want)
			}
		}
	}
}

// Who lost a right while he worked takes no task that he could not put where it goes.
func TestNobodyFetchesWhatHeMayNotKeep(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	for _, right := range []string{"-lpush", "-hset", "-hdel"} {
		name := redistest.Name(t)
		admin := server.Client()
		k := keysOf(QueueOf(name, 0))
		admin.HSet(t.Context(), k.fence, "t", "5:x", "e", 5, "n", 7)
		admin.LPush(t.Context(), k.pending, "a")
		admin.HSet(t.Context(), k.task+"a", "msg", "A", "state", "pending")
		peer := lacking(t, server, right)
		err := fetchScript.Run(t.Context(), peer, []string{k.fence, k.pending, k.active, k.lease, k.paused, k.scheduled, k.retry, k.completed, k.tries, k.groups},
			"5:x", 7, 1, 0, k.task, "0", k.group, fetchBytes).Err()
		if err == nil || !redisconfig.Forbidden(err) {
			t.Errorf("%s: %v", right, err)
		}
		if n := admin.LLen(t.Context(), k.pending).Val() + admin.LLen(t.Context(), k.active).Val(); n != 1 {
			t.Errorf("%s: the queue has %d tasks, want the one", right, n)
		}
		admin.Del(t.Context(), k.pending, k.active, k.fence, k.task+"a")
	}
}
