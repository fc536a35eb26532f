package redissource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

// An ingressCall is one script as an owner at base 3 and position 3 sends it.
type ingressCall struct {
	name string
	sc   script
	keys []string
	args []any // the token first, then the base
}

// scripts returns the calls of an owner that is stopped, with one line in the list. A
// plan for it stands where one is needed.
func (b *inbox) scripts(s *ingressStream, l string) []ingressCall {
	k := KeysOf(b.name, 0)
	plan := []string{s.fence, s.plan, b.unit.List}
	return []ingressCall{
		{"move", ingressMoveScript, []string{s.fence, b.unit.List, k.Pending, k.Fence, k.Dead},
			[]any{s.token.String(), s.base, 1, "R", l, l, s.era, 1, 1, 1, 0, "envelope"}},
		{"plan", ingressPlanScript, plan, []any{s.token.String(), s.base, 1, "sum", "0", 1, "R", l, l}},
		{"trim", ingressTrimScript, plan, []any{s.token.String(), s.base, 1, "R", l, l}},
		{"close", ingressCloseScript, plan[:1], []any{s.token.String()}},
	}
}

// Each script compares what it is told: the token, the base and the run of the store.
// Nothing is done where one of them differs.
func TestIngressScriptsCompare(t *testing.T) {
	ctx := t.Context()
	b := newInbox(t, redistest.Single(t, redistest.New(t)), 1)
	b.push(inboxLine("ann", 0), inboxLine("ann", 1), inboxLine("ann", 2))
	s := b.open(5)
	b.arrived(3)
	s.stop()
	<-s.ended
	l := inboxLine("ann", 3)
	b.push(l)
	k := KeysOf(b.name, 0)
	store := func() string {
		return fmt.Sprint(b.fence(), b.client.HGetAll(ctx, s.plan).Val(), b.client.LLen(ctx, b.unit.List).Val(),
			b.client.LLen(ctx, k.Pending).Val())
	}
	for _, c := range []struct {
		what  string
		arg   int
		value any
		run   string
		want  string
	}{
		{"an older token", 0, tokenOf(4).String(), "", "STALE"},
		{"a newer token", 0, tokenOf(6).String(), "", "STALE"},
		{"another session", 0, "5:another", "", "STALE"},
		{"no token", 0, "", "", "STALE"},
		{"lines that were moved", 1, 2, "", "MOVED 3]"},
		{"a base the store has forgotten", 1, 4, "", "FORGOT"},
		{"another run of the store", 0, s.token.String(), "another", "FORGOT"},
	} {
		for _, call := range b.scripts(s, l) {
			if call.name == "close" && c.want != "STALE" {
				continue
			}
			b.client.Del(ctx, s.plan)
			if call.name == "trim" {
				b.client.HSet(ctx, s.plan, "k", 1)
			}
			run := b.fence()["r"]
			if c.run != "" {
				b.client.HSet(ctx, s.fence, "r", c.run)
			}
			call.args[c.arg] = c.value
			before := store()
			answer, err := call.sc.Run(ctx, b.client, call.keys, call.args...).Result()
			if got := fmt.Sprint(answer); err != nil || !strings.HasPrefix(got, "["+c.want) && got != "0" {
				t.Errorf("%s: %s: %v, %v", call.name, c.what, answer, err)
			}
			if after := store(); after != before {
				t.Errorf("%s: %s: %s became %s", call.name, c.what, before, after)
			}
			b.client.HSet(ctx, s.fence, "r", run)
		}
	}
	// Nor where the fence was lost.
	fence := b.fence()
	b.client.Del(ctx, s.fence)
	for _, call := range b.scripts(s, l) {
		before := store()
		answer, err := call.sc.Run(ctx, b.client, call.keys, call.args...).Result()
		if got := fmt.Sprint(answer); err != nil || got != "[STALE]" && got != "0" || store() != before {
			t.Errorf("%s: no fence: %v, %v", call.name, answer, err)
		}
	}
	b.client.HSet(ctx, s.fence, fence)
	// And with nothing that differs each does what it is for.
	b.client.Del(ctx, s.plan)
	for i, want := range []string{"[OK 4]", "[PLAN 1 sum 5000 1 0]", "[OK 4]", "1"} {
		b.client.HSet(ctx, s.fence, "b", 3)
		b.client.LPush(ctx, b.unit.List, l)
		call := b.scripts(s, l)[i]
		if answer, err := call.sc.Run(ctx, b.client, call.keys, call.args...).Result(); err != nil || fmt.Sprint(answer) != want {
			t.Errorf("%s: %v, %v, want %s", call.name, answer, err, want)
		}
	}
}

// The lines were read without a fence: that the first and the last of them still lie where they
// did, and what they were made with, is compared too. One difference is enough.
func TestIngressScriptsCompareLines(t *testing.T) {
	ctx := t.Context()
	b := newInbox(t, redistest.Single(t, redistest.New(t)), 1)
	s := b.open(5)
	s.stop()
	<-s.ended
	l := inboxLine("ann", 0)
	b.push(l)
	k := KeysOf(b.name, 0)
	store := func() string {
		return fmt.Sprint(b.fence(), b.client.HGetAll(ctx, s.plan).Val(), b.client.LLen(ctx, b.unit.List).Val(), b.client.LLen(ctx, k.Pending).Val())
	}
	for _, c := range []struct {
		script, what string
		arg          int
		value        any
		want         string
	}{
		{"move", "another first line", 4, "other", "CHANGED"},
		{"move", "another last line", 5, "other", "CHANGED"},
		{"move", "ids of another era", 6, s.era - 1, "FORGOT"},
		{"plan", "another first line", 7, "other", "CHANGED"},
		{"plan", "another last line", 8, "other", "CHANGED"},
		{"trim", "another first line", 4, "other", "CHANGED"},
		{"trim", "another last line", 5, "other", "CHANGED"},
		{"trim", "a plan of other lines", 2, 2, "FORGOT"},
	} {
		b.client.Del(ctx, s.plan)
		if c.script == "trim" {
			b.client.HSet(ctx, s.plan, "k", 1)
		}
		for _, call := range b.scripts(s, l) {
			if call.name != c.script {
				continue
			}
			call.args[c.arg] = c.value
			before := store()
			answer, err := call.sc.Run(ctx, b.client, call.keys, call.args...).Result()
			if err != nil || fmt.Sprint(answer) != "["+c.want+"]" {
				t.Errorf("%s: %s: %v, %v, want %s", c.script, c.what, answer, err, c.want)
			}
			if after := store(); after != before {
				t.Errorf("%s: %s: %s became %s", c.script, c.what, before, after)
			}
		}
	}
	// Nor does a trim take what no plan stands for.
	b.client.Del(ctx, s.plan)
	trim := b.scripts(s, l)[2]
	if answer, err := trim.sc.Run(ctx, b.client, trim.keys, trim.args...).Result(); err != nil || fmt.Sprint(answer) != "[FORGOT]" {
		t.Errorf("trim: no plan: %v, %v, want [FORGOT]", answer, err)
	}
	// An open that comes late, or again, brings an era that is over, or that has begun.
	b.client.HSet(ctx, s.plan, "k", 1)
	before := store()
	for _, era := range []int64{s.era - 1, s.era} {
		if err := ingressOpenScript.Run(ctx, b.client, []string{s.fence, s.plan}, s.token.String(), s.token.Epoch.String(), era, "1").Err(); err != nil {
			t.Fatal(err)
		}
		if after := store(); after != before {
			t.Errorf("an open with era %d: %s became %s", era, before, after)
		}
	}
}

// oldestFirst returns the lines of the list.
func (b *inbox) oldestFirst() []string {
	b.t.Helper()
	lines := b.client.LRange(b.t.Context(), b.unit.List, 0, -1).Val()
	if b.unit.Oldest == Right {
		slices.Reverse(lines)
	}
	return lines
}

// Of a list that holds more, the scripts compare and take as many lines as they are told, from
// the side of the oldest.
func TestIngressScriptsTakeTheOldest(t *testing.T) {
	ctx := t.Context()
	for _, side := range []Side{Right, Left} {
		b := newInbox(t, redistest.Single(t, redistest.New(t)), 1)
		b.unit.Oldest = side
		s := b.open(5)
		s.stop()
		<-s.ended
		all := []string{"a", "b", "c", "d", "e"}
		k, plan := KeysOf(b.name, 0), []string{s.fence, s.plan, b.unit.List}
		for _, c := range []struct {
			name, want string
			left       []string
			base, plan string // afterwards
			sc         script
			keys       []string
			args       func(last string) []any
		}{
			{
				"move", "[OK 10]", all[3:], "10", "map[k:3]", ingressMoveScript, []string{s.fence, b.unit.List, k.Pending, k.Fence, k.Dead},
				func(last string) []any {
					return []any{s.token.String(), 7, 3, s.side(), "a", last, s.era, 1, 1, 3, 0, "x", "y", "z"}
				},
			}, {
				"plan", "[PLAN 3 sum 5000 4 1 0 2]", all, "7", "map[g:5000 k:3 p:4 s:sum t:1 0 2]", ingressPlanScript, plan,
				func(last string) []any { return []any{s.token.String(), 7, 3, "sum", "1 0 2", 4, s.side(), "a", last} },
			}, {
				"trim", "[OK 10]", all[3:], "10", "map[]", ingressTrimScript, plan,
				func(last string) []any { return []any{s.token.String(), 7, 3, s.side(), "a", last} },
			},
		} {
			b.client.Del(ctx, b.unit.List, s.plan)
			b.push(all...)
			b.client.HSet(ctx, s.fence, "b", 7)
			if c.name != "plan" {
				b.client.HSet(ctx, s.plan, "k", 3)
			}
			for _, last := range []string{"a", "b", "d", "e", "c"} {
				want, left, base := "[CHANGED]", all, "7"
				if last == "c" {
					want, left, base = c.want, c.left, c.base
				}
				got, err := c.sc.Run(ctx, b.client, c.keys, c.args(last)...).Result()
				if err != nil || fmt.Sprint(got) != want {
					t.Errorf("%v: %s up to %s: %v, %v, want %s", side, c.name, last, got, err, want)
				}
				if lines := b.oldestFirst(); !slices.Equal(lines, left) || b.fence()["b"] != base {
					t.Errorf("%v: %s up to %s: %q are left at base %s, want %q at %s", side, c.name, last, lines, b.fence()["b"], left, base)
				}
			}
			// Said again it finds that they were moved: numbers are compared, not text.
			b.client.HSet(ctx, s.fence, "b", 10)
			if got, err := c.sc.Run(ctx, b.client, c.keys, c.args("c")...).Result(); err != nil || fmt.Sprint(got) != "[MOVED 10]" {
				t.Errorf("%v: %s again: %v, %v", side, c.name, got, err)
			}
			if got := fmt.Sprint(b.client.HGetAll(ctx, s.plan).Val()); got != c.plan {
				t.Errorf("%v: %s: the plan is %s, want %s", side, c.name, got, c.plan)
			}
		}
	}
}

// A plan that stands is told whoever asks, and whatever he would have; that none does, too.
func TestIngressPlanIsAsked(t *testing.T) {
	ctx := t.Context()
	b := newInbox(t, redistest.New(t), 1)
	s := b.open(5)
	s.stop()
	<-s.ended
	b.push("a", "b")
	keys := []string{s.fence, s.plan, b.unit.List}
	for _, c := range []struct {
		stands bool
		lines  int
		want   string
	}{
		{false, 0, "[NONE]"},
		{true, 0, "[PLAN 3 sum 4001 4 1 0 2]"},
		{true, 2, "[PLAN 3 sum 4001 4 1 0 2]"},
		{false, 2, "[PLAN 2 mine 5000 1 0 0]"},
	} {
		b.client.Del(ctx, s.plan)
		if c.stands {
			b.client.HSet(ctx, s.plan, "k", 3, "s", "sum", "g", 4001, "p", 4, "t", "1 0 2")
		}
		args := []any{s.token.String(), 0, c.lines, "mine", "0 0", 1, "R", "a", "b"}
		if got, err := ingressPlanScript.Run(ctx, b.client, keys, args...).Result(); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("a plan stands %v, for %d lines: %v, %v, want %s", c.stands, c.lines, got, err, c.want)
		}
	}
}

// A key that holds something else fails the script before it has pushed anything: the lines stay in
// the list, and what was pushed of them would be pushed again at every attempt. Where nothing goes
// to a key it may hold what it likes.
func TestIngressMoveFailsWhole(t *testing.T) {
	ctx := t.Context()
	for what, key := range map[string]func(Keys) string{
		"log": func(k Keys) string { return k.Pending }, "letters": func(k Keys) string { return k.Dead },
	} {
		b := newInbox(t, redistest.Single(t, redistest.New(t)), 2)
		s := b.open(5)
		s.stop()
		<-s.ended
		b.push("1", "2", "3")
		first, second := KeysOf(b.name, 0), KeysOf(b.name, 1)
		keys := []string{s.fence, b.unit.List, first.Pending, first.Fence, first.Dead, second.Pending, second.Fence, second.Dead}
		args := []any{s.token.String(), 0, 3, "R", "1", "3", s.era, 2, 2, 1, 0, 1, 1, "a", "b", "c"}
		b.client.Set(ctx, key(second), "no list", 0)
		b.client.Set(ctx, first.Dead, "nothing goes there", 0)
		if a, err := ingressMoveScript.Run(ctx, b.client, keys, args...).Result(); err == nil || !strings.Contains(err.Error(), key(second)) {
			t.Errorf("%s: %v, %v, want an error that says the key", what, a, err)
		}
		if n, left := b.client.LLen(ctx, first.Pending).Val(), b.client.LLen(ctx, b.unit.List).Val(); n != 0 || left != 3 {
			t.Errorf("%s: %d lines were pushed, %d are in the list", what, n, left)
		}
		b.client.Del(ctx, key(second))
		if a, err := ingressMoveScript.Run(ctx, b.client, keys, args...).Result(); err != nil || fmt.Sprint(a) != "[OK 3]" {
			t.Errorf("%s: afterwards: %v, %v", what, a, err)
		}
	}
}

// A move brings each target its own lines and dead letters, and rings for those that wait for
// lines; it brings none of them anything if one of them counts other partitions.
func TestIngressMoveServesEach(t *testing.T) {
	ctx := t.Context()
	b := newInbox(t, redistest.Single(t, redistest.New(t)), 4)
	s := b.open(5)
	s.stop()
	<-s.ended
	lines := []string{"1", "2", "3", "4", "5", "6"}
	b.push(lines...)
	keys := []string{s.fence, b.unit.List}
	var of []Keys
	for id := range partition.ID(4) {
		k := KeysOf(b.name, id)
		of, keys = append(of, k), append(keys, k.Pending, k.Fence, k.Dead)
		if id < 3 {
			b.client.HSet(ctx, k.Fence, "w", "1")
		}
	}
	rung := listen(t, b.client, of...)
	args := []any{
		s.token.String(), 0, 6, "R", "1", "6", s.era, 4,
		4, 1, 2, 0, 1, 1, 0, 1, 0, "a", "b", "c", "d", "e", "f",
	}
	for _, c := range []struct{ want, logs, rung string }{
		{"[RESIZED 9]", "[] [], [] [], [] [], [] []", "[]"},
		{"[OK 6]", "[a] [b c], [] [d], [e] [], [f] []", "[0 2]"},
	} {
		if c.rung == "[]" {
			b.client.HSet(ctx, of[3].Fence, "p", 9)
		} else {
			b.client.HSet(ctx, of[3].Fence, "p", 4)
		}
		got, err := ingressMoveScript.Run(ctx, b.client, keys, args...).Result()
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%v, %v, want %s", got, err, c.want)
		}
		var logs []string
		for _, k := range of {
			logs = append(logs, fmt.Sprint(b.client.LRange(ctx, k.Pending, 0, -1).Val(), b.client.LRange(ctx, k.Dead, 0, -1).Val()))
		}
		if got := strings.Join(logs, ", "); got != c.logs {
			t.Errorf("%s: the partitions hold %s, want %s", c.want, got, c.logs)
		}
		if r := rung(); r != c.rung || !b.client.HExists(ctx, of[1].Fence, "w").Val() {
			t.Errorf("%s: rung for %s, want %s", c.want, r, c.rung)
		}
	}
}

// What an open answers and leaves: numbers are compared as numbers, a plan is void with the base
// it was made at, and an era begins where the store may have lost something.
func TestIngressOpenAnswers(t *testing.T) {
	ctx := t.Context()
	b := newInbox(t, redistest.New(t), 4)
	s := b.open(1)
	s.stop()
	<-s.ended
	run := b.fence()["r"]
	for _, c := range []struct {
		what         string
		fence        []any
		token, epoch string
		era          int
		due          string
		want         string
		after        string
	}{
		{
			"the next owner", []any{"t", "9:a", "e", 9, "b", 7, "g", 9000, "r", run}, "10:b", "10", 10000, "",
			"[OK 7 9000 3 sum 8000 4 1 0 2]", "map[b:7 e:10 g:9000 r:" + run + " t:10:b]",
		}, {
			"the next owner, who has begun fewer eras", []any{"t", "", "e", 9, "b", 7, "g", 9000, "r", run}, "10:b", "10", 8000, "",
			"[OK 7 9000 3 sum 8000 4 1 0 2]", "map[b:7 e:10 g:9000 r:" + run + " t:10:b]",
		}, {
			"an owner of before", []any{"t", "10:b", "e", 10, "b", 7, "g", 9000, "r", run}, "9:a", "9", 9000, "1",
			"[FENCED 10]", "map[b:7 e:10 g:9000 r:" + run + " t:10:b]",
		}, {
			"another run of the store", []any{"t", "9:a", "e", 9, "b", 7, "g", 9000, "r", "another"}, "10:b", "10", 10000, "",
			"[OK 7 10000 3 sum 8000 4 1 0 2]", "map[b:7 e:10 g:10000 r:" + run + " t:10:b]",
		}, {
			"the fence is lost, and the plan is not", nil, "10:b", "10", 10000, "",
			"[OK 0 10000     ]", "map[b:0 e:10 g:10000 r:" + run + " t:10:b]",
		}, {
			"the lines are others", []any{"t", "10:b", "e", 10, "b", 7, "g", 9999, "r", run}, "10:b", "10", 10000, "1",
			"[OK 7 10000     ]", "map[b:7 e:10 g:10000 r:" + run + " t:10:b]",
		}, {
			"it comes late", []any{"t", "10:b", "e", 10, "b", 7, "g", 10001, "r", "another"}, "10:b", "10", 10001, "1",
			"[OK 7 10001 3 sum 8000 4 1 0 2]", "map[b:7 e:10 g:10001 r:another t:10:b]",
		}, {
			"the partition of a name, and no list", []any{"t", "9:a", "e", 9, "b", 7, "n", 3, "h", 8}, "10:b", "10", 10000, "1",
			"[PARTITION]", "map[b:7 e:9 h:8 n:3 t:9:a]",
		},
	} {
		b.client.Del(ctx, s.fence)
		if c.fence != nil {
			b.client.HSet(ctx, s.fence, c.fence...)
		}
		b.client.HSet(ctx, s.plan, "k", 3, "s", "sum", "g", 8000, "p", 4, "t", "1 0 2")
		got, err := ingressOpenScript.Run(ctx, b.client, []string{s.fence, s.plan}, c.token, c.epoch, c.era, c.due).Result()
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, %v, want %s", c.what, got, err, c.want)
		}
		if after := fmt.Sprint(b.fence()); after != c.after {
			t.Errorf("%s: the fence is %s, want %s", c.what, after, c.after)
		}
		if stands := b.client.Exists(ctx, s.plan).Val() == 1; stands == strings.HasSuffix(c.want, "     ]") {
			t.Errorf("%s: the plan stands: %v", c.what, stands)
		}
	}
}
