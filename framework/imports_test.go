package framework_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/countoff/countoff"

// The clients: each may be named in its own rooms only, so that nobody links one he
// does not use.
const (
	goRedis    = "github.com/redis/go-redis/v9"
	miniRedis  = "github.com/alicebob/miniredis/v2"
	asynq      = "github.com/hibiken/asynq"
	dig        = "go.uber.org/dig"
	fx         = "go.uber.org/fx"
	zap        = "go.uber.org/zap"
	xxhash     = "github.com/cespare/xxhash/v2"
	prometheus = "github.com/prometheus/client_golang"
	cobra      = "github.com/spf13/cobra"
	pflag      = "github.com/spf13/pflag"
	goMail     = "github.com/wneessen/go-mail"
	goSMTP     = "github.com/emersion/go-smtp"
	goSASL     = "github.com/emersion/go-sasl"
	xTerm      = "golang.org/x/term"
	xSys       = "golang.org/x/sys"
	xText      = "golang.org/x/text"
	xSync      = "golang.org/x/sync"
	goLeak     = "go.uber.org/goleak"
	rapid      = "pgregory.net/rapid"
	franzGo    = "github.com/twmb/franz-go"
	cron       = "github.com/robfig/cron/v3"
)

// rooms says who may import what, besides the standard library: packages of this
// module by their folder, modules of others by their path. Imports go down only:
// cmd, examples -> frameworkfx -> framework -> transition, sources ->
// transition/machine -> partition. A package that is not here fails the test: put it
// in its place, and if it needs more than its neighbours, say why.
var rooms = map[string][]string{
	"partition":                              {xxhash},
	"partition/indexertest":                  {"partition"},
	"partition/intervalindexer":              {"partition"},
	"partition/intervalindexer/countertest":  {"partition", "partition/indexertest", "partition/intervalindexer", "partition/relay"},
	"partition/intervalindexer/rediscounter": {"partition", "partition/intervalindexer", "partition/redisconfig", goRedis},
	"partition/redisconfig":                  {"partition", "partition/urltls", goRedis},
	"partition/redistest":                    {"partition", "partition/redistest/redisserver", goRedis, miniRedis},
	"partition/redistest/redisserver":        {goRedis},
	"partition/redisurl":                     {"partition/urltls", goRedis},
	"partition/relay":                        {},
	"partition/strategytest":                 {"partition"},
	"partition/urltls":                       {},

	"transition/machine":            {"partition"},
	"transition":                    {"partition", "transition/machine", xSys},
	"transition/coverage":           {"partition", "transition", "transition/machine"},
	"transition/memledger":          {"partition", "transition", "transition/machine"},
	"transition/ledgertest":         {"partition", "partition/relay", "transition", "transition/machine"},
	"transition/simulation":         {"partition", "transition", "transition/machine", "transition/memledger"},
	"transition/quorum":             {"partition", "transition", "transition/machine"},
	"transition/quorum/redisquorum": {"partition", "partition/redisconfig", "partition/redisurl", "transition/quorum", goRedis},
	"transition/redisledger":        {"partition", "partition/redisconfig", "transition", "transition/machine", goRedis},

	"sources":                       {"partition"},
	"sources/progress":              {"partition"},
	"sources/progress/progresstest": {"partition", "sources/progress"},
	"sources/logstream":             {"partition", "sources", "sources/progress", xxhash},
	"sources/sourcetest":            {"partition", "partition/relay", "sources", goLeak},
	"sources/sourcetest/redisline":  {"sources/sourcetest", goRedis},
	"sources/memsource":             {"partition", "sources"},
	"sources/jobs":                  {"partition", "sources", "sources/jobs/ticks", cron},
	"sources/jobs/ticks":            {},
	"sources/redisprogress":         {"partition", "partition/redisconfig", "sources", "sources/logstream", "sources/progress", goRedis},
	"sources/redissource": {"partition", "partition/redisconfig", "sources", "sources/jobs", "sources/logstream", "sources/progress",
		"sources/redisprogress", xxhash, goRedis},
	"sources/kafkasource":                 {"partition", "partition/urltls", "sources", "sources/kafkasource/internal/prompt", "sources/kafkasource/kafkaprogress", "sources/logstream", "sources/progress", franzGo},
	"sources/kafkasource/internal/prompt": {franzGo},
	"sources/kafkasource/kafkatest":       {franzGo},
	"sources/kafkasource/kafkaprogress":   {"partition", "sources", "sources/kafkasource/internal/prompt", "sources/progress", franzGo},

	"sources/unitsource": {"partition", "partition/redisconfig", goRedis},

	"sources/asynqsource": {"partition", "partition/redisconfig", "sources", "sources/asynqsource/internal/wire", "sources/asynqsource/queuestat", "sources/logstream",
		"sources/progress", asynq, goRedis},
	"sources/asynqsource/internal/wire": {},
	"sources/asynqsource/queuestat":     {"partition", "partition/redisconfig", "sources/asynqsource/internal/wire", goRedis},

	"framework": {"framework/internal/owning", "partition", "sources", "transition", "transition/coverage", "transition/machine"},
	// What a context of a batch answers.
	"framework/internal/owning": {},
	// For programs: what stands in the store about a name, how it is drawn, and how a
	// command line of cobra ends and takes its flags. cmd and examples share them.
	"framework/status": {"partition", "partition/redisconfig", "sources/asynqsource/queuestat", "sources/redissource", "transition", "transition/coverage",
		"transition/machine", "transition/redisledger", goRedis},
	"framework/status/partitionmap": {"framework/status", "partition", xTerm, xText},
	"framework/status/past":         {"partition", "transition/machine"},
	"framework/status/dashboard": {"framework/status", "framework/status/partitionmap", "framework/status/past", "partition", "partition/redisconfig",
		"transition/coverage", "transition/machine", "transition/redisledger", goRedis},
	"framework/program/exit":    {"framework/program/flagenv", "partition", "transition/redisledger", cobra, goRedis},
	"framework/program/flagenv": {cobra, pflag},
	"framework/program/signals": {},

	"framework/zapobserver":                      {"framework", "partition", "sources", "transition", "transition/coverage", zap},
	"framework/promobserver":                     {"framework", "partition", "sources", "transition", prometheus},
	"framework/frameworktest":                    {"framework", "partition", "sources", "sources/memsource", "transition", "transition/memledger"},
	"framework/batch":                            {"framework", "framework/internal/owning", "sources"},
	"framework/frameworkfx":                      {"framework", "framework/frameworkfx/internal/shape", "framework/program/signals", "framework/zapobserver", "partition", "sources", "transition", dig, fx, zap},
	"framework/frameworkfx/internal/endings":     {fx},
	"framework/frameworkfx/internal/fences":      {"framework", "partition", "sources/redisprogress", "transition/coverage", goRedis},
	"framework/frameworkfx/internal/redisclient": {"partition/redisconfig", "partition/redisurl", fx, goRedis},
	"framework/frameworkfx/internal/late":        {"framework"},
	"framework/frameworkfx/internal/shape":       {},
	"framework/frameworkfx/internal/controltest": {"framework", "framework/frameworkfx", "partition", "partition/redistest", "transition", fx, miniRedis},
	"framework/frameworkfx/kafkafx": {"framework", "framework/frameworkfx", "framework/frameworkfx/internal/endings", "framework/frameworkfx/internal/fences", "framework/frameworkfx/internal/late", "framework/frameworkfx/internal/redisclient", "partition", "partition/redisconfig", "partition/redisurl", "sources", "sources/kafkasource",
		"sources/kafkasource/kafkaprogress", "sources/redisprogress", "transition", "transition/coverage", "transition/redisledger", fx, goRedis},
	"framework/frameworkfx/redisfx": {"framework", "framework/frameworkfx", "framework/frameworkfx/internal/endings", "framework/frameworkfx/internal/fences", "framework/frameworkfx/internal/late", "framework/frameworkfx/internal/redisclient", "partition", "partition/redisconfig", "partition/redisurl",
		"partition/intervalindexer", "partition/intervalindexer/rediscounter",
		"sources", "sources/jobs", "sources/redissource", "transition", "transition/coverage", "transition/quorum", "transition/quorum/redisquorum",
		"transition/redisledger", fx, zap, goRedis},
	"framework/frameworkfx/unitfx": {"framework", "framework/frameworkfx", "framework/frameworkfx/internal/endings", "framework/frameworkfx/internal/redisclient", "framework/frameworkfx/internal/shape", "partition", "partition/redisurl", "sources/unitsource",
		"transition", "transition/redisledger", fx, goRedis},
	"framework/frameworkfx/asynqfx": {"framework", "framework/frameworkfx", "framework/frameworkfx/internal/endings", "framework/frameworkfx/internal/fences", "framework/frameworkfx/internal/late", "framework/frameworkfx/internal/redisclient", "framework/frameworkfx/internal/shape", "partition", "partition/redisurl",
		"sources", "sources/asynqsource", "transition", "transition/coverage", "transition/redisledger", fx, asynq, goRedis},
}

// mains are the folders of programs: what is in them may import whatever lies
// below, and these clients.
var mains = map[string][]string{
	"cmd":      {goRedis, cobra, pflag, fx, zap, franzGo, xTerm, xSys},
	"examples": {goRedis, miniRedis, asynq, cobra, fx, zap, prometheus, goMail, goSMTP, goSASL, franzGo, xTerm, xSync},
}

// testRooms may be imported by the tests of every package: references, conformance
// suites and servers for tests, and the modules made for tests.
var testRooms = []string{
	"partition/indexertest", "partition/strategytest", "partition/redistest", "partition/intervalindexer/countertest", "partition/intervalindexer", // measured beside the rolls
	"transition/ledgertest", "transition/memledger", "framework/frameworkfx/internal/controltest",
	"sources/sourcetest", "sources/memsource", "sources/progress/progresstest", "framework/frameworktest",
	"sources/sourcetest/redisline", "sources/kafkasource/kafkatest", "sources/kafkasource/kafkaprogress", "sources/redisprogress", franzGo, goLeak, rapid, goRedis, miniRedis, zap, xSync,
}

// besides is what the tests of a package may import as well: those of kafkafx hold the
// sources beside each other. Among those of frameworkfx, some of which are inside it, they
// would have all that imports it compiled again. Fleets at random (mix_test.go) have batches, too.
var besides = map[string][]string{
	"framework": {"framework/batch"},
	"framework/frameworkfx/kafkafx": {
		"framework/frameworkfx/asynqfx", "framework/frameworkfx/redisfx", "sources/asynqsource", "sources/redissource", asynq,
	},
}

// pure packages decide and do nothing else: these are all the standard packages
// they may use. "time" is for values and units (see pureTime).
var pure = map[string][]string{
	"partition": {"cmp", "errors", "fmt", "iter", "maps", "math", "math/bits", "reflect", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
		"context",     // the Indexer contract has it in a signature
		"sync/atomic", // Filter is asked before every start, without a lock
	},
	"transition/machine": {"cmp", "errors", "fmt", "iter", "maps", "math", "math/bits", "slices", "sort", "strconv", "strings", "time"},
	"sources/jobs/ticks": {"slices", "time"},
	"sources/progress":   {"cmp", "container/heap", "errors", "fmt", "iter", "maps", "math", "slices", "sort", "strconv", "strings", "time"},
}

// pureTime is what a pure package may say of package time: nothing that looks at a clock or
// waits.
var pureTime = []string{
	"Duration", "Time", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "UnixMilli",
}

func TestImports(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range goFiles(t, root) {
		dir := filepath.ToSlash(filepath.Dir(file))
		isTest := strings.HasSuffix(file, "_test.go")
		allowed, ok := allowedIn(dir)
		if !ok {
			t.Errorf("%s: the folder is not in the map of who may import whom: add it to framework/imports_test.go", file)
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			what := strings.TrimPrefix(name, module+"/")
			switch {
			case isTest && (what == dir || covers(testRooms, what) || covers(besides[dir], what)):
			case standard(name):
				if std := pure[dir]; std != nil && !isTest && !slices.Contains(std, name) {
					t.Errorf("%s: %s is pure: it must not import %s", file, dir, name)
				}
			case !covers(allowed, what):
				t.Errorf("%s: %s must not import %s", file, dir, what)
			}
		}
		if pure[dir] != nil && !isTest {
			checkPure(t, file, parsed)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(rooms)) {
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			t.Errorf("%s is in the map and not there", dir)
		}
	}
}

// checkPure finds what the imports do not show: goroutines, channels, and uses of
// package time that look at a clock or wait.
func checkPure(t *testing.T, file string, parsed *ast.File) {
	t.Helper()
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			t.Errorf("%s: a pure package has no goroutine and no channel (%T)", file, n)
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && !slices.Contains(pureTime, n.Sel.Name) {
				t.Errorf("%s: a pure package has no clock: it must not use time.%s", file, n.Sel.Name)
			}
		}
		return true
	})
}

// allowedIn returns what the files of dir may import.
func allowedIn(dir string) ([]string, bool) {
	if allowed, ok := rooms[dir]; ok {
		return allowed, true
	}
	top, _, _ := strings.Cut(dir, "/")
	clients, ok := mains[top]
	if !ok {
		return nil, false
	}
	// A program may import everything below it and its own folders, not those of the
	// programs beside it. What is for tests stays out.
	below := append(slices.Collect(maps.Keys(rooms)), clients...)
	below = slices.DeleteFunc(below, func(what string) bool {
		return strings.HasSuffix(what, "test") && !strings.HasPrefix(what, "github.com/")
	})
	return append(below, top), true
}

// covers reports whether one of allowed is what, or, for modules of others and the
// folders of programs, the root of what.
func covers(allowed []string, what string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		open := strings.Contains(a, ".") || a == "cmd" || a == "examples"
		return a == what || open && strings.HasPrefix(what, a+"/")
	})
}

// standard reports whether name is a package of the standard library: their first
// element has no dot.
func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

// goFiles lists the Go files of the module, by their path below root.
func goFiles(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(name, "go.mod")); d.IsDir() && name != root && err == nil {
			return filepath.SkipDir // a module of its own: nobody here can import it
		}
		if !d.IsDir() && path.Ext(name) == ".go" {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			files = append(files, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
