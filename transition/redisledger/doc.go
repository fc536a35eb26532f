// Package redisledger keeps the record of who holds which partition in Redis: a
// transition.Ledger for a single server, Sentinel or Cluster, version 7.0 and
// later.
//
// Every operation is one script over the keys of the name, which share the hash tag
// {name} and so a slot:
//
//	{name}:config      what all peers agree on (package redisconfig)
//	{name}:meta        the store's own clock, its run, the one count
//	{name}:sessions    session -> state weight stamp held peer
//	{name}:leases      session by the clock at which its lease ends
//	{name}:roll        session -> index: partitions (0: 0-3 7 9); _ -> version membership replicas
//	{name}:transition  partition -> session epoch waiter: the grants; with the barrier
//	                   arrived:<session> -> version of the roll it has arrived at
//	{name}:peers       session -> the times its peer keeps, its deployment, what it says and asks for
//	{name}:history     list: the last 2,000 changes, newest first (history.lua)
//	{name}:events      channel: a new roll; {name}:events:<session>: something of one peer's
//
// What people want to see is plain text: HGETALL '{mail-sender}:transition' says who
// owns what.
//
// A peer that has nothing new to say and whose store has nothing new to tell sends a
// script of constant size and cost instead of its lists (a quiet Sync); callers
// always get full answers.
//
// The client should be made with ContextTimeoutEnabled, so that a call ends with its
// context also where the server does not answer, and its pool should not be one that
// other calls can exhaust: a Sync that waits for a connection costs lease. Where tasks
// are worked in the same store, give the ledger a client of its own, as of
// redisurl.OpenControl.
package redisledger
