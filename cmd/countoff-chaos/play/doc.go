// Package play directs a chaos run: it starts a store and peers, keeps tasks coming,
// breaks things in an order that a seed decides, watches who owns what, and gathers
// what everybody wrote down for the checker.
package play
