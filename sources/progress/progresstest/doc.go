// Package progresstest proves package progress and a store of logs together: in a
// small world peers open, work, crash and hand over one log while requests are
// lost, repeated and late, and a ground truth that neither side can see checks
// after every step what docs/protocol.md promises:
//
//   - I1, I2: nothing is read or settled under a token that is not the newest
//   - I3: a task is in exactly one place until a handler has finished it
//   - I4: no two handlers of a task at once on peers that honour their leases
//   - I5: without a crash, a lapse or a fail-over, each try runs once
//   - O1, O2: tasks of a key start in order and never at once
//   - A1: a try that was answered is not forgotten
//   - C1: only a task that killed its peer is charged with a crash
//   - M: what is taken for position x is what was pushed at position x
//   - progress: with the faults off, every task becomes done or dead
//
// A world is a function of its seed: [Run] with the seed of a failure repeats it,
// with a transcript. Beside these there are small worlds in which everything that can
// happen does, in every order: see [Exploration].
package progresstest
