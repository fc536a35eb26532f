// Package strategytest holds a strategy of yours to what partition.Strategy promises: [Run] asks
// it for many memberships, some of them of nobody, with peers that are down, weights of 0, peer
// ids and indexes that several share, and seats that are kept for who is gone.
package strategytest
