// Package doctor examines a store, and a name in it, for what may cost tasks or time
// one day: each finding says what is at risk and what to do.
//
// It changes nothing, and asks only what any client may ask. What a store does not
// answer, because of its ACL or because it is an emulator, is a finding of its own.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition/redisconfig"
)

// A Severity says how much a finding matters.
type Severity string

// The severities.
const (
	Fine    Severity = "ok"      // as it should be
	Note    Severity = "note"    // worth knowing; or could not be found out
	Warning Severity = "warning" // costs tasks or time when something else fails
	Danger  Severity = "danger"  // costs tasks now, or with the next restart
)

func (s Severity) rank() int { return slices.Index([]Severity{Danger, Warning, Note, Fine}, s) }

// A Finding is what came out of one check.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`           // is so
	Risk     string   `json:"risk,omitempty"` // what it may cost
	Do       string   `json:"do,omitempty"`   // against it
	Node     string   `json:"node,omitempty"` // of a cluster; empty: all, or there is but one
}

func (f Finding) String() string {
	f.What, f.Node, f.Risk, f.Do = partitionmap.Printable(f.What), partitionmap.Printable(f.Node), partitionmap.Printable(f.Risk), partitionmap.Printable(f.Do)
	text := fmt.Sprintf("%-7s  %-12s %s", f.Severity, f.Check, f.What)
	if f.Node != "" {
		text += " (" + f.Node + ")"
	}
	if f.Risk != "" {
		text += "\n                        risk: " + f.Risk
	}
	if f.Do != "" {
		text += "\n                        do:   " + f.Do
	}
	return text
}

// Worst returns the worst severity among all; Fine of none.
func Worst(all []Finding) Severity {
	worst := Fine
	for _, f := range all {
		if f.Severity.rank() < worst.rank() {
			worst = f.Severity
		}
	}
	return worst
}

// Examine examines the Redis of the tasks, the store of the ledger and name, which of says
// where to find, the worst first. A nil client: nobody said where the tasks are; a nil
// store: the ledger stands beside them. A name that nobody has used is no error. now is
// the local time.
func Examine(ctx context.Context, client redis.UniversalClient, store func(context.Context) ([]Finding, error), name string,
	of func(context.Context) (status.Place, error), now func() time.Time) (all []Finding, err error) {
	if client != nil {
		all, err = nodes(ctx, client, now)
	} else {
		all = []Finding{{Check: "tasks", Severity: Note, What: "nobody said where the tasks are: what waits, and what their store may lose, was not looked at",
			Do: "give --redis"}}
	}
	if err == nil && store != nil {
		var found []Finding
		found, err = store(ctx)
		all = append(all, found...)
	}
	if err != nil {
		return nil, err
	}
	own, err := ofName(ctx, client, name, of, now)
	switch {
	case errors.Is(err, redisconfig.ErrNone):
		own = []Finding{{Check: "name", Severity: Note, What: "nobody has used " + name + " yet",
			Do: "countoff init " + name + ", so that its first peers need not wait for a lease"}}
	case err != nil && (ctx.Err() != nil || lost(err)) && !slices.ContainsFunc(all, func(f Finding) bool { return f.Check == silent }):
		return nil, err // a silent server has been told, and this is because of it
	case err != nil: // what the store is like may be why
		own = append(own, Finding{Check: "name", Severity: Danger, What: fmt.Sprintf("what stands under %s cannot be read: %v", name, err),
			Risk: "peers and producers may be refused in the same way, and who works on what cannot be told", Do: "the line says what is wrong"})
	}
	all = append(all, own...)
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.Check, b.Check))
	})
	return all, nil
}

// silent is the check of a server that does not answer.
const silent = "server"

// lost reports whether err is that of a connection, and no answer.
func lost(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF)
}

// nodes examines the server, or every master of a cluster.
func nodes(ctx context.Context, client redis.UniversalClient, now func() time.Time) ([]Finding, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		s := ask(ctx, client, now)
		if s.info["cluster_enabled"] == "1" {
			return append(s.examine(), Finding{Check: "cluster", Severity: Danger, What: "the server is one node of a cluster, and the address names it alone",
				Risk: "keys of other nodes are refused (MOVED)", Do: "give several hosts of the cluster: redis://host1:port,host2:port"}), nil
		}
		return s.examine(), nil
	}
	all, heard, err := masters(ctx, cluster, now)
	if (err != nil || !heard) && ctx.Err() == nil { // the client may have asked one that is silent which there are
		all, _, err = masters(ctx, cluster, now)
	}
	return all, err
}

// masters examines every master, and reports whether one has answered. It leaves half of the time of ctx to look at
// the name, which may be on another than the one that does not.
func masters(ctx context.Context, cluster *redis.ClusterClient, now func() time.Time) (all []Finding, heard bool, err error) {
	ctx, cancel := redisconfig.Half(ctx, cluster)
	defer cancel()
	var mu sync.Mutex
	var told []string // of the cluster
	var untold error
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		found := ask(ctx, node, now).examine()
		text, err := node.ClusterInfo(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			told = append(told, text)
		} else {
			untold = err
		}
		for _, f := range found {
			f.Node = node.Options().Addr
			all = append(all, f)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	heard = slices.ContainsFunc(all, func(f Finding) bool { return f.Check != silent })
	return append(together(all), ofCluster(told, untold)...), heard, nil
}

// together makes one of findings that every node has.
func together(all []Finding) []Finding {
	count, hosts := make(map[Finding]int), make(map[string]bool)
	for _, f := range all {
		hosts[f.Node] = true
		f.Node = ""
		count[f]++
	}
	var out []Finding
	for _, f := range all {
		same := f
		same.Node = ""
		switch {
		case count[same] < len(hosts):
			out = append(out, f)
		case !slices.Contains(out, same):
			out = append(out, same)
		}
	}
	return out
}

// ofCluster judges what nodes say of the cluster; untold is why those say nothing that do not. One of them may see
// what another does not.
func ofCluster(told []string, untold error) []Finding {
	if len(told) == 0 {
		return []Finding{unknown("cluster", untold)}
	}
	var found []Finding
	for _, text := range told {
		if found = clustered(fields(text)); Worst(found) != Fine {
			break
		}
	}
	return found
}

// clustered judges what a node says of the cluster. Slots are assigned to a node that is down, too: what
// counts is which are served.
func clustered(info map[string]string) []Finding {
	if served, state := info["cluster_slots_ok"], info["cluster_state"]; served != "16384" || state != "ok" {
		return []Finding{{Check: "cluster", Severity: Danger, What: fmt.Sprintf("%s of 16384 slots are served, its state is %s", served, state),
			Risk: "the partitions whose keys are in the others stand still; of a state that is not ok, all", Do: "redis-cli --cluster check, and fix it"}}
	}
	return []Finding{{Check: "cluster", Severity: Fine, What: "all slots are served; each partition and the ledger of a name have one hash tag each"}}
}

func unknown(check string, err error) Finding {
	return Finding{Check: check, Severity: Note, What: fmt.Sprintf("the store does not tell: %v", err),
		Risk: "what is usual here could not be looked at", Do: "let a user with more rights look, or ask who runs the store"}
}
