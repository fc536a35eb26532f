// Package meter measures a run of a contestant inside its own process, the same way for
// all of them: time, CPU and memory from the first to the last task, what the store did
// meanwhile, and that each task was handled exactly once.
package meter
