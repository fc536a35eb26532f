package batch

import (
	"context"

	"github.com/countoff/countoff/framework"
)

// Ask has h, which New returned, ask owned instead of [framework.Owned].
func Ask(h framework.Handler, owned func(context.Context) bool) { h.(*gatherer).owned = owned }
