package poller_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/countoff/countoff/examples/poller"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// An owner that was replaced and does not know it goes on with none of the customer's rows: the
// next one may be untouched yet, and the table would let him have it, before the one that his
// successor has.
func TestAnOwnerThatWasReplaced(t *testing.T) {
	for _, c := range []struct{ name, refuses, want string }{
		{"before he began", "SET epoch", "[]"},
		{"while he worked", "SET done", "[1]"},
		{"not at all", "nothing", "[1 2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			layout, timing := partition.Config{Total: 1}, transition.Timing{}
			share, err := framework.NewShare("orders", framework.ShareConfig{
				Ledger: memledger.New(layout, timing, memledger.Options{}), Partitions: layout, Timing: timing,
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var peer sync.WaitGroup
			defer peer.Wait()
			defer cancel()
			peer.Go(func() {
				if err := share.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			for owned := false; !owned; {
				a, mine := share.Admit(ctx, "ann")
				if owned = mine; mine {
					a.Release()
				}
			}
			onePass, end := context.WithCancel(ctx)
			defer end()
			db := sql.OpenDB(&twoRows{refuses: c.refuses, again: end})
			defer db.Close()
			var worked []int64
			err = poller.Poll(onePass, db, share, func(_ context.Context, id int64) error {
				worked = append(worked, id)
				return nil
			})
			if !errors.Is(err, context.Canceled) || fmt.Sprint(worked) != c.want {
				t.Errorf("worked on %v, %v; want %s", worked, err, c.want)
			}
		})
	}
}

// twoRows is a table with two rows of one customer, which is as if somebody else had the first
// where an UPDATE says what it refuses.
type twoRows struct {
	refuses string
	again   func() // the second pass has begun
	passes  int
}

func (d *twoRows) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *twoRows) Driver() driver.Driver                        { return nil }
func (d *twoRows) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (d *twoRows) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (d *twoRows) Close() error                                 { return nil }

func (d *twoRows) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	if d.passes++; d.passes > 1 {
		d.again()
		return nil, context.Canceled
	}
	return &twoOpen{}, ctx.Err()
}

func (d *twoRows) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	first := false
	for _, a := range args {
		first = first || a.Value == int64(1) && (a.Ordinal == 2) == strings.Contains(query, "SET epoch")
	}
	if first && strings.Contains(query, d.refuses) {
		return driver.RowsAffected(0), nil
	}
	return driver.RowsAffected(1), nil
}

type twoOpen struct{ id int64 }

func (r *twoOpen) Columns() []string { return []string{"id", "customer"} }
func (r *twoOpen) Close() error      { return nil }

func (r *twoOpen) Next(row []driver.Value) error {
	if r.id++; r.id > 2 {
		return io.EOF
	}
	row[0], row[1] = r.id, "ann"
	return nil
}
