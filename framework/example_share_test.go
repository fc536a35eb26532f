package framework_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
		ended := make(chan error, 1)
		go func() { ended <- share.Run(ctx) }()
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
			names, _ := filepath.Glob(filepath.Join(dir, "*.pdf"))
			for _, name := range names {
				a, mine := share.Admit(ctx, name)
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
