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
	"testing/synctest"
	"time"

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
			onePass, end := context.WithCancel(t.Context())
			defer end()
			share := alone(t)
			db := sql.OpenDB(&openRows{n: 2, refuses: c.refuses, again: end})
			defer db.Close()
			var worked []int64
			err := poller.Poll(onePass, db, share, func(_ context.Context, id int64) error {
				worked = append(worked, id)
				return nil
			})
			if !errors.Is(err, context.Canceled) || fmt.Sprint(worked) != c.want {
				t.Errorf("worked on %v, %v; want %s", worked, err, c.want)
			}
		})
	}
}

// While a row is worked on no query is open: it would keep a connection, and where the pool has no
// other the pollers would wait for it without end. All rows are worked on in one pass all the same.
func TestNoQueryIsOpenWhileARowIsWorkedOn(t *testing.T) {
	const rows = 2500
	onePass, end := context.WithCancel(t.Context())
	defer end()
	share := alone(t)
	db := sql.OpenDB(&openRows{n: rows, refuses: "nothing", again: end})
	defer db.Close()
	last := int64(0)
	err := poller.Poll(onePass, db, share, func(_ context.Context, id int64) error {
		if n := db.Stats().InUse; n > 0 {
			return fmt.Errorf("%d connections are in use while row %d is worked on", n, id)
		}
		if id != last+1 {
			return fmt.Errorf("row %d after %d", id, last)
		}
		last = id
		return nil
	})
	if !errors.Is(err, context.Canceled) || last != rows {
		t.Errorf("worked on %d rows of %d: %v", last, rows, err)
	}
}

// A database that does not answer, as behind a link that swallows what is sent, ends the poll with an
// error, whichever statement waits: else the peer would keep its customers for good, and nobody would
// work on their rows. How long work takes is its own affair.
func TestADatabaseThatDoesNotAnswer(t *testing.T) {
	for _, statement := range []string{"SELECT", "SET epoch", "SET done"} {
		t.Run(statement, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				share := alone(t)
				table := &silent{openRows: openRows{n: 2, refuses: "nothing", again: end}, statement: statement}
				db := sql.OpenDB(table)
				defer db.Close()
				late := time.AfterFunc(5*time.Minute, end)
				defer late.Stop()
				work := func(ctx context.Context, _ int64) error {
					select {
					case <-time.After(time.Minute):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				if err := poller.Poll(ctx, db, share, work); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%v, want that the database did not answer in time", err)
				}
				table.statement, table.passes = "nothing", 0
				if err := poller.Poll(ctx, db, share, work); !errors.Is(err, context.Canceled) || table.done != 2 {
					t.Errorf("once it answers: %d rows are done, %v; want 2 and the end of the next pass", table.done, err)
				}
			})
		})
	}
}

// silent is a table that does not answer one statement.
type silent struct {
	openRows
	statement string
	done      int
}

func (d *silent) Connect(context.Context) (driver.Conn, error) { return d, nil }

func (d *silent) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, d.statement) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.openRows.QueryContext(ctx, query, args)
}

func (d *silent) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if strings.Contains(query, d.statement) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if strings.Contains(query, "SET done") {
		d.done++
	}
	return d.openRows.ExecContext(ctx, query, args)
}

// alone returns the share of a peer that has the customer ann, for as long as the test runs.
func alone(t *testing.T) *framework.Share {
	t.Helper()
	layout, timing := partition.Config{Total: 1}, transition.Timing{}
	share, err := framework.NewShare("orders", framework.ShareConfig{
		Ledger: memledger.New(layout, timing, memledger.Options{}), Partitions: layout, Timing: timing,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var peer sync.WaitGroup
	t.Cleanup(peer.Wait)
	t.Cleanup(cancel)
	peer.Go(func() {
		if err := share.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	a, err := share.Await(ctx, "ann")
	if err != nil {
		t.Fatal(err)
	}
	a.Release()
	return share
}

// openRows is a table with n rows of one customer, which is as if somebody else had the first
// where an UPDATE says what it refuses.
type openRows struct {
	n       int64
	refuses string
	again   func() // the second pass has begun
	passes  int
}

func (d *openRows) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *openRows) Driver() driver.Driver                        { return nil }
func (d *openRows) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (d *openRows) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (d *openRows) Close() error                                 { return nil }

func (d *openRows) QueryContext(ctx context.Context, _ string, args []driver.NamedValue) (driver.Rows, error) {
	after, most := args[0].Value.(int64), args[1].Value.(int64)
	if after == 0 {
		d.passes++
	}
	if d.passes > 1 {
		d.again()
		return nil, context.Canceled
	}
	return &some{id: after, end: min(after+most, d.n)}, ctx.Err()
}

func (d *openRows) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	first := false
	for _, a := range args {
		first = first || a.Value == int64(1) && (a.Ordinal == 2) == strings.Contains(query, "SET epoch")
	}
	if first && strings.Contains(query, d.refuses) {
		return driver.RowsAffected(0), nil
	}
	return driver.RowsAffected(1), nil
}

// some is the rows behind id, up to end.
type some struct{ id, end int64 }

func (r *some) Columns() []string { return []string{"id", "customer"} }
func (r *some) Close() error      { return nil }

func (r *some) Next(row []driver.Value) error {
	if r.id++; r.id > r.end {
		return io.EOF
	}
	row[0], row[1] = r.id, "ann"
	return nil
}
