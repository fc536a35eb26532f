// Package unitsource has the units of a name in Redis: pieces of long-running work, such as
// websites to watch, each of which one peer owns for as long as it lives.
//
// The list is a set or a list under {name}:units, and everybody may change it while peers
// work:
//
//	redis-cli SADD '{crawler}:units' https://example.com
//	redis-cli SREM '{crawler}:units' https://example.com
//
// It is not a queue: nothing is taken out of it. framework.Units follows it and runs a handler
// for each unit that this peer owns; docs/units.md tells the rest.
package unitsource
