// Package poller is a poller over the rows of a PostgreSQL table that several processes run at
// once: each row is one process's, by its key, and rows change hands without being worked on
// twice. It is a module of its own, since it needs a driver.
package poller

import (
	"context"
	"database/sql"
	"time"

	"github.com/countoff/countoff/framework"
)

// Poll works on the open rows of orders whose customers are this peer's, those of a customer in
// their order, until ctx ends, or work or the table fails, as one that does not answer for 10 s: it
// returns that error, and may be called again. An order that work can never do would stand before those of other customers then, too, so
// work should put it aside and return nil. The caller runs the share, and ends ctx before it ends
// the share. A share has one Poll at a time: two would work on the same rows, since it keeps
// processes apart and not the loops of one.
func Poll(ctx context.Context, db *sql.DB, share *framework.Share, work func(ctx context.Context, id int64) error) error {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if err := pass(ctx, db, share, work); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type order struct {
	id       int64
	customer string
}

// patience is how long a statement may take. Without it a connection that swallows what is sent would
// keep the poll for good, and the peer would stay the owner of customers on whom nobody works.
const patience = 10 * time.Second

// most is how many rows are read at a time.
const most = 1000

func pass(ctx context.Context, db *sql.DB, share *framework.Share, work func(ctx context.Context, id int64) error) error {
	passed := map[string]bool{} // customers who wait for the next pass: a row of theirs was left open in this one
	for after := int64(0); ; {
		orders, err := open(ctx, db, after)
		if err != nil {
			return err
		}
		for _, o := range orders {
			after = o.id
			if passed[o.customer] {
				continue // this peer may have become the owner since
			}
			a, mine := share.Admit(ctx, o.customer)
			if !mine {
				passed[o.customer] = true // another peer's
				continue
			}
			done, err := one(a, db, o.id, work)
			over := a.Context().Err() != nil
			a.Release() // only then can the customer's partition move
			if err != nil && !over {
				return err
			}
			passed[o.customer] = !done
		}
		if len(orders) < most {
			return nil
		}
	}
}

// open reads the first open rows behind the id after. The query is over before the rows are worked
// on: one that is not keeps a connection, which one may wait for, and the server counts that time
// for its statement_timeout.
func open(ctx context.Context, db *sql.DB, after int64) ([]order, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := db.QueryContext(ctx, `SELECT id, customer FROM orders WHERE done IS NULL AND id > $1 ORDER BY id LIMIT $2`, after, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var orders []order
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.id, &o.customer); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// one works on a row that nobody has done since it was read, and reports whether this peer has.
// The epoch makes the table refuse an owner that was replaced and does not know it. That owner
// must leave the customer's next rows alone as well: its successor may not have touched them yet,
// and then nothing refuses it there.
//
// If the ledger's store forgets (a Redis without persistence), epochs begin anew, and a row that was
// under way then is refused to everybody, and waits with all of its customer behind it. Stop the
// pollers, UPDATE orders SET epoch = 0 WHERE done IS NULL, and start them again.
func one(a *framework.Admission, db *sql.DB, id int64, work func(ctx context.Context, id int64) error) (done bool, err error) {
	claimed, err := update(a.Context(), db, `UPDATE orders SET epoch = $1 WHERE id = $2 AND done IS NULL AND epoch <= $1`, int64(a.Grant.Epoch), id)
	if err != nil || !claimed {
		return false, err
	}
	if err := work(a.Context(), id); err != nil {
		return false, err
	}
	return update(a.Context(), db, `UPDATE orders SET done = now() WHERE id = $1 AND epoch = $2`, id, int64(a.Grant.Epoch))
}

// update reports whether an UPDATE has found its row. One that was not answered in time may have.
func update(ctx context.Context, db *sql.DB, query string, args ...any) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}
