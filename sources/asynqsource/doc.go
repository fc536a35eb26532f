// Package asynqsource is a source over queues of github.com/hibiken/asynq: programs keep
// their tasks, options, handlers and tools of asynq, and gain one owner for each queue,
// order per key, hand-over in milliseconds and a fence.
//
// One idea: asynq takes its Redis client as an interface, so a stock asynq.Server can
// run the handlers while the client that it gets, a view, decides what it does to a
// queue. The server's dequeue is answered from a fenced bulk fetch, what it says of a
// task goes into fenced batches, and everything else it does to a queue gets the fence
// put in front of its own script. Nothing of asynq is forked or copied.
//
// A [Source] has partitions in one of three ways: the queues name:0 .. name:P-1, which
// [Client] fills by key; existing queues, each a partition (Config.Queues); or ordinary
// queues whose owner moves the tasks to the partitions of their keys (Config.Ingress).
// [Source.Handler] makes an [Engine] of a handler of asynq; handlers of the framework
// need none.
//
// The promise holds only if every consumer of these queues is countoff's. A plain
// asynq.Server asks no fence; it is looked for at the start, every minute, and when
// somebody else has taken a task, see [PlainPolicy].
//
// # What is relied on in asynq
//
// Each of these but the last is tried at the start, on a queue that is thrown away:
//
//  1. NewServerFromRedisClient takes an interface. (Public, from v0.25.)
//  2. The keys of a queue q begin with "asynq:{q}:". They are changed by scripts only,
//     sent as EVALSHA and then EVAL, and by ZADD XX of the leases and HSET of results.
//  3. A task is taken by the script with the keys pending, paused, active and lease; its
//     answer is the encoded message.
//  4. What became of a task is said by a script with active and lease among its keys and
//     the task's id as the first argument.
//  5. pending and active are lists of ids, pushed at the left; tasks are hashes with msg,
//     state and pending_since, and keep a field of ours, tried; a task that is done is in
//     no list and has no hash, and one that is deleted has none either.
//  6. The numbers of the fields of a message: see message.go.
//  7. What is being made one task of a group lies in a sorted set whose key is the group's
//     with an id behind it, and that aggregation_sets lists; groups are listed in groups.
//     What looks different is left as it is.
//
// If 5 does not hold, the source is modest ([Source.Modest]): it takes and ends tasks
// with asynq's own scripts, one by one in a pipeline. If less holds, it does not start.
package asynqsource
