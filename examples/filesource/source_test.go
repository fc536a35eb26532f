//go:build unix

package filesource

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
		src := &Source{Dir: t.TempDir(), Partitions: 4}
		return sourcetest.Harness{
			Peer: func() sourcetest.Peer { return sourcetest.Peer{Source: &Source{Dir: src.Dir, Partitions: 4}} },
			Push: func(_ context.Context, id partition.ID, tasks ...sources.Task) error { return src.Append(id, tasks...) },
			Dead: func(_ context.Context, id partition.ID) (list []sourcetest.DeadLetter, err error) {
				err = src.Change(id, func(f *File) error {
					for _, d := range f.Dead {
						list = append(list, sourcetest.DeadLetter(d))
					}
					return nil
				})
				return list, err
			},
			Lacks:  []sourcetest.Ability{sourcetest.CountCrashes},
			Moment: 30 * time.Millisecond, // longer than it sleeps
		}
	})
}
