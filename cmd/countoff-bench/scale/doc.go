// Package scale measures what names of many peers and partitions cost: the scripts of
// the ledger on a real redis-server, run for simulated sessions one after the other, and
// the memory of what is idle, in the store and in the process.
package scale
