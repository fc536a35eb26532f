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
	c := court{
		report: Report{Orders: load.Customers * load.Each},
		done:   make(map[Order]bool),
		open:   make(map[string]map[int]run),
		newest: make(map[partition.ID]partition.Epoch),
	}
	owned := make(map[partition.ID]bool) // by the one that was killed, and not yet taken over
	for _, l := range lines {
		switch early := !l.At.After(at); {
		case killed == "":
		case l.Peer == killed && early && l.What == Opened:
			owned[l.ID] = true
		case l.Peer != killed && !early && l.What == Begin && owned[l.ID]:
			delete(owned, l.ID)
			c.report.TakenOver = max(c.report.TakenOver, l.At.Sub(at))
		}
		switch l.What {
		case Begin:
			c.begin(l)
		case End:
			c.end(l)
		}
	}
	c.report.Done = len(c.done)
	c.report.InFlight = inFlight(lines, killed, at)
	return c.report
}

// A court hears the lines in their order.
type court struct {
	report Report
	done   map[Order]bool
	open   map[string]map[int]run           // of a customer: the orders being worked
	newest map[partition.ID]partition.Epoch // that began something
}

// begin hears that an order was begun: after the one before it, alone, and by the newest owner.
func (c *court) begin(l Line) {
	if l.N > 0 && !c.done[Order{l.Customer, l.N - 1}] {
		c.report.OutOfOrder++
	}
	for n, other := range c.open[l.Customer] {
		if n != l.N && other.by == l.By {
			c.report.Overlaps++
		}
	}
	if l.By < c.newest[l.ID] {
		c.report.Zombies++
	}
	c.newest[l.ID] = max(c.newest[l.ID], l.By)
	if c.open[l.Customer] == nil {
		c.open[l.Customer] = make(map[int]run)
	}
	c.open[l.Customer][l.N] = run{l.Peer, l.By}
}

// end hears that an order is done.
func (c *court) end(l Line) {
	if c.done[l.Order] {
		c.report.Twice++
	}
	c.done[l.Order] = true
	if now, ok := c.open[l.Customer][l.N]; ok && now.by == l.By {
		delete(c.open[l.Customer], l.N)
	}
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
