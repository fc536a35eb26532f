package simulation

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// worker is who really had handlers on a partition at a moment.
type worker struct {
	at      time.Time // of the store's wall clock
	id      partition.ID
	session partition.Session
	epoch   partition.Epoch
}

// TestHistoryTellsTheTruth runs worlds whose clock does not jump, notes at random
// moments who really works on a random partition, and wants the store's history
// to name him: afterwards, from what it has kept.
func TestHistoryTellsTheTruth(t *testing.T) {
	const seeds = 4
	asked, silent := 0, 0
	for _, mix := range Mixes() {
		if mix.Views || !steady(mix) {
			continue
		}
		for seed := uint64(1); seed <= seeds; seed++ {
			w := New(mix, seed, nil)
			random := rand.New(rand.NewPCG(seed, 99))
			var truth []worker
			for w.Next() {
				if random.IntN(20) == 0 {
					truth = append(truth, w.lookAt(partition.ID(random.IntN(w.config.Total)))...)
				}
			}
			history := w.store.History()
			if len(history) == machine.HistoryKept {
				t.Logf("%s, seed %d: the history was cut", mix.Name, seed)
			}
			for _, k := range truth {
				had := history.At(k.id, k.at)
				if had.Session != k.session { // it may have been handed over in the same millisecond
					had = history.At(k.id, k.at.Add(-time.Millisecond))
				}
				switch {
				case !had.Known:
					silent++ // the store had forgotten, or the history was cut
				case had.Session != k.session || had.Grant.Epoch != k.epoch || had.Dead:
					t.Fatalf("%s, seed %d: %v worked on partition %d under epoch %d at %v; the history says %+v",
						mix.Name, seed, k.session, k.id, k.epoch, k.at, had)
				default:
					asked++
				}
			}
		}
	}
	if asked < 1000 || silent > asked/4 {
		t.Errorf("of %d moments the history was silent about %d", asked+silent, silent)
	}
	t.Logf("%d moments, silent about %d", asked+silent, silent)
}

// steady reports whether nothing happens in a mix that makes several moments of the
// store's wall clock the same, or takes back what it has said: the history cannot know.
func steady(m Mix) bool { return m.Jumps+m.Setbacks == 0 }

// lookAt returns who has handlers on id now. A handler of a process that was stopped
// past its lease does not count: the fence keeps it off.
func (w *World) lookAt(id partition.ID) []worker {
	for _, p := range w.peers {
		if k := p.works[id]; p.runs() && !p.asleep && k.running && !k.excused {
			at := time.UnixMilli(w.store.at(w.now).Now)
			return []worker{{at: at, id: id, session: p.session, epoch: k.epoch}}
		}
	}
	return nil
}
