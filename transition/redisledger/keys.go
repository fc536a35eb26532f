package redisledger

import (
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

// The KEYS of a quiet Sync are the first of them.
const quietKeys = 6

// allKeys returns those of a census and of a removal: keys, and what others than the
// scripts write.
func allKeys(name string) []string { return append(keys(name), redisconfig.RefusedKey(name)) }

// keys returns the KEYS of the scripts that change the ledger, in the order of
// ledger.lua.
func keys(name string) []string {
	tag := redisconfig.Tag(name)
	return []string{
		redisconfig.Key(name),
		tag + ":meta",
		tag + ":sessions",
		tag + ":leases",
		tag + ":roll",
		tag + ":transition",
		tag + ":history",
		tag + ":peers",
	}
}

// events returns the channel where rolls are announced.
func events(name string) string { return redisconfig.Tag(name) + ":events" }

// eventsOf returns the channel where what concerns session alone is announced.
func eventsOf(name string, session partition.Session) string {
	return events(name) + ":" + string(session)
}
