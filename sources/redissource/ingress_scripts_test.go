package redissource

import (
	"fmt"
	"strings"
	"testing"

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
		{"lines that were moved", 1, 2, "", "MOVED"},
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
