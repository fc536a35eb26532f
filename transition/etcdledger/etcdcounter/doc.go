// Package etcdcounter counts intervals in etcd, for package intervalindexer: what a peer
// needs of a store to be counted where there is no Redis.
//
// An increment is a compare-and-swap of the key's revision. Its key is attached to a lease
// of etcd that was granted for it, so that it vanishes by itself; each increment costs two
// writes and one read.
package etcdcounter
