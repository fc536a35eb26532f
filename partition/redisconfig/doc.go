// Package redisconfig keeps the configuration of a name in Redis, where its first
// peer or producer writes it and everybody else compares: two that count partitions
// differently would send one key to two places.
//
// The key is the hash {name}:config with the fields protocol, total, hash, units
// (the list's hash, see partition.Config.UnitsHash) and unitnames (the list itself,
// one a line, for people and tools). A producer knows nothing of units, so that the
// last two may be missing until the first peer comes. Further fields are kind (see [Kind]),
// requires, list and queues.
package redisconfig
