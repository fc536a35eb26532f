package framework_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A loop over files: each is one peer's at a time, by its name. It is the same for the rows of a
// table, with what stands in their key column.
func ExampleShare() {
	files := func(ctx context.Context, ledger transition.Ledger, dir string) error {
		share, err := framework.NewShare("invoices", framework.ShareConfig{Ledger: ledger})
		if err != nil {
			return err
		}
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			defer stop() // a share that cannot go on admits nothing more
			ended <- share.Run(ctx)
		}()
		for tick := time.NewTicker(time.Second); run.Err() == nil; <-tick.C {
			names, _ := filepath.Glob(filepath.Join(dir, "*.pdf"))
			for _, name := range names {
				a, mine := share.Admit(run, name)
				if !mine {
					continue
				}
				// Work under a.Context(); a.Token is for whatever can refuse older ones.
				if a.Context().Err() == nil {
					os.Remove(name)
				}
				a.Release()
			}
		}
		return <-ended
	}
	_ = files
}

// The same loop with the bare pair, for who wants only that: this peer's index and how many
// replicas there are. Nothing waits for anybody here: while the pair changes, two peers may work
// on one file, or none. A Share has neither.
func ExampleShare_bareIndex() {
	files := func(ctx context.Context, ledger transition.Ledger, dir string) error {
		roster, err := transition.NewRoster(transition.Config{Ledger: ledger})
		if err != nil {
			return err
		}
		var pair atomic.Pointer[partition.View]
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			defer stop() // a roster that cannot go on tells no other pair
			ended <- roster.Index(ctx, func(v partition.View) { pair.Store(&v) })
		}()
		for tick := time.NewTicker(time.Second); run.Err() == nil; <-tick.C {
			v := pair.Load()
			names, _ := filepath.Glob(filepath.Join(dir, "*.pdf"))
			for _, name := range names {
				if v != nil && v.Index >= 0 && int(partition.Of(name, v.Replicas)) == v.Index {
					os.Remove(name)
				}
			}
		}
		return <-ended
	}
	_ = files
}

// A backup that one of all peers makes, another if that one dies.
func ExampleSingle() {
	backup := func(ctx context.Context, ledger transition.Ledger) error {
		return framework.Single(ctx, "backup", framework.ShareConfig{Ledger: ledger},
			func(ctx context.Context, t partition.Token) error {
				for tick := time.NewTicker(time.Hour); ; {
					select {
					case <-tick.C:
						fmt.Println("a backup under", t)
					case <-ctx.Done():
						return nil
					}
				}
			}, nil)
	}
	_ = backup
}
