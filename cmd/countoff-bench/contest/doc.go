// Package contest holds the contestants: countoff and what it is compared with, each in
// a file of its own, and the table of them. A contestant runs in a process of its own;
// the same payloads, the same meter and the same check are for all of them.
package contest
