package partition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ranges prints ids for people and stores, ascending: "0-3 7 9-11".
func Ranges(ids []ID) string {
	ids = slices.Sorted(slices.Values(ids))
	var words []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		word := ids[i].String()
		if j > i {
			word += "-" + ids[j].String()
		}
		words = append(words, word)
		i = j + 1
	}
	return strings.Join(words, " ")
}

// ParseRanges reads what [Ranges] printed.
func ParseRanges(s string) ([]ID, error) {
	var ids []ID
	for word := range strings.FieldsSeq(s) {
		first, last, ok := strings.Cut(word, "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.ParseInt(first, 10, 32)
		to, err2 := strconv.ParseInt(last, 10, 32)
		// A range that somebody wrote by hand must not take all the memory.
		if err1 != nil || err2 != nil || from < 0 || to < from || to-from >= int64(FirstUnit) {
			return nil, fmt.Errorf("partition: %q is no range of partitions, as in 0-3", word)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, ID(id))
		}
	}
	return ids, nil
}
