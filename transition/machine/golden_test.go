package machine_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

var update = flag.Bool("update", false, "rewrite the transcripts; read the diff before you commit it")

// TestTranscripts plays the conversations of testdata. A line that begins with #
// says why, one that begins with > is what happens, the rest is what the machine
// does about it:
//
//	> config viewed claim-nothing unwell barrier short-shutdown
//	> 5s                   let time pass until then, in steps as Wake wants them
//	> 5s count=9 mine=1@7  the same, and every Sync gets this answer at once, unseen
//	> at 5s hint           what happens at 5s, before the machine has looked at its clock
//	> synced count=9 mine=1@7,2@8! line=9:0/2:1,2 sealing due=1s grace=1s expiry=1s behind=1 paused
//	> failed · sealed ok · sealed failed · hint
//	> weigh to=3 · well · unwell · view 7:0/2:1,2 · drained 1@7 · lost 1@7 stored=12 · stop · stop now
//
// Answers are to the last call, or to the one whose number comes first ("synced 3").
// The exclamation mark says that somebody waits; a line reads version:
// index/replicas:partitions. The times are those of a lease of 10 s.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s differs (-update rewrites it); got:\n%s", file, got)
			}
		})
	}
}

// times are those of a lease of 10 s.
var times = machine.Times{
	Beat:        2 * time.Second,
	CallTimeout: time.Second,
	Validity:    6390 * time.Millisecond,
	Settle:      time.Second,
	Drain:       30 * time.Second,
	Shutdown:    25 * time.Second,
	CancelGrace: time.Second,
}

// player steps one machine and writes down what it does.
type player struct {
	t     *testing.T
	m     *machine.Machine
	start machine.Instant
	now   machine.Instant
	sync  uint64 // the last calls
	seal  uint64
	out   strings.Builder
}

func play(t *testing.T, script string) string {
	p := &player{t: t, start: machine.Instant(time.Hour), now: machine.Instant(time.Hour)}
	cfg := machine.Config{Session: "s", Peer: "p", Times: times, Seed: 1}
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "> "):
			fmt.Fprintln(&p.out, line)
			fields := strings.Fields(line[2:])
			if fields[0] == "config" {
				cfg.Viewed = slices.Contains(fields, "viewed")
				cfg.ClaimNothing = slices.Contains(fields, "claim-nothing")
				cfg.Unwell = slices.Contains(fields, "unwell")
				cfg.Barrier = slices.Contains(fields, "barrier")
				if slices.Contains(fields, "short-shutdown") {
					cfg.Times.Shutdown = 5 * time.Second
				}
				continue
			}
			if p.m == nil {
				p.m = machine.New(cfg, p.start)
			}
			p.do(fields)
		case strings.HasPrefix(line, "#"), line == "":
			fmt.Fprintln(&p.out, line)
		}
	}
	return p.out.String()
}

func (p *player) do(fields []string) {
	if fields[0] == "at" {
		p.now = p.start.Add(p.duration(fields[1]))
		p.step(p.event(fields[2:]), nil)
		return
	}
	if until, err := time.ParseDuration(fields[0]); err == nil {
		end := p.start.Add(until)
		for {
			at, ok := p.m.Wake()
			if !ok || at > end {
				break
			}
			p.now = max(p.now, at)
			p.step(machine.Ticked{}, fields[1:])
		}
		p.now = end
		p.step(machine.Ticked{}, fields[1:])
		return
	}
	p.step(p.event(fields), nil)
}

func (p *player) step(ev machine.Event, answer []string) {
	for _, e := range p.m.Step(p.now, ev) {
		if call, ok := e.(machine.Sync); ok && len(answer) > 0 {
			p.step(machine.Synced{Call: call.Call, Answer: p.answer(answer)}, answer)
			continue
		}
		switch e := e.(type) {
		case machine.Sync:
			p.sync = e.Call
		case machine.Seal:
			p.seal = e.Call
		}
		fmt.Fprintf(&p.out, "%7.3fs %s\n", p.now.Sub(p.start).Seconds(), describe(e))
	}
}

func (p *player) event(fields []string) machine.Event {
	arg := func(i int) string {
		if i < len(fields) {
			return fields[i]
		}
		return ""
	}
	sync, seal := p.sync, p.seal
	if n, err := strconv.ParseUint(arg(1), 10, 64); err == nil {
		sync, seal = n, n
		fields = append(fields[:1], fields[2:]...)
	}
	switch fields[0] {
	case "synced":
		return machine.Synced{Call: sync, Answer: p.answer(fields[1:])}
	case "failed":
		return machine.SyncFailed{Call: sync}
	case "sealed":
		return machine.SealEnded{Call: seal, OK: arg(1) == "ok"}
	case "hint":
		return machine.Hinted{}
	case "view":
		l := p.line(arg(1))
		return machine.Viewed{View: partition.View{Version: l.Version, Index: l.Index, Replicas: l.Replicas, Wish: l.Partitions}}
	case "drained":
		return machine.Drained{Grant: p.grant(arg(1))}
	case "lost":
		_, stored, _ := strings.Cut(arg(2), "=")
		ev := machine.Lost{Grant: p.grant(arg(1))}
		if stored != "" {
			ev.Stored = partition.Epoch(p.number(stored))
		}
		return ev
	case "weigh":
		_, weight, _ := strings.Cut(arg(1), "=")
		return machine.Weigh{Weight: int(p.number(weight))}
	case "well", "unwell":
		return machine.Health{Well: fields[0] == "well"}
	case "stop":
		return machine.Stop{Now: arg(1) == "now"}
	}
	p.t.Fatalf("what is %q?", fields)
	return nil
}

func (p *player) answer(fields []string) machine.Answer {
	var a machine.Answer
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "count":
			a.Count = p.number(value)
		case "mine":
			for g := range strings.SplitSeq(value, ",") {
				g, wanted := strings.CutSuffix(g, "!")
				a.Mine = append(a.Mine, machine.Held{Grant: p.grant(g), Wanted: wanted})
			}
		case "line":
			l := p.line(value)
			a.Line = &l
		case "sealing":
			a.Sealing = true
		case "paused":
			a.Paused = true
		case "drained":
			a.Drained = true
		case "due":
			a.Due = p.duration(value)
		case "grace":
			a.Grace = p.duration(value)
		case "expiry":
			a.Expiry = p.duration(value)
		case "behind":
			a.Behind = int(p.number(value))
		default:
			p.t.Fatalf("what is %q in an answer?", f)
		}
	}
	return a
}

// line reads version:index/replicas:partitions.
func (p *player) line(s string) machine.Line {
	var l machine.Line
	version, rest, _ := strings.Cut(s, ":")
	place, ids, _ := strings.Cut(rest, ":")
	if _, err := fmt.Sscanf(place, "%d/%d", &l.Index, &l.Replicas); err != nil {
		p.t.Fatalf("line %q: %v", s, err)
	}
	l.Version = p.number(version)
	for id := range strings.SplitSeq(ids, ",") {
		if id != "" {
			l.Partitions = append(l.Partitions, partition.ID(p.number(id)))
		}
	}
	return l
}

func (p *player) number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) grant(s string) partition.Grant {
	g, err := partition.ParseGrant(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return g
}

func (p *player) duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func describe(e machine.Effect) string {
	switch e := e.(type) {
	case machine.Sync:
		r := e.Request
		about := ""
		if r.Weight > 1 {
			about = fmt.Sprintf(" weight=%d", r.Weight)
		}
		if r.Unwell {
			about += " unwell"
		}
		if r.Barrier {
			about += fmt.Sprintf(" arrived=%d", r.Arrived)
		}
		return fmt.Sprintf("sync %d %v view=%d top=%d hold=%v release=%v claim=%v%s",
			e.Call, r.State, r.View, r.Top, r.Hold, r.Release, r.Claim, about)
	case machine.Seal:
		return fmt.Sprintf("seal %d", e.Call)
	case machine.Serve:
		return fmt.Sprintf("serve %v", e.Grant)
	case machine.Drain:
		return fmt.Sprintf("drain %v", e.Grant)
	case machine.Abort:
		return fmt.Sprintf("abort %v: %v", e.Grant, e.Cause)
	case machine.Adopt:
		return fmt.Sprintf("adopt %d: index %d of %d, wish %v", e.View.Version, e.View.Index, e.View.Replicas, e.View.Wish)
	case machine.Waits:
		return fmt.Sprintf("waits at the barrier before %d", e.Version)
	case machine.Released:
		return fmt.Sprintf("released %v", e.Grant)
	case machine.Overdue:
		return fmt.Sprintf("overdue %v", e.Grant)
	case machine.Lapsed:
		return "lapsed"
	case machine.GraceOpened:
		return fmt.Sprintf("grace opened, %v left", e.Left)
	case machine.Paused:
		return "paused"
	case machine.Resumed:
		return "resumed"
	case machine.Dismissed:
		return "dismissed"
	case machine.Recalled:
		return "recalled"
	case machine.Declared:
		return fmt.Sprintf("declared weight %d, well %v", e.Weight, e.Well)
	case machine.Left:
		return fmt.Sprintf("left, stuck %v", e.Stuck)
	}
	return fmt.Sprintf("unknown effect %T", e)
}
