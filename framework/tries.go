package framework

import (
	"context"

	"github.com/countoff/countoff/sources"
)

// The calls of a source that a lane makes often; Open and Close are called [apart]. A panic of one is
// an error that may pass: in a process that it ended, all that runs of other partitions would end with
// it, and the next owner, which meets the same task or the same answer, would be next.
//
// None is said to have been carried out, so it is made again, as after each error: the contract has
// a source bear that.

func tryFetch(ctx context.Context, s sources.Stream, limit int) (tasks []sources.Task, err error) {
	defer catch("the source's Fetch", &err)
	tasks, err = s.Fetch(ctx, limit)
	return tasks, tried(err)
}

func trySettle(ctx context.Context, s sources.Stream, batch []sources.Settlement) (err error) {
	defer catch("the source's Settle", &err)
	return tried(s.Settle(ctx, batch...))
}
