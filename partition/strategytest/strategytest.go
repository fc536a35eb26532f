package strategytest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Promise is more than every strategy has to keep.
type Promise int

// Stays promises that what was shared out among the same members before stays where it is.
const Stays Promise = 1

// worlds is how many memberships a strategy is asked for.
const worlds = 500

// patience is for a machine that is busy: a strategy is asked within a beat.
const patience = time.Minute

// Run holds strategies to the contract of partition.Strategy, and to promises. fresh returns one
// that has been asked nothing yet: two that are asked the same must say the same, as those of
// two processes must.
func Run(t *testing.T, fresh func() partition.Strategy, promises ...Promise) {
	t.Helper()
	if fresh().Name() == "" {
		t.Error("it has no name: peers tell it to each other")
	}
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		if wrong := w.verdict(fresh, promises); wrong != "" {
			t.Fatalf("membership %d: %s\nids %v\nmembers %+v\nprevious %v", seed, wrong, w.ids, w.members, w.previous)
		}
	}
}

// A world is what a strategy is asked about.
type world struct {
	ids      []partition.ID
	members  []partition.Member
	previous partition.Table
	dice     *rand.Rand
}

func newWorld(seed uint64) world {
	dice := rand.New(rand.NewPCG(seed, 0))
	w := world{dice: dice}
	for id := range partition.ID(1 + dice.IntN(60)) {
		w.ids = append(w.ids, id)
	}
	for i := range partition.ID(dice.IntN(6)) {
		w.ids = append(w.ids, partition.FirstUnit+i)
	}
	owners := []partition.Session{"", "gone"}
	n := dice.IntN(13)
	seats := dice.Perm(n + dice.IntN(4))
	for i := range n {
		m := partition.Member{
			Session: partition.Session(fmt.Sprintf("session%d", i)), Peer: fmt.Sprintf("peer%d", dice.IntN(2*n)),
			Index: dice.IntN(i + 1), Weight: dice.IntN(7) - 1, Down: dice.IntN(5) == 0, Seat: seats[i],
		}
		w.members = append(w.members, m)
		owners = append(owners, m.Session)
	}
	for _, seat := range seats[n:] { // nobody sits there
		w.members = append(w.members, partition.Member{Index: -1, Seat: seat, Down: true})
	}
	if dice.IntN(4) > 0 { // else it is the first roll
		w.previous = make(partition.Table)
		for _, id := range w.ids {
			if s := owners[dice.IntN(len(owners))]; s != "" {
				w.previous[id] = s
			}
		}
	}
	return w
}

// verdict is that of breach. One that does not answer would hold up the test of its package until its own time is
// over, and nobody would know what it was asked.
func (w world) verdict(fresh func() partition.Strategy, promises []Promise) (wrong string) {
	answer := make(chan string, 1)
	go func() {
		defer close(answer)
		answer <- w.breach(fresh, promises)
	}()
	select {
	case wrong = <-answer:
		return wrong
	case <-time.After(patience):
		return fmt.Sprintf("it has not answered after %v", patience)
	}
}

// breach returns what a strategy does that it must not; "" if nothing.
func (w world) breach(fresh func() partition.Strategy, promises []Promise) (wrong string) {
	defer func() {
		if p := recover(); p != nil {
			wrong = fmt.Sprintf("it panicked: %v", p)
		}
	}()
	s := fresh()
	ids, members, previous := slices.Clone(w.ids), slices.Clone(w.members), maps.Clone(w.previous)
	table := maps.Clone(s.Assign(ids, members, previous))
	if !slices.Equal(ids, w.ids) || !slices.Equal(members, w.members) || !maps.Equal(previous, w.previous) {
		return "it changed its arguments"
	}
	if wrong := w.owners(table); wrong != "" {
		return wrong
	}
	if again := s.Assign(ids, members, previous); !maps.Equal(again, table) {
		return fmt.Sprintf("asked again it gives another table: %v, then %v", table, again)
	}
	w.dice.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	w.dice.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	if other := fresh().Assign(ids, members, previous); !maps.Equal(other, table) {
		return fmt.Sprintf("another one, asked in another order, gives another table: %v and %v", table, other)
	}
	if slices.Contains(promises, Stays) {
		if again := s.Assign(w.ids, w.members, maps.Clone(table)); !maps.Equal(again, table) {
			return fmt.Sprintf("partitions move though nobody came or went: %v, then %v", table, again)
		}
	}
	return ""
}

// owners checks that each id has a member that lives, if one does, and that nothing else is said.
func (w world) owners(table partition.Table) string {
	lives := make(map[partition.Session]bool)
	for _, m := range w.members {
		if !m.Down {
			lives[m.Session] = true
		}
	}
	for _, id := range w.ids {
		session, given := table[id]
		switch {
		case len(lives) == 0 && given:
			return fmt.Sprintf("%v goes to %q, and nobody lives", id, session)
		case len(lives) > 0 && !given:
			return fmt.Sprintf("%v is not in the table", id)
		case len(lives) > 0 && !lives[session]:
			return fmt.Sprintf("%v goes to %q, who is no member or down", id, session)
		}
	}
	for id := range table {
		if !slices.Contains(w.ids, id) {
			return fmt.Sprintf("%v is in the table and was not asked for", id)
		}
	}
	return ""
}
