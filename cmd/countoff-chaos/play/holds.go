package play

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
)

// taskID finds a task's id in whatever bytes carry it: the checker reads the store
// with its own eyes.
var taskID = regexp.MustCompile(`[pi][0-9]{9}`)

// idOf returns the id of the task that these bytes carry, or what they are.
func idOf(element string) string {
	if id := taskID.FindString(element); id != "" {
		return id
	}
	return fmt.Sprintf("%q", element)
}

// holds reads what stands in the store. Tasks may move meanwhile: from the inbox, which is
// read first, to a partition, and within one, which is read at once.
func (s *stage) holds(ctx context.Context, client redis.UniversalClient) (checker.Store, error) {
	left := checker.Store{Open: map[string]string{}, Dead: map[string]int{}}
	note := func(where, element string) { left.Open[idOf(element)] = where }
	inbox, err := client.LRange(ctx, s.inbox, 0, -1).Result()
	if err != nil {
		return left, fmt.Errorf("read what is left of the inbox: %w", err)
	}
	for _, e := range inbox {
		note("inbox", e)
	}
	for p := range s.cfg.Partitions {
		tag := fmt.Sprintf("{%s:%d}", s.name, p)
		pipe := client.TxPipeline()
		base := pipe.HGet(ctx, tag+":fence", "b")
		pending := pipe.LRange(ctx, tag+":pending", 0, -1)
		done := pipe.ZRange(ctx, tag+":done", 0, -1)
		lifted := pipe.HVals(ctx, tag+":lifted")
		delayed := pipe.ZRange(ctx, tag+":delayed", 0, -1)
		dead := pipe.LRange(ctx, tag+":dead", 0, -1)
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return left, fmt.Errorf("read what is left of partition %d: %w", p, err)
		}
		first, _ := strconv.Atoi(base.Val()) // nobody has opened it: 0
		finished := map[string]bool{}
		for _, x := range done.Val() {
			finished[x] = true
		}
		for i, e := range pending.Val() {
			if !finished[strconv.Itoa(first+i)] {
				note("pending", e)
			}
		}
		for _, e := range lifted.Val() {
			note("lifted", e)
		}
		for _, e := range delayed.Val() {
			note("delayed", e)
		}
		for _, e := range dead.Val() {
			left.Dead[idOf(e)]++
		}
	}
	return left, nil
}
