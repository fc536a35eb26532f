package redisledger

import (
	"testing"

	"github.com/countoff/countoff/partition/redisconfig"
)

// No list may be called like a key of the ledger, whichever it is.
func TestNoListIsAKeyOfTheLedger(t *testing.T) {
	t.Parallel()
	for _, key := range append(allKeys("n"), TableKey("n")) {
		if redisconfig.CheckLists("n", key) == nil {
			t.Errorf("a list may be called %s", key)
		}
	}
}
