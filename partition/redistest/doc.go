// Package redistest gives tests an empty Redis.
//
// [New] is what most tests want: miniredis inside the test process, or the server
// or cluster that COUNTOFF_REDIS or COUNTOFF_REDIS_CLUSTER names, so that one
// suite runs on all of them. [Bubble] is a Redis inside a testing/synctest bubble,
// [Server] a real redis-server of the test's own that it may stop, starve and
// restart, and [Cluster] three masters.
//
// What miniredis does not do: keys never expire unless the test calls
// FastForward (in a [Bubble] they follow the fake clock), scripts may touch keys of
// several slots ([New] therefore installs [OneSlot]), INFO server, CONFIG and
// sharded channels are unknown, and numbers of more than 14 digits survive Lua's
// tostring, which they do not in Redis.
package redistest
