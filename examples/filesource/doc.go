// Package filesource is a source in a directory: the example of how to write one,
// explained step by step in docs/sources.md.
//
// A partition is one JSON file: the fence, the open tasks in order, the dead
// letters. A change reads the file, and replaces it as a whole under a lock of the
// operating system; so it is one step for all processes of the machine, and the
// death of any of them leaves the file as it was before or after.
//
// It is made to be read. It rewrites a partition with every change, looks for new
// tasks 50 times a second, does not sync, and does not find out which task killed
// its peer.
package filesource
