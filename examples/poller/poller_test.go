package poller_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/countoff/countoff/examples/poller"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// table makes the table of a test, with rows of 40 customers.
func table(t *testing.T, rows int) *sql.DB {
	t.Helper()
	url := os.Getenv("COUNTOFF_POSTGRES")
	if url == "" {
		t.Skip("no PostgreSQL: d=$(mktemp -d) && initdb -D $d && postgres -D $d, and COUNTOFF_POSTGRES=postgres://localhost/postgres")
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, q := range []string{
		`DROP TABLE IF EXISTS orders`,
		`CREATE TABLE orders (id bigserial PRIMARY KEY, customer text NOT NULL, epoch bigint NOT NULL DEFAULT 0, done timestamptz)`,
		fmt.Sprintf(`INSERT INTO orders (customer) SELECT 'customer-' || n %% 40 FROM generate_series(1, %d) n`, rows),
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// A customer who becomes this peer's in the middle of a pass waits for the next one: the rows
// that were left to its owner before come first.
func TestACustomerThatComesInAPass(t *testing.T) {
	db := table(t, 400)
	layout := partition.Config{Total: 16}
	timing := transition.Timing{Settle: 10 * time.Millisecond}
	ledger := memledger.New(layout, timing, memledger.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var peers sync.WaitGroup
	enter := func(ctx context.Context) *framework.Share {
		share, err := framework.NewShare("orders", framework.ShareConfig{Ledger: ledger, Partitions: layout, Timing: timing})
		if err != nil {
			t.Fatal(err)
		}
		peers.Go(func() {
			if err := share.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		return share
	}
	has := func(share *framework.Share) (n int) {
		for customer := range 40 {
			if a, mine := share.Admit(ctx, fmt.Sprint("customer-", customer)); mine {
				n++
				a.Release()
			}
		}
		return n
	}
	until := func(what string, is func() bool) {
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("no end of: %s", what)
				return
			}
		}
	}
	ann := enter(ctx)
	until("ann has all", func() bool { return has(ann) == 40 })
	leaves, leave := context.WithCancel(ctx)
	bob := enter(leaves) // does not poll
	until("both have some", func() bool { return has(bob) > 0 && has(ann)+has(bob) == 40 })

	last := map[int64]int64{}
	rows, waited, done := 0, false, make(chan struct{})
	peers.Go(func() {
		err := poller.Poll(ctx, db, ann, func(_ context.Context, id int64) error {
			if id > 200 && !waited {
				waited = true
				leave()
				until("ann has all again", func() bool { return has(ann) == 40 })
			}
			if id < last[id%40] {
				t.Errorf("row %d after %d of the same customer", id, last[id%40])
			}
			last[id%40] = id
			if rows++; rows == 400 {
				close(done)
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("not all rows were worked on")
	}
	cancel()
	peers.Wait()
}

// Three peers poll one table while a fourth joins and one leaves: each row is worked on once,
// and rows of a customer in their order.
func TestEachRowOnce(t *testing.T) {
	db := table(t, 600)
	layout := partition.Config{Total: 16}
	timing := transition.Timing{Settle: 10 * time.Millisecond}
	ledger := memledger.New(layout, timing, memledger.Options{}) // redisledger.New in a program
	var mu sync.Mutex
	worked := map[int64]int{}
	last := map[int64]int64{}
	work := func(_ context.Context, id int64) error {
		mu.Lock()
		defer mu.Unlock()
		worked[id]++
		if id < last[id%40] {
			t.Errorf("row %d after %d of the same customer", id, last[id%40])
		}
		last[id%40] = id
		return nil
	}
	var peers sync.WaitGroup
	start := func() (stop func()) {
		share, err := framework.NewShare("orders", framework.ShareConfig{Ledger: ledger, Partitions: layout, Timing: timing})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		peers.Go(func() {
			if err := share.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		peers.Go(func() {
			if err := poller.Poll(ctx, db, share, work); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		return cancel
	}
	stops := []func(){start(), start(), start()}
	await := func(most int) {
		for deadline := time.Now().Add(time.Minute); ; {
			var open int
			if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders WHERE done IS NULL`).Scan(&open); err != nil {
				t.Fatal(err)
			}
			if open <= most {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d rows are open", open)
			}
		}
	}
	await(450)
	stops = append(stops, start())
	await(300)
	stops[0]()
	await(0)
	for _, stop := range stops {
		stop()
	}
	peers.Wait()
	for id := int64(1); id <= 600; id++ {
		// A row that was under way when its peer was told to leave is worked on again.
		if n := worked[id]; n != 1 && n != 2 {
			t.Errorf("row %d was worked on %d times", id, n)
		}
	}
}
