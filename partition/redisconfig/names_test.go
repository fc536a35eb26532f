package redisconfig_test

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/partition/redisconfig"
)

// A list that is called like a key of the ledger would be taken for it. Others may have the tag of the name.
func TestCheckLists(t *testing.T) {
	t.Parallel()
	err := redisconfig.CheckLists("mail", "{mail}:meta", "mail:inbox", "{mail}:in", "{post}:config", "mail:config", "{mail}:config")
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "list {mail}:meta: ") || !strings.Contains(err.Error(), "list {mail}:config: ") {
		t.Errorf("refused are %v", err)
	}
}
