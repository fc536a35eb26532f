// Package redisquorum keeps the registers of package quorum in Redis: one key in each of
// several masters that are independent of each other, "{name}:epochs".
//
//	redis-cli GET '{mail-sender}:epochs'
//
// Each must keep what it has answered: appendonly yes and appendfsync always. One that comes
// back empty takes part in nothing until it is admitted again; one that comes back with an
// older number cannot be noticed, and may make a number be given twice if the majority of a
// round hangs on it.
package redisquorum

import (
	"context"
	_ "embed" // the scripts are files
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/transition/quorum"
)

var (
	//go:embed raise.lua
	raiseSource string
	//go:embed admit.lua
	admitSource string

	raiseScript = redis.NewScript(raiseSource)
	admitScript = redis.NewScript(admitSource)
)

// A Register is the number of a name in one master. It implements [quorum.Register].
type Register struct {
	client redis.UniversalClient
	key    string
	place  string
}

var _ quorum.Register = (*Register)(nil)

// New returns the register of name at client, which is called place where people read of
// it. The client stays the caller's.
func New(client redis.UniversalClient, name, place string) (*Register, error) {
	if err := partition.CheckName(name); err != nil {
		return nil, err
	}
	if err := redisconfig.Fits(client); err != nil {
		return nil, fmt.Errorf("redisquorum: %w", err)
	}
	return &Register{client: client, key: Key(name), place: place}, nil
}

// Key is where the number of a name is.
func Key(name string) string { return "{" + name + "}:epochs" }

// Raise implements [quorum.Register].
func (r *Register) Raise(ctx context.Context, n uint64) (uint64, error) {
	before, err := raiseScript.Run(ctx, r.client, []string{r.key}, strconv.FormatUint(n, 10)).Int64()
	switch {
	case err != nil:
		return 0, err
	case before < 0:
		return 0, quorum.ErrEmpty
	}
	return uint64(before), nil
}

// Admit implements [quorum.Register].
func (r *Register) Admit(ctx context.Context, n uint64) error {
	return admitScript.Run(ctx, r.client, []string{r.key}, strconv.FormatUint(n, 10)).Err()
}

func (r *Register) String() string { return r.place }

// A Quorum is a counter over masters, and the clients that it has opened.
type Quorum struct {
	*quorum.Counter
	registers []*Register
}

// fewest is how many masters have a minority to lose.
const fewest = 3

// Open returns the counter of name over the masters at urls (see package redisurl), three or
// five of them. It says all that is wrong with them at once, and does not talk to them. The
// caller must Close it.
func Open(name string, urls []string, cfg quorum.Config) (*Quorum, error) {
	q := &Quorum{}
	var registers []quorum.Register
	errs := []error{partition.CheckName(name)} // once, and not for each of urls
	if len(urls) < fewest || len(urls)%2 == 0 {
		errs = append(errs, fmt.Errorf("redisquorum: %d of the masters that witness the epochs: want three or five, so that one may be lost", len(urls)))
	}
	seen := map[string]bool{}
	for _, url := range urls {
		place := redisurl.Redacted(url)
		if seen[place] {
			errs = append(errs, fmt.Errorf("redisquorum: %s twice: want masters that are independent of each other", place))
			continue
		}
		seen[place] = true
		client, err := redisurl.OpenTasks(url) // there are hours between two calls, and a lost connection would cost one its time
		if err != nil {
			errs = append(errs, fmt.Errorf("redisquorum: %w", err))
			continue
		}
		r := &Register{client: client, key: Key(name), place: place}
		q.registers = append(q.registers, r)
		registers = append(registers, r)
	}
	if errors.Join(errs...) == nil {
		c, err := quorum.New(registers, cfg)
		q.Counter = c
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		for _, r := range q.registers {
			r.client.Close()
		}
		return nil, err
	}
	return q, nil
}

// Close ends what is under way, waits for it and closes the clients.
func (q *Quorum) Close() error {
	errs := []error{q.Counter.Close()}
	for _, r := range q.registers {
		errs = append(errs, r.client.Close())
	}
	return errors.Join(errs...)
}

// A Risk is something about a master that may make it forget what it has answered.
type Risk struct {
	Register string
	Text     string // what may happen and what to do
}

// Examine asks each master what it keeps, and says what is at risk.
func (q *Quorum) Examine(ctx context.Context) []Risk {
	var risks []Risk
	places := make(map[string]string) // of the servers, by their runs
	for _, r := range q.registers {
		say := func(format string, args ...any) {
			risks = append(risks, Risk{r.place, fmt.Sprintf(format, args...)})
		}
		if _, err := r.Raise(ctx, 0); errors.Is(err, quorum.ErrEmpty) {
			say("holds no number: it was never set up, or has lost its memory; it takes no part until it is admitted (countoff epochs NAME --masters URL,URL,URL --admit)")
		} else if err != nil {
			say("does not answer: %v", err)
			continue
		}
		run, role := about(ctx, r.client)
		if place, known := places[run]; known {
			say("is the same server as %s, and lost with it: give each a server of its own", place)
		} else if run != "" {
			places[run] = r.place
		}
		if role == "slave" {
			say("is a replica: it takes no number that its master has not; give the URL of a master that is independent of the others")
		}
		appendOnly, err := setting(ctx, r.client, "appendonly")
		if err != nil {
			say("does not tell its configuration (%v): see for yourself that appendonly is yes and appendfsync is always", err)
			continue
		}
		fsync, err := setting(ctx, r.client, "appendfsync")
		switch {
		case err != nil:
			say("does not tell appendfsync: %v", err)
		case appendOnly != "yes":
			say("appendonly is %s: a restart forgets numbers that were given; set appendonly yes and appendfsync always", appendOnly)
		case fsync != "always":
			say("appendfsync is %s: a crash of the machine forgets the numbers of the last seconds; set appendfsync always", fsync)
		}
	}
	return risks
}

// about returns what names the run of a server, and its role; empty where it does not tell.
func about(ctx context.Context, client redis.UniversalClient) (run, role string) {
	server, _ := client.InfoMap(ctx, "server").Result()
	replication, _ := client.InfoMap(ctx, "replication").Result()
	return server["Server"]["run_id"], replication["Replication"]["role"]
}

func setting(ctx context.Context, client redis.UniversalClient, name string) (string, error) {
	values, err := client.ConfigGet(ctx, name).Result()
	if err != nil {
		return "", err
	}
	return strings.ToLower(values[name]), nil
}
