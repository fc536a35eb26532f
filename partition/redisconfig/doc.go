// Package redisconfig keeps the configuration of a name in Redis, where its first
// peer or producer writes it and everybody else compares: two that count partitions
// differently would send one key to two places.
//
// The key is the hash {name}:config with the fields
//
//	protocol, total, hash  of partition.Config; protocol is "resizing" while total changes
//	units, unitnames       the ingress lists: their hash (partition.Config.UnitsHash), and
//	                       their names, one a line, for people and tools
//	kind                   what the partitions hold: a Kind
//	requires               which tags partitions ask of their owners, one a line
//	paused, drained        why nobody works under the name; which peers get no partitions, one a line
//	list                   the key of the list of work units, where peers share such
//	topic, progress        of a topic of Kafka: its name, and where it is kept what is done
//	resize                 the change of total that is under way
//
// and those of others: barrier of package redisledger, queues of package asynqsource. A
// producer knows nothing of units, so that units and unitnames may be missing until the first
// peer comes. Who was turned away last is in {name}:refused.
package redisconfig
