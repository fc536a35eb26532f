package sourcetest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// redelivery is the harness's own word: the reference hands out nothing again.
const redelivery = 100 * time.Millisecond

// memory is a harness over the reference, with every ability.
func memory(t testing.TB) (Harness, *memsource.Store) {
	t.Helper()
	store, err := memsource.New(memsource.Config{Partitions: partition.Config{Total: 4}})
	if err != nil {
		t.Fatal(err)
	}
	h := Harness{
		Peer: func() Peer {
			line := new(Line)
			src := store.Via(func(ctx context.Context, op string, execute func()) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return line.DoContext(ctx, execute, Op(op))
			})
			return Peer{Source: src, Inject: line.Inject, Kill: line.Kill}
		},
		Push: func(_ context.Context, id partition.ID, tasks ...sources.Task) error {
			return store.PushTo(id, tasks...)
		},
		Dead: func(_ context.Context, id partition.ID) ([]DeadLetter, error) {
			var list []DeadLetter
			for _, d := range store.Dead(id) {
				list = append(list, DeadLetter{Task: d.Task, Reason: d.Reason})
			}
			return list, nil
		},
		Snapshot: func(context.Context) (func(context.Context) error, error) {
			s := store.Snapshot()
			return func(context.Context) error { store.Restore(s); return nil }, nil
		},
		Redelivery: redelivery,
	}
	return h, store
}

// A nil pointer is no stream, though it is no nil interface: what the suite says of one names the
// mistake, and not the first call that panics on it.
func TestANilPointerIsNoStream(t *testing.T) {
	st, err := watched{Source: hollow{}, s: new(scene)}.Open(t.Context(), partition.Grant{}, partition.Token{})
	if st != nil || err != nil {
		t.Errorf("open returned %T, %v, want that there is none", st, err)
	}
}

// hollow is a source whose streams are nil pointers.
type hollow struct{ sources.Source }

func (hollow) Open(context.Context, partition.Grant, partition.Token) (sources.Stream, error) {
	return (*brokenStream)(nil), nil
}
