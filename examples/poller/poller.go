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
// their order, until ctx ends. The caller runs the share, and ends ctx before it ends the share.
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

func pass(ctx context.Context, db *sql.DB, share *framework.Share, work func(ctx context.Context, id int64) error) error {
	rows, err := db.QueryContext(ctx, `SELECT id, customer FROM orders WHERE done IS NULL ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	passed := map[string]bool{} // customers who wait for the next pass: a row of theirs was left open in this one
	for rows.Next() {
		var id int64
		var customer string
		if err := rows.Scan(&id, &customer); err != nil {
			return err
		}
		if passed[customer] {
			continue // this peer may have become the owner since
		}
		a, mine := share.Admit(ctx, customer)
		if !mine {
			passed[customer] = true // another peer's
			continue
		}
		done, err := one(a, db, id, work)
		over := a.Context().Err() != nil
		a.Release() // only then can the customer's partition move
		if err != nil && !over {
			return err
		}
		passed[customer] = !done
	}
	return rows.Err()
}

// one works on a row that nobody has done since it was read, and reports whether this peer has.
// The epoch makes the table refuse an owner that was replaced and does not know it. That owner
// must leave the customer's next rows alone as well: its successor may not have touched them yet,
// and then nothing refuses it there.
func one(a *framework.Admission, db *sql.DB, id int64, work func(ctx context.Context, id int64) error) (done bool, err error) {
	claimed, err := changed(db.ExecContext(a.Context(), `UPDATE orders SET epoch = $1 WHERE id = $2 AND done IS NULL AND epoch <= $1`, int64(a.Grant.Epoch), id))
	if err != nil || !claimed {
		return false, err
	}
	if err := work(a.Context(), id); err != nil {
		return false, err
	}
	return changed(db.ExecContext(a.Context(), `UPDATE orders SET done = now() WHERE id = $1 AND epoch = $2`, id, int64(a.Grant.Epoch)))
}

// changed reports whether an UPDATE has found its row.
func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}
