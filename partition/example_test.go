package partition_test

import (
	"fmt"

	"github.com/countoff/countoff/partition"
)

// A program in another language finds the partition of a key in the same way: xxhash64 with seed 0, modulo the number
// of partitions.
func ExampleOf() {
	fmt.Println(partition.Of("ann@example.com", partition.DefaultTotal))
	// Output: 7
}

// Three peers share eight partitions, and one of them leaves: what the others have stays with them.
func ExampleAssign() {
	cfg := partition.Config{Total: 8}.WithDefaults()
	show := func(table partition.Table, sessions ...partition.Session) {
		for _, s := range sessions {
			var ids []partition.ID
			for id, owner := range table {
				if owner == s {
					ids = append(ids, id)
				}
			}
			fmt.Printf("%s %s\n", s, partition.Ranges(ids))
		}
	}
	members := []partition.Member{{Session: "ann", Index: 0}, {Session: "ben", Index: 1}, {Session: "cid", Index: 2}}
	before := partition.Assign(partition.Sticky{}, cfg, members, nil)
	show(before, "ann", "ben", "cid")
	fmt.Println("cid leaves")
	after := partition.Assign(partition.Sticky{}, cfg, members[:2], before)
	show(after, "ann", "ben")
	// Output:
	// ann 0-2
	// ben 3-5
	// cid 6-7
	// cid leaves
	// ann 0-2 6
	// ben 3-5 7
}
