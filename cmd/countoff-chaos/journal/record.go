package journal

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A Time is an instant of CLOCK_MONOTONIC in nanoseconds. It compares between the
// processes of one machine.
type Time int64

// Seconds returns t as seconds, for people.
func (t Time) Seconds() float64 { return float64(t) / 1e9 }

// A Kind says what a record tells.
type Kind byte

// The kinds of records.
const (
	Began    Kind = 'B' // a handler run starts
	Ended    Kind = 'E' // and has returned
	Opened   Kind = 'O' // the source was asked to open a grant, and has answered
	Settled  Kind = 'S' // the source was told outcomes, and has answered
	Closed   Kind = 'C' // a stream was closed, and that was answered
	Lost     Kind = 'L' // the peer learnt that a grant is lost
	Draining Kind = 'D' // the peer hands over a grant
	Stalled  Kind = 'Z' // the process did not run from Time to Until
	Joined   Kind = 'P' // the peer takes part, as Session
	Left     Kind = 'Q' // the peer has stopped in an orderly way
)

// Outcomes of a run, and of a settlement.
const (
	Done      = "done"
	Retry     = "retry"
	Dead      = "dead"
	Cancelled = "cancelled" // the context ended: the run was for nothing
)

// Answers of the source.
const (
	OK      = "ok"
	Fenced  = "fenced"
	Forgot  = "forgot"
	Unknown = "unknown" // no answer, or one that says nothing of the effect
)

// A Record is one line of a journal. Which fields count depends on its kind.
type Record struct {
	Kind    Kind
	Time    Time
	Until   Time // Opened, Settled, Closed: when it was answered; Stalled: the end
	Part    int
	Epoch   uint64
	Session string

	Run     uint64 // Began, Ended: the run's number in its process, from 1
	Task    string // Began, Ended
	Key     string // Began; empty: none
	Seq     int    // Began: number in the key, from 1
	Attempt int    // Began
	Crashes int    // Began
	Roll    uint64 // Began: with a barrier, the roll that the peer works under; otherwise 0
	Outcome string // Ended: of the run; Opened, Settled, Closed: the answer; Lost: the cause

	Tasks []Verdict // Settled
}

// A Verdict is what the source was told of one task.
type Verdict struct{ Task, Outcome string }

// Append appends the line of r to b.
func (r *Record) Append(b []byte) []byte {
	b = append(b, byte(r.Kind), ' ')
	b = strconv.AppendInt(b, int64(r.Time), 10)
	for _, n := range []uint64{uint64(r.Until), uint64(r.Part), r.Epoch, r.Run, uint64(r.Seq), uint64(r.Attempt), uint64(r.Crashes), r.Roll} {
		b = append(b, ' ')
		b = strconv.AppendUint(b, n, 10)
	}
	for _, s := range []string{r.Session, r.Task, r.Key, r.Outcome} {
		b = append(b, ' ')
		b = append(b, strings.Map(word, cmp.Or(s, "-"))...)
	}
	for _, v := range r.Tasks {
		b = append(append(append(append(b, ' '), v.Task...), ':'), v.Outcome...)
	}
	return append(b, '\n')
}

// word keeps a text in one word.
func word(r rune) rune {
	if r <= ' ' {
		return '_'
	}
	return r
}

const words = 14 // of a line without verdicts

// Parse reads one line without its end.
func Parse(line string) (Record, error) {
	w := strings.Split(line, " ")
	if len(w) < words || len(w[0]) != 1 {
		return Record{}, fmt.Errorf("journal: %q: want %d words", line, words)
	}
	var n [9]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(w[1+i], 10, 64); err != nil {
			return Record{}, fmt.Errorf("journal: %q: %w", line, err)
		}
	}
	texts := w[1+len(n) : words]
	for i := range texts {
		if texts[i] == "-" {
			texts[i] = ""
		}
	}
	r := Record{
		Kind: Kind(w[0][0]), Time: Time(n[0]), Until: Time(n[1]), Part: int(n[2]), Epoch: uint64(n[3]),
		Run: uint64(n[4]), Seq: int(n[5]), Attempt: int(n[6]), Crashes: int(n[7]), Roll: uint64(n[8]),
		Session: texts[0], Task: texts[1], Key: texts[2], Outcome: texts[3],
	}
	for _, v := range w[words:] {
		task, outcome, ok := strings.Cut(v, ":")
		if !ok {
			return Record{}, fmt.Errorf("journal: %q: verdict %q: want task:outcome", line, v)
		}
		r.Tasks = append(r.Tasks, Verdict{task, outcome})
	}
	return r, nil
}

// String returns r for people.
func (r Record) String() string {
	b := r.Append(nil)
	return strconv.FormatFloat(r.Time.Seconds(), 'f', 4, 64) + "s " + string(b[:len(b)-1])
}
