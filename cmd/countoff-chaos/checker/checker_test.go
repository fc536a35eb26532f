package checker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
)

const ms = journal.Time(time.Millisecond)

// A story is a small history that is told line by line, times in milliseconds.
type story struct {
	h History
	n uint64
}

func tell() *story {
	return &story{h: History{Margin: 103 * time.Millisecond, Left: Store{Open: map[string]string{}, Dead: map[string]int{}}}}
}

func (s *story) push(task, key string, seq int, at journal.Time) *story {
	s.h.Pushes = append(s.h.Pushes, Push{Task: task, Key: key, Seq: seq, Sent: at * ms, Acked: (at + 1) * ms})
	return s
}

func (s *story) process(name string) *Process {
	for i := range s.h.Processes {
		if s.h.Processes[i].Name == name {
			return &s.h.Processes[i]
		}
	}
	s.h.Processes = append(s.h.Processes, Process{Name: name})
	return &s.h.Processes[len(s.h.Processes)-1]
}

func (s *story) write(name string, r journal.Record) *story {
	r.Session = name
	p := s.process(name)
	p.Records = append(p.Records, r)
	return s
}

func (s *story) open(name string, epoch uint64, at journal.Time) *story {
	return s.write(name, journal.Record{Kind: journal.Opened, Time: at * ms, Until: (at + 1) * ms, Epoch: epoch, Outcome: journal.OK})
}

func (s *story) begin(name string, epoch uint64, task string, at journal.Time) uint64 {
	var push Push
	for _, p := range s.h.Pushes {
		if p.Task == task {
			push = p
		}
	}
	s.n++
	s.write(name, journal.Record{Kind: journal.Began, Time: at * ms, Epoch: epoch, Run: s.n, Task: task, Key: push.Key, Seq: push.Seq, Attempt: 1})
	return s.n
}

func (s *story) end(name string, epoch uint64, run uint64, task, outcome string, at journal.Time) *story {
	return s.write(name, journal.Record{Kind: journal.Ended, Time: at * ms, Epoch: epoch, Run: run, Task: task, Outcome: outcome})
}

func (s *story) settle(name string, epoch uint64, task, outcome, answer string, at journal.Time) *story {
	return s.write(name, journal.Record{Kind: journal.Settled, Time: at * ms, Until: (at + 1) * ms, Epoch: epoch, Outcome: answer,
		Tasks: []journal.Verdict{{Task: task, Outcome: outcome}}})
}

// run is a run from beginning to settlement, 10 ms.
func (s *story) run(name string, epoch uint64, task string, at journal.Time) *story {
	n := s.begin(name, epoch, task, at)
	return s.end(name, epoch, n, task, journal.Done, at+9).settle(name, epoch, task, journal.Done, journal.OK, at+9)
}

func (s *story) kill(name string, at journal.Time) *story {
	s.process(name).Killed = at * ms
	return s
}

func (s *story) freeze(name string, from, until journal.Time) *story {
	p := s.process(name)
	p.Frozen = append(p.Frozen, Span{from * ms, until * ms})
	return s
}

func (s *story) lose(name string, epoch uint64, at journal.Time) *story {
	return s.write(name, journal.Record{Kind: journal.Lost, Time: at * ms, Epoch: epoch, Outcome: "lapsed"})
}

func (s *story) forget(from, until journal.Time) *story {
	s.h.Losses = append(s.h.Losses, Loss{Span: Span{from * ms, until * ms}, At: until * ms, Why: "wipe"})
	return s
}

// check lets whoever was not killed leave, and checks.
func (s *story) check() *Report {
	for i := range s.h.Processes {
		if p := &s.h.Processes[i]; p.Killed == 0 {
			p.Records = append(p.Records, journal.Record{Kind: journal.Left, Time: 1e6 * ms})
		}
	}
	return Check(&s.h)
}

// expect says which rules a story breaks, each once.
func expect(t *testing.T, s *story, rules ...string) *Report {
	t.Helper()
	r := s.check()
	var got []string
	for rule, n := range r.ViolationsByRule {
		for range n {
			got = append(got, rule)
		}
	}
	slices.Sort(got)
	slices.Sort(rules)
	if !slices.Equal(got, rules) {
		t.Errorf("broken rules %q, want %q", got, rules)
		for _, v := range r.Violations {
			t.Logf("%s: %s\n\t%s", v.Rule, v.What, strings.Join(v.Evidence, "\n\t"))
		}
	}
	return r
}

func TestNothingWrong(t *testing.T) {
	s := tell().push("p1", "k", 1, 0).push("p2", "k", 2, 1).push("p3", "", 0, 2)
	s.open("a", 1, 5).run("a", 1, "p1", 10).run("a", 1, "p2", 20).run("a", 1, "p3", 15)
	s.open("b", 2, 40)
	if r := expect(t, s); r.Completed != 3 || r.Runs != 3 || r.Doubled != 0 {
		t.Errorf("%+v", r)
	}
}

func TestLost(t *testing.T) {
	s := tell().push("p1", "k", 1, 0).push("p2", "k", 2, 1).run("a", 1, "p1", 10)
	expect(t, s, "lost")

	// What nobody acknowledged may be gone.
	s = tell().push("p1", "k", 1, 0).push("p2", "k", 2, 1).run("a", 1, "p1", 10)
	s.h.Pushes[1].Acked = 0
	expect(t, s)

	// A store that was emptied forgets what it had, and not what came later.
	s = tell().push("p1", "k", 1, 0).push("p2", "k", 2, 100).forget(0, 50)
	if r := expect(t, s, "lost"); r.Forgotten != 1 {
		t.Errorf("forgotten %d, want 1", r.Forgotten)
	}

	// Of a fail-over only what the replica may have lacked.
	s = tell().push("p1", "k", 1, 0).push("p2", "k", 2, 30).forget(20, 50)
	expect(t, s, "lost")

	// Cancelled runs are no ends.
	s = tell().push("p1", "k", 1, 0)
	s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Cancelled, 20).lose("a", 1, 19)
	expect(t, s, "lost")

	// A dead letter is an end, and must be there if it was acknowledged.
	dead := func() *story {
		s := tell().push("p1", "k", 1, 0)
		return s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Dead, 20).settle("a", 1, "p1", journal.Dead, journal.OK, 21)
	}
	expect(t, dead(), "lost")
	s = dead()
	s.h.Left.Dead["p1"] = 1
	expect(t, s)
	s.h.Left.Dead["p1"] = 2
	s.process("a").Records = s.process("a").Records[:3]
	expect(t, s, "doubled")
}

func TestLeftOver(t *testing.T) {
	s := tell().push("p1", "k", 1, 0)
	s.h.Left.Open["p1"] = "pending"
	expect(t, s, "stuck")

	// What nobody sent, or nobody can read.
	s = tell()
	s.h.Left.Open[`"no task"`] = "pending"
	s.h.Left.Dead["p7"] = 1
	expect(t, s, "stuck", "invented")
}

// What was seen of a store before it forgot is judged as if it never did.
func TestBeforeItForgot(t *testing.T) {
	const wiped = 1000
	one := func() *story { return tell().push("p1", "k", 1, 0).push("p2", "k", 2, 1) }

	expect(t, tell().open("a", 5, 10).open("b", 4, 20).forget(0, wiped), "epoch")
	expect(t, tell().open("a", 5, 10).open("b", 5, 20).forget(0, wiped), "epoch")
	s := tell().push("p1", "k", 1, 0).open("a", 1, 5)
	n := s.begin("a", 1, "p1", 10)
	s.open("b", 2, 15).end("a", 1, n, "p1", journal.Done, 20).settle("a", 1, "p1", journal.Done, journal.OK, 21)
	expect(t, s.forget(0, wiped), "stale")
	expect(t, tell().push("p1", "k", 1, 0).open("a", 1, 5).open("b", 2, 7).run("a", 1, "p1", 10).forget(0, wiped), "stale", "stale")
	expect(t, tell().push("p1", "k", 1, 0).run("a", 1, "p1", 10).run("b", 2, "p1", 100).forget(0, wiped), "doubled")
	// It forgot twice, and the second time is no excuse for what was seen between.
	expect(t, tell().push("p1", "k", 1, 60).run("a", 1, "p1", 70).run("b", 2, "p1", 100).forget(0, 50).forget(0, wiped), "doubled")

	// A call that was sent before it forgot and answered later may have been carried
	// out before or after it.
	expect(t, tell().open("a", 5, 10).open("b", 4, wiped-1).forget(0, wiped))
	late := tell().push("p1", "k", 1, 0).run("a", 1, "p1", wiped-10).run("b", 2, "p1", wiped+100).forget(500, wiped)
	late.process("a").Records[2].Until = (wiped + 5) * ms
	expect(t, late)

	// The second of a key ran and the first was still to come: an order that nothing
	// that happens later mends.
	expect(t, one().run("a", 1, "p2", 10).forget(0, wiped), "order")
	expect(t, one().forget(0, wiped).run("a", 1, "p2", wiped+10))
	s = one()
	s.begin("a", 1, "p1", 5)
	s.kill("a", 10).run("b", 2, "p2", 20)
	s.h.Left.Dead["p1"] = 1 // nobody knows when it was buried
	expect(t, s)
}

// Of a store that was looked at before it was emptied only what it had is forgotten.
func TestLookedAtBefore(t *testing.T) {
	held := func(s *story, open, dead []string) *story {
		s.forget(0, 50)
		l := &s.h.Losses[len(s.h.Losses)-1]
		l.At, l.Held = 40*ms, &Store{Open: map[string]string{}, Dead: map[string]int{}}
		for _, task := range open {
			l.Held.Open[task] = "pending"
		}
		for _, task := range dead {
			l.Held.Dead[task] = 1
		}
		return s
	}
	one := func() *story { return tell().push("p1", "k", 1, 0) }
	if r := expect(t, held(one(), []string{"p1"}, nil)); r.Forgotten != 1 {
		t.Errorf("forgotten %d, want 1", r.Forgotten)
	}
	expect(t, held(one(), []string{"p2"}, nil), "lost")
	expect(t, held(one(), nil, []string{"p1"})) // a dead letter because of crashes
	// It was pushed after the look.
	expect(t, held(tell().push("p1", "k", 1, 45), nil, nil))
	// It was there the first time, and came back some other way.
	expect(t, held(held(one(), []string{"p1"}, nil), nil, nil))

	dead := func() *story {
		s := one()
		return s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Dead, 20).settle("a", 1, "p1", journal.Dead, journal.OK, 21)
	}
	expect(t, held(dead(), nil, []string{"p1"}))
	expect(t, held(dead(), nil, nil), "lost")
}

func TestInvented(t *testing.T) {
	expect(t, tell().run("a", 1, "p1", 10), "invented")
	s := tell().push("p1", "k", 1, 0).run("a", 1, "p1", 10)
	s.h.Pushes[0].Refused = true
	expect(t, s, "invented")
}

func TestOverlap(t *testing.T) {
	two := func() *story { return tell().push("p1", "k", 1, 0).push("p2", "k", 2, 1) }

	// The second starts on another peer before the first has ended.
	s := two()
	n := s.begin("a", 1, "p1", 10)
	s.open("b", 2, 200).run("b", 2, "p2", 210)
	s.end("a", 1, n, "p1", journal.Done, 230).settle("a", 1, "p1", journal.Done, journal.Fenced, 231)
	expect(t, s, "overlap", "order")

	// Two runs of one task without a key.
	s = tell().push("p1", "", 0, 0)
	n = s.begin("a", 1, "p1", 10)
	s.run("b", 2, "p1", 200).end("a", 1, n, "p1", journal.Done, 230).lose("a", 1, 229)
	expect(t, s, "overlap")

	stopped := func(from, until journal.Time) *story {
		s := tell().push("p1", "k", 1, 0)
		n := s.begin("a", 1, "p1", 10)
		s.freeze("a", from, until).open("b", 2, 4000).run("b", 2, "p1", 4010)
		return s.end("a", 1, n, "p1", journal.Cancelled, 5010).lose("a", 1, 5005)
	}
	// A process that was stopped past its lease could not cancel its handler.
	if r := expect(t, stopped(20, 5000)); r.ExcusedOverlaps != 1 || r.Doubled != 1 || r.Expired != 1 {
		t.Errorf("%+v", r)
	}
	// One that ran could.
	expect(t, stopped(20, 60), "overlap")
	// Nor does it help to have been stopped afterwards.
	expect(t, stopped(4500, 5000), "overlap")

	// The handlers of a killed process end with it.
	s = tell().push("p1", "k", 1, 0)
	s.begin("a", 1, "p1", 10)
	s.kill("a", 20).open("b", 2, 4000).run("b", 2, "p1", 4010)
	expect(t, s)
	s = tell().push("p1", "k", 1, 0)
	s.begin("a", 1, "p1", 10)
	s.kill("a", 5000).open("b", 2, 4000).run("b", 2, "p1", 4010)
	expect(t, s, "overlap")
}

func TestOrder(t *testing.T) {
	s := tell().push("p1", "k", 1, 0).push("p2", "k", 2, 1)
	s.run("a", 1, "p2", 10).run("a", 1, "p1", 20)
	expect(t, s, "order")

	// A run that is to be repeated is no end: the key waits.
	retried := func(second journal.Time) *story {
		s := tell().push("p1", "k", 1, 0).push("p2", "k", 2, 1)
		s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Retry, 15).settle("a", 1, "p1", journal.Retry, journal.OK, 16)
		return s.run("a", 1, "p1", 100).run("a", 1, "p2", second)
	}
	expect(t, retried(110))
	expect(t, retried(20), "order")
}

func TestDoubled(t *testing.T) {
	// Settled, and run again.
	s := tell().push("p1", "k", 1, 0).run("a", 1, "p1", 10).run("b", 2, "p1", 100)
	expect(t, s, "doubled")

	// A crash after the settlement was answered is no excuse.
	expect(t, tell().push("p1", "k", 1, 0).run("a", 1, "p1", 10).kill("a", 90).run("b", 2, "p1", 100), "doubled")

	// Unsettled, by a peer that left in an orderly way.
	s = tell().push("p1", "k", 1, 0)
	s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Done, 20).run("b", 2, "p1", 100)
	expect(t, s, "doubled")

	// One crash is an excuse for one more run, not for two.
	s = tell().push("p1", "k", 1, 0)
	s.begin("a", 1, "p1", 10)
	s.kill("a", 20).run("b", 2, "p1", 100)
	if r := expect(t, s); r.Doubled != 1 || r.Crashed != 1 {
		t.Errorf("%+v", r)
	}
	s = tell().push("p1", "k", 1, 0)
	s.begin("a", 1, "p1", 10)
	s.kill("a", 20).run("b", 2, "p1", 100).run("c", 3, "p1", 200)
	expect(t, s, "doubled")

	// The store forgot the settlement.
	expect(t, tell().push("p1", "k", 1, 0).run("a", 1, "p1", 10).forget(15, 50).run("b", 2, "p1", 100))
	expect(t, tell().push("p1", "k", 1, 0).run("a", 1, "p1", 10).forget(40, 50).run("b", 2, "p1", 100), "doubled")
}

func TestStale(t *testing.T) {
	base := func() *story {
		return tell().push("p1", "k", 1, 0).push("p2", "j", 1, 0).open("a", 1, 5).open("b", 2, 4000)
	}
	// A settlement that was sent after a newer owner was let in, and accepted.
	s := base()
	s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Done, 20).settle("a", 1, "p1", journal.Done, journal.OK, 4100)
	s.run("b", 2, "p2", 4200)
	if r := expect(t, s, "stale"); r.StaleSettles != 1 {
		t.Errorf("%+v", r)
	}
	// Refused; and sent before.
	s = base()
	s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Done, 20).settle("a", 1, "p1", journal.Done, journal.Fenced, 4100).lose("a", 1, 4101)
	s.run("b", 2, "p2", 4200).run("b", 2, "p1", 4200)
	expect(t, s)
	s = base()
	s.end("a", 1, s.begin("a", 1, "p1", 10), "p1", journal.Done, 20).settle("a", 1, "p1", journal.Done, journal.OK, 3999)
	expect(t, s.run("b", 2, "p2", 4200))

	// A handler that an older owner starts.
	s = base()
	s.run("b", 2, "p1", 4010)
	s.end("a", 1, s.begin("a", 1, "p2", 4100), "p2", journal.Cancelled, 4110).lose("a", 1, 4105).run("b", 2, "p2", 4200)
	expect(t, s, "stale")
	// It may have looked at its lease just before it was stopped; but once.
	s = base().run("b", 2, "p1", 4010).freeze("a", 100, 4099)
	s.end("a", 1, s.begin("a", 1, "p2", 4100), "p2", journal.Cancelled, 4110).lose("a", 1, 4105).run("b", 2, "p2", 4200)
	expect(t, s)
	s = base().push("p3", "l", 1, 0).run("b", 2, "p1", 4010).freeze("a", 100, 4099)
	s.end("a", 1, s.begin("a", 1, "p2", 4100), "p2", journal.Cancelled, 4110)
	s.end("a", 1, s.begin("a", 1, "p3", 4101), "p3", journal.Cancelled, 4110).lose("a", 1, 4105)
	expect(t, s.run("b", 2, "p2", 4200).run("b", 2, "p3", 4200), "stale", "stale")
}

// With a barrier runs say under which roll they are.
func TestTables(t *testing.T) {
	two := func(rolls ...uint64) *story {
		s := tell().push("p1", "k", 1, 0).push("p2", "l", 1, 0)
		first, second := s.begin("a", 1, "p1", 10), s.begin("b", 2, "p2", 15)
		s.end("a", 1, first, "p1", journal.Done, 20).end("b", 2, second, "p2", journal.Done, 30)
		for i, name := range []string{"a", "b"} {
			s.process(name).Records[0].Roll = rolls[i]
		}
		return s
	}
	expect(t, two(3, 4), "table")
	expect(t, two(4, 3), "table")
	expect(t, two(3, 3))
	expect(t, two(0, 4)) // one of them does not say
	// It was stopped for longer than its lease, and cannot be waited for.
	s := two(3, 4).freeze("a", 11, 900)
	s.process("b").Records[0].Time = 500 * ms
	s.process("b").Records[1].Time = 510 * ms
	s.process("a").Records[1].Time = 901 * ms
	expect(t, s)
}

func TestEpochs(t *testing.T) {
	expect(t, tell().open("a", 5, 10).open("b", 4, 20), "epoch")
	expect(t, tell().open("a", 5, 10).open("b", 5, 20), "epoch")
	expect(t, tell().open("a", 5, 10).open("b", 4, 20).forget(0, 15))
}

func TestBuried(t *testing.T) {
	s := tell().push("p1", "k", 1, 0)
	s.h.Left.Dead["p1"] = 1
	expect(t, s, "buried")
	s = tell().push("p1", "k", 1, 0)
	s.begin("a", 1, "p1", 10)
	s.kill("a", 20)
	s.h.Left.Dead["p1"] = 1
	if r := expect(t, s); r.Buried != 1 {
		t.Errorf("%+v", r)
	}
}

func TestTakeover(t *testing.T) {
	s := tell()
	s.h.Gaps = []Gap{{Part: 1, Fault: "kill", Span: Span{1000 * ms, 6000 * ms}, Bound: 5100 * time.Millisecond}}
	expect(t, s)
	s.h.Gaps[0].Until = 6200 * ms
	expect(t, s, "takeover")
	s.h.Gaps[0].Until = 0
	expect(t, s, "takeover")
}

func TestPeers(t *testing.T) {
	s := tell()
	s.h.Troubles = []string{"a ended by itself"}
	expect(t, s, "peer")

	s = tell().push("p1", "k", 1, 0).run("a", 1, "p1", 10)
	r := Check(&s.h) // it neither left nor was it killed
	if r.ViolationsByRule["peer"] != 1 {
		t.Errorf("%v", r.ViolationsByRule)
	}
	s = tell().push("p1", "k", 1, 0)
	s.begin("a", 1, "p1", 10)
	expect(t, s, "peer", "lost") // it left while a handler ran
}

func TestLostForNothing(t *testing.T) {
	told := func(span Span) int {
		s := tell().lose("a", 1, 5000)
		s.h.Patience = time.Second
		s.process("a").Struck = []Span{span}
		return expect(t, s).LostForNothing
	}
	for want, spans := range map[int][]Span{
		0: {{4000 * ms, 6000 * ms}, {1000 * ms, 4500 * ms}},
		1: {{1000 * ms, 3500 * ms}, {5500 * ms, 6000 * ms}},
	} {
		for _, span := range spans {
			if got := told(span); got != want {
				t.Errorf("%v: %d, want %d", span, got, want)
			}
		}
	}
}

func TestPauses(t *testing.T) {
	s := tell().open("a", 1, 5).write("a", journal.Record{Kind: journal.Draining, Time: 100 * ms, Epoch: 1})
	s.write("a", journal.Record{Kind: journal.Closed, Time: 110 * ms, Until: 111 * ms, Epoch: 1, Outcome: journal.OK}).open("b", 2, 130)
	s.h.Faults = []Fault{{Kind: "term", Span: Span{90 * ms, 200 * ms}}}
	if got := expect(t, s).Pauses["term"]; got != 31*time.Millisecond {
		t.Errorf("a pause of %v, want 31ms", got)
	}
}
