package framework

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
)

// Every partition and every unit has its turn, in as few looks as there must be, and none is
// asked for twice in one look.
func TestEveryPartitionHasItsTurn(t *testing.T) {
	for _, total := range []int{1, surveyed - 2, surveyed - 1, surveyed, surveyed + 1, 5*surveyed/2 - 2} {
		layout := partition.Config{Total: total, Units: []string{"bills", "mails"}}
		p := patrol{layout: layout}
		looks := (total + 2 + surveyed - 1) / surveyed
		asked := map[partition.ID]bool{}
		for range looks {
			ids := p.turn()
			for _, id := range ids {
				asked[id] = true
			}
			slices.Sort(ids) // what a survey is given is its own
			if n := len(slices.Compact(ids)); n != min(surveyed, total+2) {
				t.Errorf("%d partitions and 2 units: one look asks for %d", total, n)
			}
		}
		for _, id := range layout.IDs() {
			if !asked[id] {
				t.Fatalf("%d partitions and 2 units: after %d looks nobody has asked for %v", total, looks, id)
			}
		}
	}
}

// laidOut is a ledger of a name of which nothing stands but its layout.
type laidOut struct {
	transition.Ledger
	layout partition.Config
}

func (l *laidOut) Census(context.Context) (transition.Census, error) {
	return transition.Census{Config: l.layout}, nil
}

// What the broker has added since this peer started is looked at like the rest.
func TestPartitionsThatWereAddedAreLookedAt(t *testing.T) {
	ledger := &laidOut{layout: partition.Config{Total: 4}}
	var asked []partition.ID
	p := patrol{
		lead: lead{ledger: ledger}, layout: ledger.layout, timing: transition.Timing{}.WithDefaults(), observe: func(Event) {},
		wrong: map[coverage.Kind]time.Time{}, data: map[partition.ID]coverage.Datum{},
		survey: func(_ context.Context, ids []partition.ID) ([]coverage.Datum, error) {
			asked = ids
			return nil, nil
		},
	}
	p.look(t.Context())
	ledger.layout.Total = 6
	p.look(t.Context())
	p.look(t.Context())
	if len(asked) != 6 {
		t.Errorf("of 6 partitions %v are asked for", asked)
	}
}

// A name may have fewer partitions than at the last look: a store that has lost its memory knows nothing of
// those that the broker added, and the ledger says what it was made with.
func TestPartitionsThatAreForgottenAreNotLookedAt(t *testing.T) {
	t.Parallel()
	d := &district{}
	p, _ := d.patrol(8)
	d.data[7] = coverage.Datum{Waiting: true} // asked for first: the next turn ends before it
	p.look(t.Context())
	p.look(t.Context())
	d.layout.Total = 4
	delete(d.data, 7)
	p.look(t.Context())
	p.look(t.Context())
	if slices.Sort(d.asked); !slices.Equal(d.asked, d.layout.IDs()) {
		t.Errorf("of 4 partitions %v are asked for", d.asked)
	}
}

// A district is a ledger and the data of a name, all of which is granted to one peer and opened by it,
// but for what is in data.
type district struct {
	laidOut
	data        map[partition.ID]coverage.Datum
	asked       []partition.ID // by the last look
	down, still error          // of the ledger; of the data
}

func (d *district) Census(context.Context) (transition.Census, error) {
	if d.down != nil {
		return transition.Census{}, d.down
	}
	owner := machine.Seat{Session: "s", Peer: "ann", Lease: time.Hour, State: machine.Live}
	c := transition.Census{Config: d.layout, Sessions: []machine.Seat{owner}}
	for _, id := range d.layout.IDs() {
		c.Grants = append(c.Grants, machine.Ownership{Grant: partition.Grant{ID: id, Epoch: 1}, Session: owner.Session})
	}
	slices.Reverse(c.Grants) // a ledger lists them in any order
	return c, nil
}

func (d *district) survey(_ context.Context, ids []partition.ID) ([]coverage.Datum, error) {
	d.asked = slices.Clone(ids)
	var all []coverage.Datum
	for _, id := range ids {
		datum, special := d.data[id]
		if !special {
			datum.Fence = partition.Token{Epoch: 1, Session: "s"}
		}
		datum.ID = id
		all = append(all, datum)
	}
	return all, d.still
}

// patrol looks at so many partitions, of which one look asks for a part.
func (d *district) patrol(partitions int) (p *patrol, seen *recorder) {
	seen = &recorder{}
	d.layout = partition.Config{Total: partitions}
	d.data = map[partition.ID]coverage.Datum{}
	return &patrol{
		lead: lead{ledger: d}, survey: d.survey, layout: d.layout, timing: transition.Timing{}.WithDefaults(), observe: seen.Observe,
		wrong: map[coverage.Kind]time.Time{}, data: map[partition.ID]coverage.Datum{}, began: time.Now(),
	}, seen
}

// during goes on looking for so long.
func (p *patrol) during(ctx context.Context, long time.Duration) {
	for began := time.Now(); time.Since(began) < long; {
		time.Sleep(p.look(ctx))
	}
}

// That a partition with tasks is not opened is found in a name of any size, though most looks
// ask for others; and not while nothing waits in it.
func TestWhatIsNotOpenedIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"few": 8, "many": 5 * surveyed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &district{}
				p, seen := d.patrol(partitions)
				d.data[5] = coverage.Datum{}
				p.during(t.Context(), time.Minute)
				if told := of[Uncovered](seen); len(told) != 0 {
					t.Fatalf("told %v, and nothing waits", told)
				}
				d.data[5] = coverage.Datum{Waiting: true}
				looks := 0
				for ; p.look(t.Context()) != p.timing.Settle; looks++ { // it may become a finding, and is looked at more often
					if looks == 10 {
						t.Fatalf("after %d looks nobody looks more often", looks)
					}
				}
				p.during(t.Context(), 2*time.Minute)
				told := of[Uncovered](seen)
				if len(told) != 1 || told[0].Finding.Kind != coverage.Overdue || !slices.Equal(told[0].Finding.Partitions, []partition.ID{5}) {
					t.Fatalf("told %v, want once that 5 is not opened", told)
				}
				delete(d.data, 5)
				p.during(t.Context(), time.Minute)
				if told := of[Covered](seen); len(told) != 1 {
					t.Errorf("it is opened, and told %d times", len(told))
				}
			})
		})
	}
}

// Of a cluster a survey reads the first that it is asked for, and one more, in turn: what is not opened is found there too.
func TestWhatIsNotOpenedIsFoundOnACluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &district{}
		p, seen := d.patrol(8)
		looks := 0
		p.survey = func(ctx context.Context, ids []partition.ID) ([]coverage.Datum, error) {
			looks++
			all, err := d.survey(ctx, ids)
			return []coverage.Datum{all[0], all[1+looks%(len(all)-1)]}, err
		}
		d.data[5] = coverage.Datum{Waiting: true}
		p.during(t.Context(), 2*time.Minute)
		if told := of[Uncovered](seen); len(told) != 1 || !slices.Equal(told[0].Finding.Partitions, []partition.ID{5}) {
			t.Errorf("told %v, want once that 5 is not opened", told)
		}
	})
}

// On a cluster that one is not opened is over once it is, and not while another is not for a moment, or the node that
// has the first does not answer.
func TestWhatIsNotOpenedOnAClusterIsNotOverBeforeItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &district{}
		p, seen := d.patrol(8)
		looks, away := 0, false
		p.survey = func(ctx context.Context, ids []partition.ID) ([]coverage.Datum, error) {
			looks++
			all, err := d.survey(ctx, ids)
			two := []coverage.Datum{all[0], all[1+looks%(len(all)-1)]}
			if away {
				return two[1:], err
			}
			return two, err
		}
		d.data[5] = coverage.Datum{Waiting: true}
		p.during(t.Context(), 2*time.Minute)
		d.data[2] = coverage.Datum{Waiting: true}
		for p.look(t.Context()); !slices.Contains(p.again, 2); {
			p.look(t.Context())
		}
		p.look(t.Context())
		delete(d.data, 2)
		p.during(t.Context(), time.Minute)
		away = true
		p.look(t.Context())
		away = false
		p.during(t.Context(), time.Minute)
		if told, over := of[Uncovered](seen), of[Covered](seen); len(told) != 1 || len(over) != 0 {
			t.Fatalf("told %v, and that it is over %d times, want once that 5 is not opened", told, len(over))
		}
		delete(d.data, 5)
		p.during(t.Context(), time.Minute)
		if over := of[Covered](seen); len(over) != 1 {
			t.Errorf("it is opened, and told %d times", len(over))
		}
	})
}

// However many have tasks, or are not opened, all have their turn.
func TestWhatIsNotOpenedLeavesOthersTheirTurn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		datum coverage.Datum
		looks int // until all were asked for
	}{
		"all are opened, and have tasks": {coverage.Datum{Fence: partition.Token{Epoch: 1, Session: "s"}, Waiting: true}, 4},
		"none is opened":                 {coverage.Datum{Waiting: true}, 8},
	} {
		d := &district{}
		p, _ := d.patrol(4 * surveyed)
		for _, id := range d.layout.IDs() {
			d.data[id] = c.datum
		}
		asked := map[partition.ID]bool{}
		for range c.looks {
			p.look(t.Context())
			for _, id := range d.asked {
				asked[id] = true
			}
			slices.Sort(d.asked)
			if n := len(slices.Compact(d.asked)); n != surveyed {
				t.Errorf("%s: a look asks for %d, want %d", what, n, surveyed)
			}
		}
		if len(asked) != d.layout.Total {
			t.Errorf("%s: in %d looks %d of %d were asked for", what, c.looks, len(asked), d.layout.Total)
		}
	}
}

// What was read of a partition stands while looks ask for others, or get no answer; and what was wrong
// twice is told with the time that each took.
func TestWhatIsKnownStandsUntilItIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &district{}
		p, seen := d.patrol(2 * surveyed)
		none := errors.New("no answer")
		for n := 1; n <= 2; n++ {
			d.data[5] = coverage.Datum{Fence: partition.Token{Epoch: 2, Session: "t"}}
			p.during(t.Context(), 20*time.Second)
			d.down = none
			p.during(t.Context(), 20*time.Second)
			d.down, d.still = nil, none
			p.during(t.Context(), 20*time.Second)
			d.still = nil
			if told := of[Uncovered](seen); len(told) != n || told[n-1].Finding.Kind != coverage.Double {
				t.Fatalf("told %v, want %d times that 5 has two owners", told, n)
			}
			if told := of[Covered](seen); len(told) != n-1 {
				t.Fatalf("told %d times that all is well, and nobody has said so", len(told))
			}
			delete(d.data, 5)
			p.during(t.Context(), 20*time.Second)
			took := 60 * time.Second
			if told := of[Covered](seen); len(told) != n || told[n-1].Took < took-p.timing.Beat() || told[n-1].Took > took+2*p.timing.Beat() {
				t.Errorf("told %+v, want that it took some %v, %d times", told, took, n)
			}
		}
	})
}

// Who comes to look again after another did knows nothing, and tells anew what is wrong by then.
func TestWhoComesBackLooksAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &district{}
		p, seen := d.patrol(2 * surveyed)
		var away atomic.Bool
		p.view = func() partition.View {
			if away.Load() {
				return partition.View{Index: 1}
			}
			return partition.View{}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go p.run(ctx)
		two := coverage.Datum{Fence: partition.Token{Epoch: 2, Session: "t"}}
		for _, c := range []struct {
			data coverage.Datum
			away bool
			told int // so often, that it has two owners
		}{
			{data: two, told: 1},
			{data: two, away: true, told: 1},
			{data: two, told: 2},
			{away: true, told: 2},
			{told: 2},
		} {
			if d.data[5] = c.data; c.data == (coverage.Datum{}) {
				delete(d.data, 5)
			}
			away.Store(c.away)
			time.Sleep(time.Minute)
			synctest.Wait()
			relieved := of[Relieved](seen)
			if told := of[Uncovered](seen); len(told) != c.told || len(relieved) > c.told || c.away && len(relieved) != c.told {
				t.Errorf("told %d times that something is wrong, and %d times that it is another's to tell, want %d", len(told), len(relieved), c.told)
			}
		}
	})
}

// A delayed is a ledger whose census has another moment between the answer and who asked.
type delayed struct {
	transition.Ledger
	then func()
}

func (d *delayed) Census(ctx context.Context) (transition.Census, error) {
	defer d.then()
	return d.Ledger.Census(ctx)
}

// A peer that was stopped, and goes on, has not seen what it saw before last meanwhile: it was mended, perhaps, and what
// is there now is another's. It is told if it lasts from then on.
func TestWhoStoodStillHasSeenNothing(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"between two looks", "when the ledger had answered"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &district{}
				p, seen := d.patrol(8)
				d.data[5] = coverage.Datum{Waiting: true}
				var looks atomic.Int32
				step := func(at string) {
					if at == place && looks.Add(1) == 2 {
						time.Sleep(time.Minute) // the process stands still
					}
				}
				p.lead.ledger = &delayed{d, func() { step("when the ledger had answered") }}
				p.view = func() partition.View {
					step("between two looks")
					return partition.View{}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go p.run(ctx)
				time.Sleep(time.Minute + p.timing.Takeover()/2)
				synctest.Wait()
				if told := of[Uncovered](seen); looks.Load() < 3 || len(told) != 0 {
					t.Fatalf("in %d looks told %v, want nothing of what it has not seen last", looks.Load(), told)
				}
				time.Sleep(p.timing.Takeover())
				synctest.Wait()
				if told := of[Uncovered](seen); len(told) != 1 {
					t.Errorf("told %v, want once that 5 is not opened", told)
				}
			})
		})
	}
}
