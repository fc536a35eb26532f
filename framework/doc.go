// Package framework runs handlers over the partitions a peer was granted.
//
// A [Consumer] is a name, a source, a handler and a configuration. It counts off
// with its peers through a ledger and opens one lane for each grant: a lane opens
// its stream, fetches ahead as far as tasks can be started soon, hands them to the
// consumer's one pool of workers, settles in batches and closes. Tasks of one key
// run one at a time and in order; different keys run in parallel, whatever
// partition they are in; tasks without a key are unordered.
//
// What becomes of a task is the error its handler returns: nil is done,
// [RetryAfter] and [Dead] say what they want, everything else is retried as the
// [RetryPolicy] says. Everything that happens is an [Event].
//
// Work that no source hands out has peers of its own: [Units] runs a handler for each unit
// of a list for as long as this peer owns it, a [Share] says which keys are this process's,
// and [Single] runs one job on one peer at a time. A [Runtime] starts and stops several
// consumers and units of one process together.
//
// The stop order belongs to the consumer: fetching stops, handlers end, what ended
// is settled, the partition is released, the peer leaves. The clients of stores
// and brokers are the application's: it closes them after Stop has returned.
package framework

// For who reads the code: how it hangs together.
//
// The way of a task, and the file of each step:
//
//	Stream.Fetch    the lane's goroutine fetches as many tasks as can be started soon  lane.go, pace.go
//	pool.takeIn     the lane's book has each of them ready, parked until its time, or
//	                waiting behind an earlier task of its key                          pool.go, book.go
//	pool.changed    a lane with ready tasks stands in line, and a worker is woken      pool.go, line.go
//	pool.next       a worker takes tasks of the first lane as its run, as far as the
//	                rate lets them start                                               pool.go, rate.go
//	pool.do         for each: ask whether the lease and the partition stand, call the
//	                handler, judge what it came to                                     run.go, worker.go
//	pool.end        what has ended goes into the book, where the next task of its key
//	                becomes ready, and onto the lane's sheet                           run.go, worker.go
//	Stream.Settle   the lane's settler sends the sheet, batch by batch                 sheet.go
//
// A task with a key that is to run again waits in the book, and what became of its run is settled
// all the same. The alarm makes it ready when it is due (alarm.go). One without a key, or any with
// Config.Pass, goes back to the source, which hands it out again.
//
// The goroutines of a consumer, each with who waits for its end. Stop waits for the session.
//
//	session.live    from Start to the last word; it is also the coordinator's loop     sessions (done)
//	the calls of    to sync, to seal, to hear hints and to look for a peer of the same
//	a coordinator   id; two more with another indexer than the ledger's rolls          Coordinator.Run
//	pool.worker     Config.Concurrency of them, for the life of the pool               pool.close
//	pool.watch      the alarm                                                          pool.close
//	lane.live       one for each grant: opens, fetches, closes                         pool.close
//	lane.settler    one for each lane that has something to settle                     pool.close
//	patrol.run      looks for holes, if there is an observer or a survey               session.look
//	checkup.run     asks for the peer's health, if it has a check                      session.look
//
// Code of the application that must not take one of these with it when it panics or ends its
// goroutine runs in one of its own (apart), which is waited for. Only a health check that ignores
// its context is left behind. A handler of tasks runs on its worker, which is replaced if it ends.
// Units have a session as well (unitsrun.go), with one goroutine that follows the list and one for
// each unit (keep), and a Share in place of the pool.
//
// The locks. pool.mu guards the pool and all its lanes, runs, books and sheets. It is a leaf: who
// holds it takes no other lock of this module and calls neither the source, a handler, an observer
// nor the coordinator, which takes it itself in Serve, Drain, Abort and Idle. What there is to tell
// is gathered under it as news and told when it is free; a lane does not end before its news are
// told. sessions.weighing comes before the sessions' other lock, the session's and that of the coordinator's
// mailbox: SetWeight holds it throughout. No other lock of this package is held while one is taken.
