package redisledger

import (
	_ "embed" // the scripts are files

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed history.lua
	historyLua string
	//go:embed ledger.lua
	ledgerLua string
	//go:embed sync.lua
	syncLua string
	//go:embed same.lua
	sameLua string
	//go:embed seal.lua
	sealLua string
	//go:embed census.lua
	censusLua string
	//go:embed init.lua
	initLua string
	//go:embed idle.lua
	idleLua string
)

// shared is put in front of the scripts that change the ledger.
var shared = historyLua + ledgerLua

var (
	syncScript   = redis.NewScript(shared + syncLua)
	sameScript   = redis.NewScript(shared + sameLua)
	sealScript   = redis.NewScript(shared + sealLua)
	initScript   = redis.NewScript(shared + initLua)
	idleScript   = redis.NewScript(shared + idleLua)
	censusScript = redis.NewScript(censusLua)
)

// wary are the scripts that open a grace when the caller is in doubt about the store.
var wary = []*redis.Script{syncScript, sameScript, sealScript}
