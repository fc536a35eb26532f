package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// ofQueues examines the queues of asynq that a name consumes.
func ofQueues(ctx context.Context, client redis.UniversalClient, name string, cfg partition.Config) ([]Finding, error) {
	if client == nil {
		return nil, nil
	}
	q, ok, err := queuestat.Read(ctx, client, name)
	if err != nil || !ok {
		return nil, err
	}
	partitions := q.Names(cfg.Total)
	all := strangers(ctx, client, name, slices.Concat(cfg.Units, partitions))
	known, err := client.SMembers(ctx, queuestat.All).Result()
	if err != nil {
		return append(all, unknown("queues", err)), nil
	}
	slices.Sort(known)
	named := slices.Clone(cfg.Units)
	if q.Named() {
		named = append(named, partitions...)
	}
	ours := named
	if len(named) == 0 {
		ours = partitions
	}
	used, unused := queuestat.Traces(ctx, client, slices.DeleteFunc(slices.Clone(ours), func(queue string) bool { return slices.Contains(known, queue) }))
	all = append(all, unlisted(used)...)
	switch {
	case len(named) > 0:
		all = append(all, unfilled(known, unused, slices.Concat(named, partitions))...)
	case len(unused) == len(partitions):
		all = append(all, forgotten(known, name, partitions)...)
	}
	if !q.Named() {
		all = append(all, beyond(ctx, client, q, known, name, cfg.Total)...)
	}
	return all, nil
}

// beyond tells of tasks in queues by key that are no partitions: there were more of these before. None of its
// peers consumes them, and an asynqsource.Client knows the number from its start. Where another works them off nothing is told.
func beyond(ctx context.Context, client redis.UniversalClient, q queuestat.Queues, known []string, name string, total int) []Finding {
	var ids []partition.ID
	for _, queue := range known {
		number, ours := strings.CutPrefix(queue, name+":")
		n, err := strconv.ParseInt(number, 10, 32)
		if id := partition.ID(n); ours && err == nil && int(n) >= total && q.Of(id) == queue {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	stats, err := q.Stats(ctx, client, ids)
	if err != nil {
		return []Finding{unknown("queue-beyond", err)}
	}
	queues := make([]string, len(ids))
	for i, id := range ids {
		queues[i] = q.Of(id)
	}
	servers, _ := queuestat.Servers(ctx, client) // strangers says it if they cannot be read
	var held []string
	for i, s := range stats {
		worked := slices.ContainsFunc(servers, func(s queuestat.Server) bool { return slices.Contains(s.Queues, queues[i]) })
		if !worked && s.Pending+s.Active+s.Delayed > 0 {
			held = append(held, queues[i])
		}
	}
	if len(held) == 0 {
		return nil
	}
	return []Finding{{
		Check: "queue-beyond", Severity: Danger, What: fmt.Sprintf("tasks wait in queues that are no partitions of %s, which has %d: %s", name, total, some(held)),
		Risk: "nobody works them",
		Do:   "restart who enqueues with asynqsource.NewClient, if somebody does: it knows the number of partitions from its start; then work these queues off: a consumer of another name, with them as its Source.Queues",
	}}
}

// unlisted tells of queues in use that asynq's tools do not know: its client lists a queue with the first
// task that it puts there, and not again when the list is lost.
func unlisted(used []string) []Finding {
	if len(used) == 0 {
		return nil
	}
	return []Finding{{
		Check: "queue-unlisted", Severity: Note, What: "asynq does not list queues that were filled: " + some(used),
		Risk: "their tasks are worked, but asynqmon does not show them, and asynq's CLI and inspector do not find them",
		Do:   "redis-cli SADD " + queuestat.All + " QUEUE, or restart who enqueues: asynq's client lists a queue once, and the store has lost that since, or somebody has removed the queue",
	}}
}

// overwritten tells of keys of its queues that another program has overwritten: their owner can do
// nothing, and says so in its log alone.
func overwritten(ctx context.Context, client redis.UniversalClient, name string) []Finding {
	if client == nil {
		return nil
	}
	cfg, err := redisconfig.Read(ctx, client, name)
	if err != nil {
		return nil // it is told where the name is read
	}
	q, ok, err := queuestat.Read(ctx, client, name)
	if err != nil || !ok {
		return nil // so is this
	}
	wrong, err := queuestat.Overwritten(ctx, client, slices.Concat(cfg.Units, q.Names(cfg.Total)))
	if err != nil {
		return []Finding{unknown("overwritten", err)}
	}
	var all []Finding
	for _, what := range wrong {
		all = append(all, Finding{Check: "overwritten", Severity: Danger, What: what + ": another program writes it",
			Risk: "nothing of the queue is worked on", Do: "rename or delete it: what was there is lost already"})
	}
	return all
}

// strangers tells of who consumes the queues of a name beside its peers. These look once a
// minute, and say it in their log alone.
func strangers(ctx context.Context, client redis.UniversalClient, name string, queues []string) []Finding {
	servers, err := queuestat.Servers(ctx, client)
	if err != nil {
		return []Finding{unknown("plain-server", err)}
	}
	var plain, peers []string // as a rule there is one of each of the pods of a deployment
	for _, s := range queuestat.Strangers(servers, name, queues) {
		where := fmt.Sprintf("(host %s, pid %d, since %s)", s.Host, s.PID, s.Since.Format(time.RFC3339))
		if s.Peer != "" {
			peers = append(peers, fmt.Sprintf("queue %q is consumed by the peers of the name %s %s", s.Queue, s.Peer, where))
		} else {
			plain = append(plain, fmt.Sprintf("a plain asynq.Server consumes queue %q %s", s.Queue, where))
		}
	}
	var all []Finding
	if len(peers) > 0 {
		all = append(all, Finding{Check: "shared-queue", Severity: Danger,
			What: some(peers),
			Risk: "a queue belongs to one name: its tasks may run twice and out of order, and who sees peers of the other name fetches nothing while they are there",
			Do:   "stop them, or take the queue out of one of the two names"})
	}
	if len(plain) > 0 {
		all = append(all, Finding{Check: "plain-server", Severity: Danger,
			What: some(plain),
			Risk: "it asks no fence: tasks run twice and out of order, and the peers fetch nothing while it is there, unless they are to sound the alarm only",
			Do:   "stop it; one that was killed stays listed for some ten seconds"})
	}
	return all
}

// unfilled tells of queues that no task was ever put into: a name that is written in another
// way here than where tasks are enqueued looks like a queue that has nothing to do.
func unfilled(known, without, ours []string) []Finding {
	if len(without) == 0 {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(known), func(queue string) bool { return slices.Contains(ours, queue) })
	do := "compare it with what producers say (asynq.Queue); it is well if they have not begun"
	if len(others) > 0 {
		do += "; other queues that asynq knows: " + some(others)
	}
	return []Finding{{
		Check: "queues", Severity: Warning, What: "no task was ever enqueued to " + some(without),
		Risk: "if it is misspelt, tasks wait in a queue that nobody consumes", Do: do,
	}}
}

// forgotten tells of queues that have tasks where a name has queues by key, and none of those
// was ever filled: a server that was told no queues consumed default, and a source that is told
// none does not.
func forgotten(known []string, name string, ours []string) []Finding {
	if len(known) == 0 {
		return nil
	}
	return []Finding{{
		Check: "queues", Severity: Warning,
		What: fmt.Sprintf("no task was ever enqueued to the queues by key, %s; other queues that asynq knows: %s", span(ours), some(known)),
		Risk: "only asynqsource.NewClient fills queues by key: tasks in the others are not worked by " + name,
		Do: fmt.Sprintf("is Source.Queues or Ingress missing in its peers? Then stop them, countoff destroy %s --yes (which leaves the queues of asynq and their tasks as they are), and start them with it; it is well if producers have not begun",
			name),
	}}
}

// span is a list that is numbered.
func span(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return list[0] + " .. " + list[len(list)-1]
}

// some are the first of a list, and how many more there are.
func some(list []string) string {
	const most = 8
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
