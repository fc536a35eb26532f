// Package batch is for handlers that do many tasks at once, as one INSERT of a hundred rows does.
//
//	rows, err := batch.New(batch.Config{Size: 100}, func(ctx context.Context, tasks []*framework.Task) error {
//		return insert(ctx, tasks)
//	})
//
// What New returns is a [framework.Handler] like any other, of a consumer or of a route of a Mux: order,
// retries, dead letters, rates, drains and fences are those of each task. Tasks wait for their batch
// where they would run, so batches grow to what Config.Concurrency of the consumer has room for:
// let it be twice Size, or more with Parallel.
//
// A batch never waits to be full. What comes while nothing runs is done at once, and what comes meanwhile is
// the next batch: they are as large as the work needs, and cost no time when there is little of it.
// This is the group commit of databases (D. J. DeWitt et al., "Implementation Techniques for Main Memory
// Database Systems", SIGMOD 1984).
//
// Of the tasks of a key at most one is in hand at a time, so a batch has no two of one key, and its tasks may be
// done in any order, but for the tasks without a key, which have none anyway.
//
// One bad task fails none beside it: where a batch fails as a whole the function is called again with fewer of
// them, until it is known which fail alone; a function that knows it says so with [Each]. Where nothing goes
// well, as when a database is away, that is known after three calls. A task that is accused of the end of
// a process has no others beside it.
package batch
