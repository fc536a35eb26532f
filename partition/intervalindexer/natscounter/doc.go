// Package natscounter counts intervals in NATS JetStream, for package intervalindexer: what
// a peer needs of a store to be counted where there is a NATS. It is a module of its own, so
// that nobody links the client of NATS who does not use it. It needs a server of version
// 2.11 or later with JetStream; it is tested on 2.15.
//
// The keys stand in a key-value bucket. An increment reads the key and writes it again on
// condition that its revision is still the one that was read; whoever was slower reads
// again. The value is written with a time to live of its own, so that a key vanishes by
// itself. That is two round trips, and one more for each time that somebody was faster.
//
// {mail-sender}:359093027:2 stands as mail-sender.359093027.2: a key of a bucket may have neither
// braces nor colons in it, and a permission can name all that a name of countoff needs:
//
//	publish    $KV.countoff.mail-sender.>
//	           $JS.API.DIRECT.GET.KV_countoff.$KV.countoff.mail-sender.>
//	           $JS.API.STREAM.INFO.KV_countoff
//	subscribe  _INBOX.>
//
// and, if the bucket is to be made by the first peer, also to publish
// $JS.API.STREAM.CREATE.KV_countoff and $JS.API.INFO. Where it is made beforehand:
//
//	nats kv add countoff --marker-ttl 1s --replicas 3
//
// What the server is asked to keep is little and of no value after three intervals. A
// server that loses it, and one whose clock jumps, costs an interval or two: the indexer
// adopts a count when it has seen it twice, and the ledger grants as ever. See
// docs/decisions/130-counter-on-nats.md.
package natscounter
