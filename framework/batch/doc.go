// Package batch makes a handler of a function that takes many tasks at once, as one INSERT of a hundred rows.
//
//	rows, err := batch.New(batch.Config{Size: 100}, func(ctx context.Context, tasks []*framework.Task) error {
//		return insert(ctx, tasks)
//	})
//
// What New returns is a [framework.Handler] like any other, of a consumer or of a route of a Mux: order,
// retries, dead letters, rates, drains and fences are those of each task. Tasks wait for their batch
// in the consumer's workers, so a batch is never larger than Config.Concurrency of the
// consumer: set that to twice Size, or more with Parallel.
//
// A batch never waits to be full. A task that comes while no batch runs starts one at once, and the tasks that
// come while one runs are the next. So batches are as large as the work needs, and cost no time when there is
// little of it. This is the group commit of databases (D. J. DeWitt et al., "Implementation Techniques for Main
// Memory Database Systems", SIGMOD 1984).
//
// A batch has no two tasks of one key, so its tasks may be done in any order.
//
// One bad task fails none beside it. If a batch fails as a whole, the function is called again with fewer tasks,
// until it is known which fail alone; a function that knows it says so with [Each]. If nothing succeeds, as
// when a database is away, that is known after three calls. A task that is suspected of a crash is a batch of its
// own.
package batch
