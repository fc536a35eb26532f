package kafkaprogress

import (
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// The rules of docs/protocol.md that no world breaks by chance, one by one.
func TestTableRules(t *testing.T) {
	token := func(e partition.Epoch) partition.Token { return partition.Token{Epoch: e, Session: "s"} }
	says := func(t *table, edit func(*progress.Request)) progress.Answer {
		r := &progress.Request{Seen: t.writes, Base: t.base, Alone: progress.None}
		edit(r)
		a, _ := t.settle(r, make([]progress.Content, len(r.Others)), time.Unix(1, 0))
		return a
	}
	for what, check := range map[string]func(*table) bool{
		"an epoch has one owner": func(t *table) bool {
			return !t.install(partition.Token{Epoch: 1, Session: "another"})
		},
		"an epoch that was closed is over": func(t *table) bool {
			t.clear()
			return !t.install(token(1))
		},
		"a table that knows fewer writes than it answered forgot": func(t *table) bool {
			return says(t, func(r *progress.Request) { r.Seen++ }).Status == progress.Forgot
		},
		"what ran alone and has ended is not charged": func(t *table) bool {
			t.alone = 2
			t.done = []span{{2, 3}}
			t.install(token(2))
			return t.tries[2].crashes == 0
		},
		"what ran alone and the log has lost acquits nobody": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Gate = 9 })
			says(t, func(r *progress.Request) { r.Alone = 2 })
			t.reset(5, "")
			t.install(token(2))
			return t.suspects == 9 && len(t.tries) == 0
		},
		"what follows a suspect whose end is said with it is charged": func(t *table) bool {
			t.alone = t.base
			says(t, func(r *progress.Request) { r.Base, r.Alone = t.base+1, 2 })
			t.install(token(2))
			return t.tries[2].crashes == 1
		},
		"a retry that is said again does not acquit": func(t *table) bool {
			retry := []progress.Verdict{{Position: 2, Outcome: progress.Retry, Attempt: 1}}
			says(t, func(r *progress.Request) { r.Others = retry })
			says(t, func(r *progress.Request) { r.Alone, r.AloneTries = 2, 1 })
			says(t, func(r *progress.Request) { r.Others = retry })
			return t.alone == 2
		},
		"a retry of another does not acquit": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Alone = 2 })
			says(t, func(r *progress.Request) {
				r.Others = []progress.Verdict{{Position: 3, Outcome: progress.Retry, Attempt: 1}}
			})
			return t.alone == 2
		},
		"what is done at the new base stays done": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Base, r.Done = 2, []int64{2} })
			return t.base == 2 && !t.open(2) && t.open(3)
		},
		"what is done is not lifted": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Done = []int64{1} })
			says(t, func(r *progress.Request) { r.Base, r.Lift = 2, []int64{0, 1} })
			return slices.Equal(t.lifted, []int64{0})
		},
		"what runs no more is no suspect after a close": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Gate = 9 })
			t.clear()
			t.install(token(2))
			t.install(token(3))
			return t.suspects == 0
		},
		"what waits below the base is no suspect after a close": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Base, r.Lift = 3, []int64{0} })
			t.clear()
			t.install(token(2))
			return t.suspects == 0
		},
		"each owner is counted, and each end of one": func(t *table) bool {
			before := t.writes
			t.install(token(2))
			began := t.writes
			t.clear()
			return before < began && began < t.writes
		},
		"what ran alone and has ended is not alone": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Alone = 2 })
			says(t, func(r *progress.Request) { r.Done = []int64{2} })
			return t.alone == progress.None
		},
		"a late word that it runs alone is of an earlier try": func(t *table) bool {
			says(t, func(r *progress.Request) {
				r.Others = []progress.Verdict{{Position: 2, Outcome: progress.Retry, Attempt: 1}}
			})
			says(t, func(r *progress.Request) { r.Alone = 2 })
			return t.alone == progress.None
		},
		"a late word lifts nothing that is over": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Base, r.Lift = 3, []int64{0, 1} })
			says(t, func(r *progress.Request) { r.Done = []int64{0} })
			says(t, func(r *progress.Request) { r.Base, r.Lift = 4, []int64{0, 1, 2, 3} })
			return slices.Equal(t.lifted, []int64{1, 3})
		},
		"what is done before the base is not told": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Done = []int64{1, 2, 3} })
			says(t, func(r *progress.Request) { r.Base = 3 })
			return slices.Equal(t.found(time.Unix(1, 0)).Done, []int64{3})
		},
		"another life has no suspects": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Gate = 9 })
			t.install(token(2))
			t.reset(0, "one")
			t.reset(5, "two")
			return t.suspects == 0 && t.alone == progress.None
		},
		"suspects are suspects still after an owner that was stopped": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Gate = 9 })
			t.install(token(2))
			t.clear()
			t.install(token(3))
			says(t, func(r *progress.Request) { r.Gate = 4 })
			t.install(token(4))
			return t.suspects == 9
		},
		"of what the log has lost nothing is kept": func(t *table) bool {
			says(t, func(r *progress.Request) {
				r.Others = []progress.Verdict{{Position: 2, Outcome: progress.Retry, Attempt: 1}}
			})
			says(t, func(r *progress.Request) { r.Base = 5 })
			t.install(token(2))
			return len(t.tries) == 0
		},
		"a late retry of what has ended leaves nothing": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Done = []int64{2} })
			says(t, func(r *progress.Request) {
				r.Others = []progress.Verdict{{Position: 2, Outcome: progress.Retry, Attempt: 1}}
			})
			return len(t.tries) == 0
		},
		"a retry keeps the first error, and waits": func(t *table) bool {
			for n, c := range []progress.Content{{Error: "first"}, {Error: "second", Delay: time.Minute}} {
				t.settle(&progress.Request{
					Seen: t.writes, Alone: progress.None, Others: []progress.Verdict{{Position: 2, Outcome: progress.Retry, Attempt: n + 1}},
				}, []progress.Content{c}, time.Unix(1, 0))
			}
			was := t.tries[2]
			return was.tries == 2 && was.why == "first" && was.due.Equal(time.Unix(61, 0))
		},
		"what a late word ends below the base is no span": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Base, r.Lift = 3, []int64{0} })
			says(t, func(r *progress.Request) { r.Base, r.Done = 0, []int64{0} })
			return len(t.lifted) == 0 && len(t.done) == 0
		},
		"what is done without a gap is one span": func(t *table) bool {
			says(t, func(r *progress.Request) { r.Done = []int64{3, 2, 6, 5, 4} })
			says(t, func(r *progress.Request) { r.Done = []int64{3, 6} }) // said again
			return slices.Equal(t.done, []span{{2, 7}})
		},
		"each change is told as one, and nothing else": func(t *table) bool {
			for n, edit := range []func(*progress.Request){
				func(r *progress.Request) { r.Alone = 7 },
				func(r *progress.Request) { r.Gate = t.gate + 1 },
				func(r *progress.Request) { r.Base = t.base + 1 },
				func(r *progress.Request) { r.Done = []int64{5} },
				func(r *progress.Request) { r.Others = []progress.Verdict{{Position: 5, Outcome: progress.Dead}} },
				func(*progress.Request) {},
			} {
				r := &progress.Request{Seen: t.writes, Base: t.base, Gate: t.gate, Alone: progress.None}
				edit(r)
				was := t.writes
				if _, changed := t.settle(r, make([]progress.Content, len(r.Others)), time.Unix(1, 0)); changed != (n < 5) || (t.writes > was) != changed {
					return false
				}
			}
			return true
		},
	} {
		table := newTable(0)
		if !table.install(token(1)) || !check(table) {
			t.Errorf("%s: %+v", what, table)
		}
	}
}
