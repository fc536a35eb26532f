package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// unfilled tells of the queues of asynq that a name consumes and that no task was ever put
// into: a name that is written in another way here than where tasks are enqueued looks like a
// queue that has nothing to do.
func unfilled(ctx context.Context, client redis.UniversalClient, name string, ingress []string) ([]Finding, error) {
	if client == nil {
		return nil, nil
	}
	q, ok, err := queuestat.Read(ctx, client, name)
	if err != nil || !ok {
		return nil, err
	}
	ours := slices.Clone(ingress)
	for id := partition.ID(0); q.Named() && q.Of(id) != ""; id++ {
		ours = append(ours, q.Of(id))
	}
	known, err := client.SMembers(ctx, queuestat.All).Result()
	if err != nil {
		return []Finding{unknown("queues", err)}, nil
	}
	slices.Sort(known)
	var without []string
	for _, queue := range ours {
		if !slices.Contains(known, queue) {
			without = append(without, queue)
		}
	}
	if len(without) == 0 {
		return nil, nil
	}
	others := slices.DeleteFunc(known, func(queue string) bool { return slices.Contains(ours, queue) })
	do := "compare it with what producers say (asynq.Queue); it is well if they have not begun"
	if len(others) > 0 {
		do += "; other queues that asynq knows: " + some(others)
	}
	return []Finding{{
		Check: "queues", Severity: Warning, What: "no task was ever enqueued to " + some(without),
		Risk: "if it is misspelt, tasks wait in a queue that nobody consumes", Do: do,
	}}, nil
}

// some are the first of a list, and how many more there are.
func some(list []string) string {
	const most = 8
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
