package redissource

import (
	"errors"
	"fmt"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

// unanswered are partitions that could not be read, those of one reason together.
type unanswered struct {
	reasons []error
	ids     [][]partition.ID
}

// add takes in that id was read, or why not.
func (u *unanswered) add(id partition.ID, err error) {
	if err == nil {
		return
	}
	i := 0
	for i < len(u.reasons) && u.reasons[i].Error() != err.Error() {
		i++
	}
	if i == len(u.reasons) {
		u.reasons, u.ids = append(u.reasons, err), append(u.ids, nil)
	}
	u.ids[i] = append(u.ids[i], id)
}

// err says of which partitions of name what is not known, and why.
func (u *unanswered) err(what, name string) error {
	var all []error
	for i, err := range u.reasons {
		all = append(all, fmt.Errorf("redissource: %s of %s, %s %s: %w", what, name, word(len(u.ids[i])), partition.Ranges(u.ids[i]), redisconfig.Explain(err)))
	}
	return errors.Join(all...)
}

func word(n int) string {
	if n == 1 {
		return "partition"
	}
	return "partitions"
}
