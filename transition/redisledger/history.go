package redisledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// History returns the last entries, at most limit of them, oldest first. The store
// keeps machine.HistoryKept. It changes nothing in the store.
func (l *Ledger) History(ctx context.Context, limit int) (machine.History, error) {
	if limit < 1 {
		return nil, fmt.Errorf("redisledger: a history of %d entries: want at least 1", limit)
	}
	lines, err := l.client.LRange(ctx, l.keys[6], 0, int64(limit)-1).Result()
	if err != nil {
		return nil, l.explain(ctx, "history", err)
	}
	slices.Reverse(lines)
	h := make(machine.History, len(lines))
	for i, line := range lines {
		if h[i], err = parseEntry(line); err != nil {
			return nil, fmt.Errorf("redisledger: %s: the history is not understood: %w", l.name, err)
		}
	}
	return h, nil
}

// parseEntry reads what history.lua wrote.
func parseEntry(line string) (machine.Entry, error) {
	f := strings.Split(line, "\t")
	if len(f) != 9 {
		return machine.Entry{}, fmt.Errorf("%q: want 9 fields", line)
	}
	raw, err1 := strconv.ParseInt(f[0], 10, 64)
	clock, err2 := strconv.ParseInt(f[1], 10, 64)
	e := machine.Entry{
		At: time.UnixMilli(raw), Clock: time.Duration(clock) * time.Millisecond,
		What: machine.Change(f[2]), Session: partition.Session(f[3]), Peer: f[4],
		Other: partition.Session(f[5]), OtherPeer: f[6],
	}
	err := errors.Join(err1, err2)
	switch detail := strings.Fields(f[7]); {
	case e.What == machine.Expired && len(detail) == 1:
		ms, err3 := strconv.ParseInt(detail[0], 10, 64)
		e.Silent, err = time.Duration(ms)*time.Millisecond, errors.Join(err, err3)
	case e.What == machine.RollMade && len(detail) == 2:
		var err3, err4 error
		e.Version, err3 = strconv.ParseUint(detail[0], 10, 64)
		e.Replicas, err4 = strconv.Atoi(detail[1])
		err = errors.Join(err, err3, err4)
	}
	for w := range strings.FieldsSeq(f[8]) {
		g, former, _ := strings.Cut(w, "<")
		var p machine.Passed
		var err3, err4 error
		p.Grant, err3 = partition.ParseGrant(g)
		if former != "" {
			var n uint64
			n, err4 = strconv.ParseUint(former, 10, 64)
			p.Former = partition.Epoch(n)
		}
		err = errors.Join(err, err3, err4)
		e.Grants = append(e.Grants, p)
	}
	return e, err
}
