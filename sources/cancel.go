package sources

import "context"

// A Cancelable is a [Stream] that hears which tasks somebody wants out of the way. A stream need
// not be one: then nobody can cancel its tasks from outside.
type Cancelable interface {
	Stream
	// Cancelled has tell called with all that are to be cancelled: task ID -> why. So it is
	// before Cancelled returns, and from then on whenever they change, one call at a time, until
	// Close returns. tell does not wait; it returns the IDs of those that run here and were told.
	// Nobody changes the map. Cancelled is called once, before the first Fetch.
	//
	// A task that was settled as Done or Dead is among them no longer, here and with later
	// owners, once somebody has been able to write that down: a cancellation is for one task, not
	// for all that will have its ID.
	Cancelled(ctx context.Context, tell func(why map[string]string) (running []string))
}
