package play

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Report is what the lines of a play say.
type Report struct {
	Orders     int // that were sent
	Done       int // different ones that were done
	Twice      int // done once more: after a kill, or by an owner whose lease was over
	OutOfOrder int // begun before the customer's order before it was done
	Overlaps   int // begun while the customer's other order was being worked by the same owner
	Zombies    int // begun by an owner after its successor had begun something
	InFlight   int // being worked when their peer was killed
	TakenOver  time.Duration
	Lag        int64 // of the group at the end
}

// Bad reports whether the report shows what must not be.
func (r Report) Bad() bool {
	return r.Done != r.Orders || r.OutOfOrder+r.Overlaps+r.Zombies > 0 || r.Lag != 0
}

// Write writes the report for people.
func (r Report) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `orders sent            %d
done                   %d
lost                   %d
out of order           %d
two of a customer      %d
begun without a right  %d
in flight at the kill  %d
done twice             %d
taken over after       %v
lag of the group       %d
`, r.Orders, r.Done, r.Orders-r.Done, r.OutOfOrder, r.Overlaps, r.Zombies, r.InFlight, r.Twice, r.TakenOver.Round(time.Millisecond), r.Lag)
	return err
}

// run is one run of a handler.
type run struct {
	peer string
	by   partition.Epoch
}

// judge makes the report of lines; killed is a peer that was killed at an instant,
// or empty.
func judge(lines []Line, load Load, killed string, at time.Time) Report {
	lines = slices.Clone(lines)
	// Each peer's lines are in order; between peers the clock of the machine, which
	// they share, tells.
	slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
	r := Report{Orders: load.Customers * load.Each}
	done := make(map[Order]bool)
	open := make(map[string]map[int]run)             // of a customer: the orders being worked
	newest := make(map[partition.ID]partition.Epoch) // that began something
	owned := make(map[partition.ID]bool)             // by the one that was killed
	for _, l := range lines {
		if l.Peer == killed && !l.At.After(at) && l.What == Opened {
			owned[l.ID] = true
		}
		switch l.What {
		case Begin:
			if l.N > 0 && !done[Order{l.Customer, l.N - 1}] {
				r.OutOfOrder++
			}
			for n, other := range open[l.Customer] {
				if n != l.N && other.by == l.By {
					r.Overlaps++
				}
			}
			if l.By < newest[l.ID] {
				r.Zombies++
			}
			newest[l.ID] = max(newest[l.ID], l.By)
			if open[l.Customer] == nil {
				open[l.Customer] = make(map[int]run)
			}
			open[l.Customer][l.N] = run{l.Peer, l.By}
			if killed != "" && l.Peer != killed && l.At.After(at) && owned[l.ID] {
				delete(owned, l.ID)
				r.TakenOver = max(r.TakenOver, l.At.Sub(at))
			}
		case End:
			if done[l.Order] {
				r.Twice++
			}
			done[l.Order] = true
			if now, ok := open[l.Customer][l.N]; ok && now.by == l.By {
				delete(open[l.Customer], l.N)
			}
		}
	}
	r.Done = len(done)
	r.InFlight = inFlight(lines, killed, at)
	return r
}

// inFlight counts the orders that the killed peer had begun and not done.
func inFlight(lines []Line, killed string, at time.Time) int {
	begun := make(map[Order]bool)
	for _, l := range lines {
		if killed == "" || l.Peer != killed || l.At.After(at) {
			continue
		}
		switch l.What {
		case Begin:
			begun[l.Order] = true
		case End:
			delete(begun, l.Order)
		}
	}
	return len(begun)
}
