package kafkaprogress

import (
	"flag"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/progress/progresstest"
)

var (
	seeds = flag.Uint64("progress.seeds", 60, "how many seeds each mix runs")
	seed  = flag.Uint64("progress.seed", 0, "the one seed to run, with its transcript; 0: all")
)

// kept is a table as a progresstest.Store, of which every owner finds no more than what
// the one before it has written.
type kept struct {
	*testing.T
	table *table
	now   time.Time
}

func newKept(t *testing.T) *kept { return &kept{T: t, table: newTable(0), now: time.Unix(1, 0)} }

func (k *kept) Push(string)                {}
func (k *kept) Move() []string             { return nil }
func (k *kept) Read(int64, int64) []string { return nil }
func (k *kept) Close(tok partition.Token)  { k.own(tok, k.table.clear) }
func (k *kept) own(t partition.Token, do func()) {
	if k.table.token == t {
		do()
	}
}

// reread makes the table what its metadata says.
func (k *kept) reread() {
	k.Helper()
	metadata, whole := k.table.encode(4096, k.now)
	if !whole || len(metadata) > 4096 {
		k.Fatalf("%d characters, whole %v", len(metadata), whole)
	}
	t, err := decode(metadata, k.now)
	if err != nil {
		k.Fatal(err)
	}
	k.table = t
}

func (k *kept) Open(tok partition.Token) progresstest.Opened {
	k.reread()
	if !k.table.install(tok) {
		return progresstest.Opened{Refused: true}
	}
	f := k.table.found(k.now)
	o := progresstest.Opened{Opened: f.Opened, Tried: map[int64]progresstest.Tried{}}
	for pos, t := range f.Tried {
		o.Tried[pos] = progresstest.Tried{Tries: t.Tries, Crashes: t.Crashes}
	}
	for _, pos := range f.Lifted {
		o.Lifted = append(o.Lifted, progresstest.Lifted{Position: pos})
	}
	return o
}

func (k *kept) Settle(tok partition.Token, r *progress.Request, content []string) (a progress.Answer) {
	a.Status = progress.Stale
	k.own(tok, func() {
		c := make([]progress.Content, len(content))
		for i := range c {
			c[i].Error = "no luck"
		}
		a, _ = k.table.settle(r, c, k.now)
	})
	return a
}

func (k *kept) State() progresstest.State {
	f := k.table.found(k.now)
	s := progresstest.State{Base: f.Base, Gate: k.table.gate, Done: f.Done, Tries: len(f.Tried)}
	for _, pos := range f.Lifted {
		s.Lifted = append(s.Lifted, progresstest.Lifted{Position: pos})
	}
	return s
}

// The table keeps what the reference in memory keeps, in the same worlds, also when every
// owner knows nothing but the metadata.
func TestTableInTheWorld(t *testing.T) {
	for _, mix := range progresstest.Mixes {
		if mix == progresstest.Failover {
			continue // of a list
		}
		t.Run(string(mix), func(t *testing.T) {
			for n := uint64(1); n <= *seeds; n++ {
				if *seed != 0 {
					n = *seed
				}
				transcript, violated := progresstest.Run(mix, n, newKept(t), false)
				if violated != "" {
					t.Fatalf("%s\n%s\nagain with -progress.seed=%d", transcript, violated, n)
				}
				if *seed != 0 {
					t.Log(transcript)
					return
				}
			}
		})
	}
}
