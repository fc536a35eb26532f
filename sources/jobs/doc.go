// Package jobs describes periodic tasks: an [Entry] says when, as a cron expression in a
// time zone, what, and what becomes of the times that were missed. The package fires
// nothing; sources that can do so take entries in their configuration (redissource).
//
// Each tick of an entry is one task. It is fired by the owner of the entry's partition, and
// recorded there in the same step, so that no other owner fires it again; see
// docs/jobs.md.
package jobs
