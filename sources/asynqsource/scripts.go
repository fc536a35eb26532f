package asynqsource

import (
	"context"
	_ "embed" // the scripts are files
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed scripts/giveback.lua
	giveback string
	//go:embed scripts/regroup.lua
	regroup string
	//go:embed scripts/open.lua
	openSource string
	//go:embed scripts/close.lua
	closeSource string
	//go:embed scripts/settle.lua
	settleSource string
	//go:embed scripts/fetch.lua
	fetchSource string
	//go:embed scripts/before.lua
	before string
	//go:embed scripts/after.lua
	after string

	openScript   = newScript(giveback + regroup + openSource)
	closeScript  = newScript(giveback + closeSource)
	settleScript = newScript(settleSource)
	fetchScript  = newScript(fetchSource)
)

// A script is one that a pipeline can send by its hash or, where the server does not
// know it, whole.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) *script { return &script{redis.NewScript(source), source} }

// Run runs it by its hash, or whole where the server does not know it.
func (sc *script) Run(ctx context.Context, c redis.Scripter, names []string, args ...any) *redis.Cmd {
	return sc.Script.Run(ctx, c, withNone(names), args...)
}

// send sends it by its hash, or whole.
func (sc *script) send(ctx context.Context, c redis.Scripter, names []string, args []any, source bool) *redis.Cmd {
	if source {
		return sc.Eval(ctx, c, withNone(names), args...)
	}
	return sc.EvalSha(ctx, c, withNone(names), args...)
}

// withNone adds a key that nothing ever lies under. While a slot of a cluster is moved, Redis runs a script
// if all the keys that it is told are there still, and refuses it as a whole if one is missing. The scripts are
// not told the keys of tasks: those that have gone ahead would look as if they had been deleted by hand.
func withNone(names []string) []string {
	tag := names[0][strings.IndexByte(names[0], '{') : strings.IndexByte(names[0], '}')+1]
	return append(slices.Clip(names), tag+":none")
}

// fencedReply is how the scripts of asynq are refused.
const fencedReply = "FENCED"

// A library holds the scripts of asynq, as they were seen when asynq ran them, with the
// fence around them. They are a matter of the version that is linked.
type library struct {
	mu      sync.RWMutex
	bySHA   map[string]*script
	dequeue *script // the one that takes a task; nil until it was seen
}

// take returns the script that takes a task, or nil.
func (l *library) take() *script {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dequeue
}

// takes notes which script takes a task.
func (l *library) takes(s *script) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dequeue = s
}

// get returns the fenced form of the script of asynq with this hash.
func (l *library) get(sha string) *script {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.bySHA[sha]
}

// all returns what was learned.
func (l *library) all() []*script {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.bySHA))
}

// learn takes in a script of asynq.
func (l *library) learn(source string) *script {
	sha := redis.NewScript(source).Hash()
	if s := l.get(sha); s != nil {
		return s
	}
	s := newScript(before + source + after)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bySHA == nil {
		l.bySHA = make(map[string]*script)
	}
	l.bySHA[sha] = s
	return s
}

// noScriptError is what a server says that does not know a script. It makes go-redis send
// the source.
type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT the source is wanted" }
func (noScriptError) RedisError()   {}

// forgotten reports whether the server does not know a script: it was not executed, and
// the next attempt brings the source along.
func forgotten(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// refused reports whether the fence has refused a script of asynq.
func refused(err error) bool { return redis.HasErrorPrefix(err, fencedReply) }

var errReply = errors.New("asynqsource: a script's answer is not what it should be")
