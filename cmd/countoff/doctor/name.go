package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
)

// ofName examines what stands under a name.
func ofName(ctx context.Context, client redis.UniversalClient, name string, of func(context.Context) (status.Place, error), now func() time.Time) ([]Finding, error) {
	at, err := of(ctx)
	if err != nil {
		return nil, err
	}
	keys := overwritten(ctx, client, name)
	s, err := at.Read(ctx, name)
	if err != nil {
		return keys, err
	}
	fences, unread := fencesOf(ctx, client, name, s.Config.Units) // before the census: who has left it by then has left the fence
	census, err := at.Census(ctx, name)
	if err != nil {
		return nil, err
	}
	queues, err := ofQueues(ctx, client, name, s.Config)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(keys, queues, unread, taken(s.Config.Units, fences, census), wrong(s.Findings), troubled(s.Units), drained(s.Drained), toCancel(name, s.ToCancel, now()), deserted(s))
	return append(append(all, times(census, s.Config.Total)...), summary(s)), nil
}

// deserted tells that nobody takes part where coverage does not: it does not know for how long
// where nobody ever has.
func deserted(s status.Status) []Finding {
	told := func(f status.Finding) bool { return f.Kind == coverage.Unowned }
	if slices.ContainsFunc(s.Peers, status.Peer.Present) || slices.ContainsFunc(s.Findings, told) {
		return nil
	}
	if s.LedgerElsewhere {
		return []Finding{{Check: "peers", Severity: Warning, What: partitionmap.Nobody(s),
			Risk: "what is wrong with the peers is not seen here", Do: "give --ledger; if nobody is at work, start peers"}}
	}
	t := s.Totals()
	waiting := t.Pending + t.InFlight + t.Delayed
	for _, u := range s.Units {
		waiting += u.Pending + u.Delayed
	}
	if waiting == 0 {
		return []Finding{{Check: "peers", Severity: Note, What: "nobody takes part", Do: "start peers"}}
	}
	return []Finding{{Check: "peers", Severity: Warning, What: fmt.Sprintf("nobody takes part, and %s", plural(waiting, "task waits", "tasks wait")),
		Risk: "nothing is worked on", Do: "start peers; those that were started say in their logs why they do not come"}}
}

// plural is n of what is told in one or the other words.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// troubled tells of ingress lists that cannot be read.
func troubled(units []status.Unit) []Finding {
	var all []Finding
	for _, u := range units {
		if u.Trouble != "" {
			all = append(all, Finding{Check: "ingress", Severity: Danger, What: u.Trouble, Risk: "nothing of it is routed into partitions",
				Do: "the line says what is wrong; what another program writes: find what it is with TYPE, and rename or delete it: the lines come in by themselves then, and who owns the list writes its fence anew"})
		}
	}
	return all
}

// fencesOf reads whose the ingress lists of name are where their lines are; of queues of asynq ofQueues tells.
func fencesOf(ctx context.Context, client redis.UniversalClient, name string, lists []string) ([]partition.Token, []Finding) {
	if client == nil || len(lists) == 0 {
		return nil, nil
	}
	if _, asynq, err := queuestat.Read(ctx, client, name); asynq || err != nil {
		return nil, nil // an error is told by ofQueues
	}
	fences, err := redissource.IngressFences(ctx, client, lists)
	var each interface{ Unwrap() []error }
	var unread []error
	if errors.As(err, &each) {
		unread = slices.DeleteFunc(slices.Clone(each.Unwrap()), func(err error) bool {
			return strings.Contains(err.Error(), "WRONGTYPE") // that is told as trouble of the list
		})
	}
	if len(unread) > 0 {
		return fences, []Finding{unknown("shared-ingress", errors.Join(unread...))}
	}
	return fences, nil
}

// taken tells of ingress lists that are owned on record, and by nobody of the name where their lines are.
func taken(lists []string, fences []partition.Token, census transition.Census) []Finding {
	among := func(session partition.Session) bool {
		return slices.ContainsFunc(census.Sessions, func(s machine.Seat) bool { return s.Session == session })
	}
	var shared []string
	for i, fence := range fences {
		owned := slices.ContainsFunc(census.Grants, func(g machine.Ownership) bool {
			return g.Grant.ID == partition.FirstUnit+partition.ID(i) && among(g.Session)
		})
		if owned && fence.Session != "" && !among(fence.Session) {
			shared = append(shared, lists[i])
		}
	}
	if len(shared) == 0 {
		return nil
	}
	return []Finding{{Check: "shared-ingress", Severity: Danger, What: "who reads " + some(shared) + " is no peer of this name",
		Risk: "a list belongs to one name: two names take it from each other, and each routes a part of its lines to its own partitions",
		Do:   "it heals once a new owner comes to the list; if it stays: countoff names and countoff ingress NAME tell which other name has the list; stop the peers of one and take it out there"}}
}

// wrong tells what status finds, with what to do about it.
func wrong(findings []status.Finding) []Finding {
	advice := map[coverage.Kind]Finding{
		coverage.Unowned: {Severity: Danger, Risk: "its tasks are not worked on",
			Do: "countoff history and countoff explain tell since when; start peers, or restart one of them"},
		coverage.Double: {Severity: Danger, Risk: "the ledger was set back behind the data, or somebody wrote a fence by hand: the owner on record cannot settle",
			Do: "it heals once the owner asks the data; if it stays, restart that peer"},
		coverage.Overdue: {Severity: Warning, Risk: "its tasks wait: a handler does not end, or a peer does not come to its work",
			Do: "look at the log of the owner for drains and stuck handlers"},
		coverage.Refused: {Severity: Warning, Risk: "who was refused does not work, or puts tasks where nobody looks",
			Do: "the line says what differs: give it what the name has, or another name; of a position that its topic has lost, what to set"},
		coverage.TwoNames: {Severity: Danger, Risk: "peers of one deployment get the tasks of the other, and may have no handlers for them",
			Do: "give each its own name; if they are one, set the same COUNTOFF_DEPLOYMENT"},
		coverage.TwoWays: {Severity: Warning, Risk: "whoever seals the next roll decides: partitions move although nobody comes or goes for them to",
			Do: "give all peers the same strategy (mail-sender: --strategy); while a deploy changes it this passes by itself"},
		coverage.SameID: {Severity: Warning, Risk: "nobody can tell which of them is which, and what a strategy keeps for the id goes to either",
			Do: "give each its own id (mail-sender and countoff run: --id; framework.WithPeer), or none"},
		coverage.NoneEligible: {Severity: Danger, Risk: "its tasks are not worked on once its present owner, if it has one, is gone",
			Do: "start a peer with those tags (--tags), or ask for others: countoff require"},
		status.Unread: {Severity: Danger, Risk: "its tasks are not worked on, and producers are refused",
			Do: "start the node that has its keys, or let a replica take its place; a key of another type: rename or delete it"},
		status.Replicas: {Severity: Danger, Risk: "nobody takes over from a peer that leaves or dies, or works after a pause",
			Do: "bring the replicas back, or start the peers again with a smaller WaitReplicas"},
		status.QueuePaused: {Severity: Warning, Risk: "its tasks wait until the pause ends",
			Do: "if nobody needs the pause any more: asynq queue unpause QUEUE, or asynqmon"},
		coverage.Unwell: {Severity: Danger, Risk: "nobody takes over from a peer that leaves or dies, and work that cannot succeed uses up its tries",
			Do: "/readyz and the logs of the peers say what they lack; those that are drained: countoff recall"},
		coverage.Paused: {Severity: Warning, Risk: "its tasks wait until it is resumed",
			Do: "if nobody needs the pause any more: countoff resume"},
	}
	var all []Finding
	for _, f := range findings {
		if f.Kind == status.Stranger { // ofQueues says more of it
			continue
		}
		a := advice[f.Kind]
		a.Check, a.What = "coverage", f.String()
		if f.Kind == coverage.Refused || f.Kind == coverage.TwoNames || f.Kind == coverage.TwoWays || f.Kind == coverage.SameID ||
			f.Kind == coverage.Unwell || f.Kind == coverage.Paused || f.Kind == status.QueuePaused {
			a.Check = string(f.Kind)
		}
		all = append(all, a)
	}
	return all
}

// drained tells of peers that are to have nothing, lest they are forgotten.
func drained(all []status.Drained) (found []Finding) {
	for _, d := range all {
		f := Finding{Check: "drained", Severity: Note, What: fmt.Sprintf("%s is to have nothing, since %s", d.Peer, d.Since.UTC().Format(time.RFC3339))}
		if d.Why != "" {
			f.What += fmt.Sprintf(" (%s)", d.Why)
		}
		if !d.Present {
			f.Severity, f.What = Warning, f.What+", and does not take part"
			f.Risk, f.Do = "whoever comes under that id gets nothing, and nobody remembers why", "if nobody is to come under it, or to work then: countoff recall"
		}
		found = append(found, f)
	}
	return found
}

// ending is how long a handler that was told to end may take before that is worth a warning.
const ending = time.Minute

// toCancel tells of tasks that are to be cancelled, lest they are forgotten.
func toCancel(name string, c *status.ToCancel, now time.Time) []Finding {
	if c == nil {
		return nil
	}
	f := Finding{Check: "cancel", Severity: Note, What: fmt.Sprintf("%s to be cancelled that nobody has met, %d with a handler that was told, the oldest since %s",
		plural(c.Waits, "task is", "tasks are"), c.Runs, c.Since.UTC().Format(time.RFC3339))}
	switch {
	case c.Trouble != "":
		f.Severity, f.What = Warning, c.Trouble
		f.Risk, f.Do = "no task can be cancelled", "find what it is with TYPE, and rename or delete it"
	case c.Runs > 0 && now.Sub(c.Since) > ending:
		f.Severity, f.Risk = Warning, "a handler that ignores its context holds up its key, and all later tasks of it"
		f.Do = "countoff cancel " + name + " lists them; the logs of their peers say what is stuck: restart such a peer"
	case 2*(c.Waits+c.Runs) > redissource.MaxCancellations:
		f.Severity, f.Risk = Warning, fmt.Sprintf("once %d stand no other task can be cancelled", redissource.MaxCancellations)
		f.Do = "countoff cancel " + name + " lists them, and --undo takes back what is not needed"
	}
	return []Finding{f}
}

// claim is what a partition costs a slow store in the call that claims it: twice what it cost in
// docs/scale.md.
const claim = 20 * time.Microsecond

// crowded tells of a lease that is too short for one peer to claim all partitions: it claims them
// in one call, what a call has not answered in time is not known, and the next is as long.
func crowded(total int, lease time.Duration) []Finding {
	takes, may := time.Duration(total)*claim, transition.Timing{Lease: lease}.CallTimeout()
	if takes <= may {
		return nil
	}
	parts := int64(lease / may) // of a lease, one is a call's
	fits := (takes*time.Duration(parts) + time.Second - 1).Truncate(time.Second)
	return []Finding{{Check: "budgets", Severity: Warning,
		What: fmt.Sprintf("%d partitions and a lease of %v: who is alone claims all of them in one call, which may take %v and may need %v", total, lease, may, takes),
		Risk: "the first peer of a fleet, and the last one left, may get none: its calls end without an answer",
		Do:   fmt.Sprintf("give the peers a lease of %v or more, or the name fewer partitions (countoff resize)", fits)}}
}

// times looks at the times that the peers keep.
func times(c transition.Census, total int) []Finding {
	var all []Finding
	leases := make(map[time.Duration][]string)
	untold := 0
	for _, s := range c.Apart().Sessions {
		if s.State == machine.Gone || s.Lease <= 0 {
			continue
		}
		t := transition.TimingOf(s.Terms)
		if t.Lease == 0 {
			untold++
			continue
		}
		leases[t.Lease] = append(leases[t.Lease], s.Peer)
		if err := t.Validate(); err != nil {
			all = append(all, Finding{Check: "budgets", Severity: Danger, What: fmt.Sprintf("%s: %v", s.Peer, err),
				Risk: "a handler of it may run beside the next owner's", Do: "set its times so that it would start today"})
		}
	}
	if len(leases) > 0 {
		all = append(all, crowded(total, slices.Min(slices.Collect(maps.Keys(leases))))...)
	}
	if len(leases) > 1 {
		var says []string
		for d, peers := range leases {
			slices.Sort(peers)
			says = append(says, fmt.Sprintf("%v (%s)", d, strings.Join(peers, ", ")))
		}
		slices.Sort(says)
		all = append(all, Finding{Check: "budgets", Severity: Warning, What: "peers of one name keep different leases: " + strings.Join(says, "; "),
			Risk: "the takeover takes as long as the longest, and the least clock step counts for all", Do: "give all peers of the name the same"})
	}
	if untold > 0 {
		all = append(all, Finding{Check: "budgets", Severity: Note, What: plural(untold, "peer does not tell its times: it is", "peers do not tell their times: they are") + " of an older version"})
	}
	return all
}

func summary(s status.Status) Finding {
	f := Finding{Check: "name", Severity: Fine, What: fmt.Sprintf("%s, hash %s", plural(s.Config.Total, "partition", "partitions"), s.Config.Hash)}
	switch units := s.Config.Units; len(units) {
	case 0:
	case 1:
		f.What += ", ingress list " + units[0]
	default:
		f.What += ", ingress lists " + strings.Join(units[:len(units)-1], ", ") + " and " + units[len(units)-1]
	}
	if s.TakeoverMS > 0 && s.Config.Paused == (partition.Pause{}) { // paused, they are nobody's
		f.What += fmt.Sprintf("; a dead peer's partitions are another's within %v", time.Duration(s.TakeoverMS)*time.Millisecond)
	}
	return f
}
