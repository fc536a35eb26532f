package redisconfig

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/urltls"
)

// advices say what to do about a refusal, by the prefix of the reply.
var advices = []struct{ prefix, advice string }{
	{"NOAUTH", credentials},
	{"WRONGPASS", credentials},
	{"Protocol error: invalid bulk length", "something that was sent with it, or it, is larger than the server's proto-max-bulk-len: make payloads smaller, or raise that"},
	{"READONLY", "this is a replica: connect to the master, or through Sentinel or Cluster, which find it"},
	{"LOADING", "the server is reading its data after a start: it will answer when it has"},
	{"TRYAGAIN", "its keys are on their way to another node of the cluster: if it stays so, their move was broken off, and redis-cli --cluster fix ends it"},
	{"OOM", "the server is full: raise maxmemory, or let the consumers catch up; what runs goes on and frees memory, only pushes fail"},
	{"MISCONF", "the server refuses every write because it could not save to disk: free its disk or mend its permissions"},
	{"NOREPLICAS", "the server refuses every write because fewer replicas follow it than its min-replicas-to-write asks for: let them follow again, or lower it"},
	{"DB index is out of range", "the server has not so many databases: the number at the end of the URL"},
	{"This instance has cluster support disabled", "it is no cluster, and the URL names several hosts or says cluster=true: name one"},
	{"max number of clients", "the server has as many clients as its maxclients allows: raise it, or see in CLIENT LIST whose they are"},
	{"MOVED", "the key is of another node of a cluster: if the URL names one node alone, name several hosts, or add cluster=true"},
	{"CLUSTERDOWN", "part of the cluster is down: it will answer when every slot is served again"},
}

// ToChangeIngress says how a name gets these ingress lists in the place of others.
func ToChangeIngress(name string, lists []string) string {
	if len(lists) == 0 {
		return fmt.Sprintf("to change them, stop all peers: countoff ingress %s --none", name)
	}
	words := make([]string, len(lists))
	for i, list := range lists {
		words[i] = ShellWord(list)
		if strings.HasPrefix(list, "-") { // what follows is no flag
			name = "-- " + strings.TrimPrefix(name, "-- ")
		}
	}
	return fmt.Sprintf("to change them, stop all peers: countoff ingress %s %s", name, strings.Join(words, " "))
}

// toInitAsynq says how a name of asynq gets other partitions or ingresses: no command moves its tasks.
func toInitAsynq(name string, total int, units []string) string {
	words := fmt.Sprintf("countoff init %s --partitions %d", name, total)
	for _, list := range units {
		words += " --unit " + ShellWord(list)
	}
	return fmt.Sprintf("countoff destroy %s --yes, which leaves queues of asynq and their tasks as they are, and %s", name, words)
}

// ShellWord is an argument as a shell takes it, for commands that people copy: a list or a queue may be
// called anything.
func ShellWord(argument string) string {
	odd := func(r rune) bool {
		return r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@%+=:,./_-", r)
	}
	if argument != "" && !strings.ContainsFunc(argument, odd) {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
}

// Forbidden reports whether the user of the client lacks a right. Where it is a script that
// needs it the prefix tells nothing, and the words are others since Redis 7.2.
func Forbidden(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || strings.Contains(err.Error(), "The user executing the script can't ") ||
		strings.Contains(err.Error(), "ACL failure in script")
}

// missingCommand finds the refusal of a command that the server does not have: of one that was sent,
// and of one in a script, as Redis and Valkey word it.
func missingCommand(text string) bool {
	return strings.Contains(text, "unknown command") || strings.Contains(text, "Unknown Redis command") || strings.Contains(text, "Unknown command")
}

const credentials = "give user and password in the URL: redis://user:password@host:port"

// Advice returns what to do about an error of the store, or "" if the error says it all.
func Advice(err error) string {
	for _, a := range advices {
		if redis.HasErrorPrefix(err, a.prefix) {
			return a.advice
		}
	}
	var dial *net.OpError
	switch {
	case Forbidden(err):
		return "the user of the URL lacks a right: docs/stores.md lists them"
	case redis.IsAuthError(err): // some servers have their own words
		return credentials
	case strings.Contains(err.Error(), "WRONGTYPE"): // ... or put them before it
		return "another program writes keys of this name: find them with TYPE, and rename or delete them"
	case missingCommand(err.Error()):
		return "the server lacks a command that is needed: rename-command took it away, or this is a Sentinel, whose URL wants ?master_name=NAME"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return "other calls hold all connections of the client: pool_size in the URL, or PoolSize, says how many there may be"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "is the server running, and are host and port of the URL right?"
	case hungUp(err):
		return "it has hung up: if it does so each time, it has as many clients as its maxclients allows, what it is sent is larger than its proto-max-bulk-len, or the port may want TLS, rediss://"
	}
	return urltls.Hint(err, "redis://")
}

// hungUp finds the end of a connection by the server. One that has as many clients as it may have, or is sent more than
// it takes, says so and closes, and whoever still writes does not read that.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// An advisedError is an error of the store that says what to do about it.
type advisedError struct {
	err    error
	advice string
}

func (e *advisedError) Error() string { return e.err.Error() + " (" + e.advice + ")" }

func (e *advisedError) Unwrap() error { return e.err }

// Explain adds the Advice to err, if there is any and nobody has done so.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	return Advised(err, Advice(err))
}

// Advised adds advice to err, if there is any and nobody has done so.
func Advised(err error, advice string) error {
	if _, done := errors.AsType[*advisedError](err); done || advice == "" {
		return err
	}
	return &advisedError{err, advice}
}

// passing are the refusals that pass by themselves: a fail-over, a start, a slot that
// moves, another script that runs long.
var passing = []string{
	"NOSCRIPT", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
	"BUSY", "UNBLOCKED", "max number of clients",
}

// Refused reports whether the store has refused, and not only for a moment: it is full,
// cannot write to its disk, does not know the user, or does not understand.
func Refused(err error) bool {
	_, refusal := errors.AsType[redis.Error](err)
	return refusal && !slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Lasting reports whether it is no use to repeat what failed with err: the store has
// refused, or the client was closed.
func Lasting(err error) bool { return Refused(err) || errors.Is(err, redis.ErrClosed) }

// failed is an error of the store, with what to do about it.
func failed(op, name string, err error) error {
	return fmt.Errorf("redisconfig: %s %s: %w", op, Key(name), Explain(err))
}
