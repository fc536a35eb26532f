// Package past prints the history of a name: for people, and for scripts. `countoff history`
// and the dashboard tell it in the same words.
package past

import (
	"fmt"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// Known returns t for JSON: nil if it is not known, or in none of the years 0 to 9999. JSON has no
// others, and one odd time would take all that is printed with it.
func Known(t time.Time) *time.Time {
	if y := t.Year(); t.IsZero() || y < 0 || y > 9999 {
		return nil
	}
	return &t
}

// An Entry is what --json prints of one entry.
type Entry struct {
	At         *time.Time        `json:"at"`
	What       machine.Change    `json:"what"`
	Peer       string            `json:"peer,omitempty"`
	Session    partition.Session `json:"session,omitempty"`
	From       string            `json:"from,omitempty"` // peer of the former owner
	FromOf     partition.Session `json:"from_session,omitempty"`
	Partitions []Passed          `json:"partitions,omitempty"`
	SilentMS   int64             `json:"silent_ms,omitempty"` // of expired
	Roll       uint64            `json:"roll,omitempty"`      // of sealed
	Replicas   int               `json:"replicas,omitempty"`
	WaitedMS   int64             `json:"waited_ms,omitempty"` // of one partition: since its new owner asked
	PauseMS    int64             `json:"pause_ms,omitempty"`  // of one partition: nobody can have worked on it
	Paused     bool              `json:"paused,omitempty"`    // of one partition: given up as the name was paused
}

// A Passed is one partition of an entry.
type Passed struct {
	ID     partition.ID    `json:"id"`
	Epoch  partition.Epoch `json:"epoch"`
	Former partition.Epoch `json:"former,omitempty"`
}

// EntryOf returns e for --json.
func EntryOf(e machine.Entry) Entry {
	out := Entry{
		At: Known(e.At.UTC()), What: e.What, Peer: e.Peer, Session: e.Session, From: e.OtherPeer, FromOf: e.Other,
		SilentMS: e.Silent.Milliseconds(), Roll: e.Version, Replicas: e.Replicas,
	}
	for _, p := range e.Grants {
		out.Partitions = append(out.Partitions, Passed{p.Grant.ID, p.Grant.Epoch, p.Former})
	}
	return out
}

// MoveOf returns m for --json.
func MoveOf(m machine.Move) Entry {
	out := EntryOf(m.Entry)
	out.WaitedMS, out.PauseMS, out.Paused = m.Waited.Milliseconds(), m.Pause.Milliseconds(), m.Paused
	return out
}

// Line prints e, of a name with the layout cfg, in one line.
func Line(e machine.Entry, cfg partition.Config) string {
	return stamp(e.At) + "  " + sentence(e, what(e, cfg))
}

// MoveLine prints what happened to one partition in one line.
func MoveLine(m machine.Move) string {
	line := stamp(m.At) + "  "
	if m.Grant.Epoch > 0 {
		line += sentence(m.Entry, m.Grant.String())
	} else {
		line += sentence(m.Entry, "")
	}
	if m.Paused {
		line += ", as the name was paused"
	}
	if m.Waited > 0 {
		line += fmt.Sprintf(", which had waited for %v", m.Waited)
	}
	if m.Pause > 0 {
		line += fmt.Sprintf(", after a pause of at most %v", m.Pause)
	}
	return line
}

// sentence says what e tells, of what.
func sentence(e machine.Entry, what string) string {
	switch e.What {
	case machine.Granted:
		return fmt.Sprintf("%s got %s, which was nobody's", e.Peer, what)
	case machine.Took:
		return fmt.Sprintf("%s took over %s from %s, whose lease had run out", e.Peer, what, who(e.OtherPeer))
	case machine.HeldAgain:
		if e.Other == "" {
			return fmt.Sprintf("%s said again that it holds %s", e.Peer, what)
		}
		return fmt.Sprintf("%s said again that it holds %s, which stood as %s's", e.Peer, what, who(e.OtherPeer))
	case machine.Handed:
		return fmt.Sprintf("%s handed %s over to %s", who(e.OtherPeer), what, e.Peer)
	case machine.GivenUp:
		return fmt.Sprintf("%s gave %s up, which was nobody's then", e.Peer, what)
	case machine.Asked:
		return fmt.Sprintf("%s asked %s for %s", e.Peer, who(e.OtherPeer), what)
	case machine.Came:
		return fmt.Sprintf("%s joined", e.Peer)
	case machine.Leaves:
		return fmt.Sprintf("%s leaves, and hands over what it has", e.Peer)
	case machine.Went:
		return fmt.Sprintf("%s is gone, in good order", e.Peer)
	case machine.Expired:
		return fmt.Sprintf("%s: its lease ran out, %v after its last word", e.Peer, e.Silent)
	case machine.RollMade:
		of := "peers"
		if e.Replicas == 1 {
			of = "peer"
		}
		return fmt.Sprintf("roll %d was sealed, of %d %s", e.Version, e.Replicas, of)
	case machine.Made:
		return "the name was made"
	case machine.Forgot:
		return "the store had no memory of the name, or half of one: owners say again what they hold"
	case machine.Restarted:
		return "the store is another run: owners say again what they hold"
	case machine.Rests:
		return "the name was paused: each peer ends what runs, and gives up what it has"
	case machine.GoesOn:
		return "the name was resumed"
	case machine.Dismissal:
		return fmt.Sprintf("%s was drained: others take over what it has", e.Peer)
	case machine.Recall:
		return fmt.Sprintf("%s was recalled: it gets its share", e.Peer)
	}
	return strings.TrimSpace(string(e.What) + " " + e.Peer + " " + what)
}

func who(peer string) string {
	if peer == "" {
		return "somebody unknown"
	}
	return peer
}

// what is e about: ranges of partitions, and ingress lists by their names.
func what(e machine.Entry, cfg partition.Config) string {
	var ids []partition.ID
	var units []string
	for _, p := range e.Grants {
		if unit := cfg.Unit(p.Grant.ID); unit != "" {
			units = append(units, unit)
		} else {
			ids = append(ids, p.Grant.ID)
		}
	}
	return strings.TrimSpace(partition.Ranges(ids) + " " + strings.Join(units, " "))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// A Tenure is what --json prints of who owned a partition at a time.
type Tenure struct {
	At        time.Time         `json:"at"`
	Partition partition.ID      `json:"partition"`
	Known     bool              `json:"known"` // false: the history does not say
	Owner     string            `json:"owner"` // peer id; empty: nobody
	Session   partition.Session `json:"session,omitempty"`
	Epoch     partition.Epoch   `json:"epoch,omitempty"`
	Since     *time.Time        `json:"since"`
	How       machine.Change    `json:"how,omitempty"`
	From      string            `json:"from,omitempty"`
	Dead      bool              `json:"dead"` // the owner's lease had run out
}

// TenureOf returns t for --json.
func TenureOf(id partition.ID, at time.Time, t machine.Tenure) Tenure {
	return Tenure{
		At: at.UTC(), Partition: id, Known: t.Known, Owner: t.Peer, Session: t.Session, Epoch: t.Grant.Epoch,
		Since: Known(t.Since.UTC()), How: t.How, From: t.From, Dead: t.Dead,
	}
}

// TenureLine says in one line who owned partition id at the instant at.
func TenureLine(id partition.ID, at time.Time, t machine.Tenure) string {
	head := fmt.Sprintf("partition %v at %s: ", id, stamp(at))
	switch {
	case !t.Known && t.How == machine.Forgot:
		return head + "unknown: the store had forgotten at " + stamp(t.Since) + ", and its owner had not said again what it holds"
	case !t.Known:
		return head + "unknown: the history does not reach back so far"
	case t.Session == "":
		return head + "nobody's, since " + stamp(t.Since)
	case t.Dead:
		return fmt.Sprintf("%snobody's: %s, whose it was (epoch %d), had let its lease run out", head, t.Peer, t.Grant.Epoch)
	}
	return fmt.Sprintf("%s%s, epoch %d, since %s (%s)", head, t.Peer, t.Grant.Epoch, stamp(t.Since), t.How)
}
