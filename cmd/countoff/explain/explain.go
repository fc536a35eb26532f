// Package explain says of one key where it is, which peer owns it and why, and what it waits for: key,
// hash, partition, owner, the moves that led there, what stands before it.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// peeked is how far into a log is looked for the tasks of the key.
const peeked = 10_000

// moves is how many of the last changes are told.
const movesTold = 5

// An Explanation is what `countoff explain --json` prints.
type Explanation struct {
	Name      string           `json:"name"`
	Key       string           `json:"key"`
	Hash      partition.Hash   `json:"hash"`
	Total     int              `json:"partitions"`
	Partition status.Partition `json:"partition"`
	// Session of the owner, and of who is to have it.
	Session partition.Session `json:"session,omitempty"`
	Roll    uint64            `json:"roll"`  // the newest roll; 0: none
	Named   string            `json:"named"` // peer that it gives the partition to; empty: nobody
	// NamedGone says that this peer has left, or its lease is over.
	NamedGone bool         `json:"named_gone,omitempty"`
	GraceMS   int64        `json:"grace_ms"` // nobody gains a partition for so long
	Why       []past.Entry `json:"why"`      // the last moves of the partition
	// Barrier is the one that is closed, before which nobody works on anything.
	Barrier *status.Barrier `json:"barrier,omitempty"`
	// Ahead is how many open tasks stand before the first of the key, or before a new
	// one if there is none. The log was looked through as far as Looked.
	Ahead  int `json:"ahead"`
	Looked int `json:"looked"`
	OfKey  int `json:"of_key"` // open tasks of the key
	// First is the first of them; absent: there is none.
	First    *Task            `json:"first,omitempty"`
	Findings []status.Finding `json:"findings"`
	// Queue is asynq's, where the tasks are: then nothing is said of them here.
	Queue string `json:"queue,omitempty"`
	// Topic says that the tasks are records of a topic of Kafka, whose keys the store does not have: Ahead, Looked
	// and OfKey say nothing then, and the key is in Partition only if its producer hashes as Kafka's own do.
	Topic bool `json:"topic,omitempty"`
	// WorkUnits says that the peers share work units, and Listed that the key is one: then there are no tasks.
	WorkUnits bool `json:"work_units,omitempty"`
	Listed    bool `json:"listed,omitempty"`
	// TasksUnknown says that nothing is known of tasks: see [status.Status].
	TasksUnknown bool `json:"tasks_unknown,omitempty"`
	// LedgerElsewhere says that nothing is known of owners: see [status.Status].
	LedgerElsewhere bool `json:"ledger_elsewhere,omitempty"`

	why []string
	now time.Time
}

// A Task is the one of the key that is next.
type Task struct {
	ID         string     `json:"id"`
	Position   int64      `json:"position"`
	Born       *time.Time `json:"born"`    // null: unknown
	Started    bool       `json:"started"` // its owner may be running it
	Suspect    bool       `json:"suspect"` // may have ended a former owner: it runs alone
	Tries      int        `json:"tries"`
	Waits      int        `json:"waits,omitempty"` // runs that waited, which are no tries
	Crashes    int        `json:"crashes"`
	NotBefore  *time.Time `json:"not_before,omitempty"` // parked until then
	FirstError string     `json:"first_error,omitempty"`

	parked time.Time // NotBefore, also in a year that JSON does not have
}

// Read explains key of name at that place.
func Read(ctx context.Context, at status.Place, name, key string) (Explanation, error) {
	client := at.Client
	s, err := at.Read(ctx, name)
	if err != nil {
		return Explanation{}, err
	}
	var queues queuestat.Queues
	var asynq, topic bool
	if client != nil {
		kind, err := redisconfig.KindOf(ctx, client, name)
		if err != nil {
			return Explanation{}, err
		}
		topic = kind == redisconfig.Topic
		if queues, asynq, err = queuestat.Read(ctx, client, name); err != nil {
			return Explanation{}, err
		}
	}
	if queues.Named() {
		return Explanation{}, fmt.Errorf("the partitions of %s are queues of asynq with names of their own: a task is where its producer has put it, whatever its key; see countoff status %s",
			name, name)
	}
	id, err := s.Config.Hash.Of(key, s.Config.Total)
	if err != nil {
		return Explanation{}, exit.With(exit.Usage, err)
	}
	if int(id) >= len(s.Partitions) { // of a topic: the ledger was looked at after the partitions
		return Explanation{}, fmt.Errorf("%s has just got more partitions, %d now: ask again", name, s.Config.Total)
	}
	census, err := at.Census(ctx, name)
	if err != nil {
		return Explanation{}, err
	}
	var history machine.History
	ledger, kept := at.Ledger.(transition.Historian)
	if at.Ledger == nil {
		if ledger, err = redisledger.New(client, name, redisledger.Config{Config: s.Config}); err != nil {
			return Explanation{}, err
		}
		kept = true
	}
	if kept {
		if history, err = ledger.History(ctx, machine.HistoryKept); err != nil {
			return Explanation{}, err
		}
	}
	if client == nil {
		return assemble(s, census, history.Moves(id), nil, id, key, time.Time{}), nil
	}
	var queue []redissource.Queued
	if !asynq && !topic && !s.Partitions[id].Unknown {
		if queue, err = redissource.Peek(ctx, client, name, id, peeked); err != nil {
			return Explanation{}, err
		}
	}
	brief, cancel := redisconfig.Half(ctx, client)
	defer cancel()
	now, err := client.Time(brief).Result()
	if err != nil { // of a cluster the node that is asked may not answer
		now = time.Now()
	}
	e := assemble(s, census, history.Moves(id), queue, id, key, now)
	e.Topic = topic
	if asynq {
		e.Queue = queues.Of(id)
	}
	if e.First != nil {
		tried, err := redissource.TriedOf(ctx, client, name, id, e.First.Position)
		if err != nil {
			return Explanation{}, err
		}
		e.First.tried(tried, now)
	}
	return e, nil
}

// assemble puts together what the store says.
func assemble(s status.Status, census transition.Census, moves []machine.Move, queue []redissource.Queued, id partition.ID, key string, now time.Time) Explanation {
	e := Explanation{
		Name: s.Name, Key: key, Hash: s.Config.Hash, Total: s.Config.Total, Partition: s.Partitions[id],
		Session: s.Partitions[id].Session, Roll: s.Roll.Version, GraceMS: s.GraceMS,
		Barrier: s.Barrier, TasksUnknown: s.TasksUnknown, LedgerElsewhere: s.LedgerElsewhere, WorkUnits: s.Table != nil,
		Why: []past.Entry{}, Looked: len(queue), Findings: []status.Finding{}, now: now,
	}
	for _, units := range s.Table {
		e.Listed = e.Listed || slices.Contains(units, key)
	}
	census = census.Apart()
	for _, m := range census.Roll.Members {
		for _, p := range m.Partitions {
			if p == id {
				e.Named = m.Peer
				e.NamedGone = !slices.ContainsFunc(census.Sessions, func(s machine.Seat) bool {
					return s.Session == m.Session && s.State != machine.Gone && s.Lease > 0
				})
			}
		}
	}
	peers := map[partition.Session]string{}
	for _, seat := range census.Sessions {
		peers[seat.Session] = seat.Peer
	}
	for _, m := range moves[max(0, len(moves)-movesTold):] {
		m.Peer, m.OtherPeer = cmp.Or(peers[m.Session], m.Peer), cmp.Or(peers[m.Other], m.OtherPeer)
		e.Why, e.why = append(e.Why, past.MoveOf(m)), append(e.why, past.MoveLine(m))
	}
	for _, q := range queue {
		switch {
		case q.Unread || q.Key != key:
			if e.First == nil {
				e.Ahead++
			}
		default:
			if e.OfKey++; e.First == nil {
				e.First = &Task{ID: q.ID, Position: q.Position, Born: past.Known(q.Born.UTC())}
			}
		}
	}
	for _, f := range s.Findings {
		about := len(f.Partitions) == 0
		for _, p := range f.Partitions {
			about = about || p == id
		}
		if about {
			e.Findings = append(e.Findings, f)
		}
	}
	return e
}

func (t *Task) tried(r redissource.Tried, now time.Time) {
	t.Started, t.Suspect, t.Tries, t.Waits, t.Crashes, t.FirstError = r.Started, r.Suspect, r.Tries, r.Waits, r.Crashes, r.FirstError
	if r.NotBefore.After(now) {
		t.parked = r.NotBefore.UTC()
		t.NotBefore = past.Known(t.parked)
	}
}

// Lines prints e for people.
func (e Explanation) Lines() []string {
	p := e.Partition
	unsure := ""
	if e.Topic {
		unsure = ", if its producer puts it where Kafka's own do"
	}
	lines := []string{
		fmt.Sprintf("key        %q", e.Key),
		fmt.Sprintf("partition  %v = %s(key) mod %d%s", p.ID, e.Hash, e.Total, unsure),
		"owner      " + e.owner(),
	}
	switch {
	case e.GraceMS > 0:
		lines = append(lines, fmt.Sprintf("roll       in grace: nobody gains a partition for %v", time.Duration(e.GraceMS)*time.Millisecond))
	case e.Roll == 0:
		lines = append(lines, "roll       none was sealed yet")
	case e.Named == "":
		lines = append(lines, fmt.Sprintf("roll       %d gives it to nobody", e.Roll))
	case e.NamedGone:
		lines = append(lines, fmt.Sprintf("roll       %d gave it to %s, who is gone", e.Roll, e.Named))
	default:
		lines = append(lines, fmt.Sprintf("roll       %d gives it to %s", e.Roll, e.Named))
	}
	lines = append(lines, "why")
	if len(e.why) == 0 {
		lines = append(lines, "  there is no history that says anything of it")
	}
	for _, w := range e.why {
		lines = append(lines, "  "+w)
	}
	lines = append(lines, "waits")
	for _, w := range e.waits() {
		lines = append(lines, "  "+w)
	}
	for _, f := range e.Findings {
		lines = append(lines, "WRONG  "+f.String())
	}
	return lines
}

func (e Explanation) owner() string {
	p := e.Partition
	switch {
	case e.LedgerElsewhere:
		return partitionmap.Nobody(status.Status{LedgerElsewhere: true})
	case p.Owner == "":
		return "nobody"
	}
	text := fmt.Sprintf("%s, epoch %d, session %s: ", p.Owner, p.Epoch, e.Session)
	if p.Unknown {
		return text + "so the ledger says"
	}
	switch p.State {
	case status.Owned:
		return text + "it works on it"
	case status.Opening:
		return text + "it was granted it and has not opened it yet"
	case status.Moving:
		return text + "it is to hand it over, another waits"
	case status.Double:
		return text + "but the data admits another's fence"
	}
	return text + p.State
}

// waits says what a task of the key waits for, in the order in which it will go away.
func (e Explanation) waits() []string {
	var out []string
	p := e.Partition
	switch {
	case p.Owner == "" && e.Barrier != nil:
		out = append(out, fmt.Sprintf("for all peers to stop before roll %d: %s has not yet", e.Barrier.Roll, e.Barrier.Behind[0].Peer))
	case e.LedgerElsewhere: // who works on it is not known
	case p.Owner == "":
		out = append(out, "for an owner: nothing of the partition is worked on")
	case p.State == status.Opening:
		out = append(out, "for its owner to open the partition")
	case p.State == status.Moving:
		out = append(out, "for the running handlers to end, if it is not running: the partition moves")
	}
	switch {
	case e.Listed:
		return append(out, "it is a work unit: its owner works on it for as long as it has it")
	case e.WorkUnits:
		return append(out, "the peers share work units, and this is none of them: it is not in their list, or was put there just now")
	case e.TasksUnknown:
		return append(out, "what else is not known: "+partitionmap.WhyUnknown(e.Hash))
	case p.Unknown:
		return append(out, "what else is not known: the partition cannot be read")
	}
	held := fmt.Sprintf("in the partition: pending %d, in flight %d, delayed %d", p.Pending, p.InFlight, p.Delayed)
	if e.Topic {
		return append(out, "which of its tasks are open is not known: they are records of a topic, which is not looked at", held)
	}
	behind := fmt.Sprintf("; %d of this key wait behind it", e.OfKey-1)
	switch {
	case e.Queue != "":
		out = append(out, fmt.Sprintf("for its turn in queue %q: the tools of asynq show what is in it", e.Queue))
	case e.First == nil:
		out = append(out, fmt.Sprintf("nothing of this key is open; a task put in now would stand behind %d of others", e.Ahead))
		if p.Delayed > 0 {
			out = append(out, fmt.Sprintf("whether one of the %d delayed is of this key was not looked at: countoff delayed list %s", p.Delayed, e.Name))
		}
	case !e.First.parked.IsZero():
		text := fmt.Sprintf("parked: task %s %s, runs again in %v", e.First.ID, e.First.past(), e.First.parked.Sub(e.now).Round(time.Millisecond))
		if e.First.FirstError != "" {
			text += fmt.Sprintf(" (%s)", e.First.FirstError)
		}
		out = append(out, text+behind)
	case e.First.Started && p.Owner == "":
		out = append(out, fmt.Sprintf("task %s may have begun at its last owner, and runs again at the next", e.First.ID)+behind)
	case e.First.Suspect && e.First.Started:
		out = append(out, fmt.Sprintf("task %s may be running, alone, since it may have ended a former owner", e.First.ID)+behind)
	case e.First.Suspect:
		out = append(out, fmt.Sprintf("task %s may have ended a former owner: it runs alone, when nothing else of the partition runs", e.First.ID)+behind)
	case e.First.Started:
		out = append(out, fmt.Sprintf("task %s may be running", e.First.ID)+behind)
	default:
		out = append(out, fmt.Sprintf("task %s stands behind %d of others", e.First.ID, e.Ahead)+behind)
	}
	if e.Looked >= peeked {
		out = append(out, fmt.Sprintf("only the first %d of the log were looked at", peeked))
	}
	return append(out, fmt.Sprintf("%s, dead %d", held, p.Dead))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// past is what became of the runs of t.
func (t *Task) past() string {
	switch {
	case t.Waits == 0:
		return "failed " + times(t.Tries)
	case t.Tries == 0:
		return "waited " + times(t.Waits)
	}
	return "failed " + times(t.Tries) + " and waited " + times(t.Waits)
}
