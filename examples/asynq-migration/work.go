package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// What is in this file is an ordinary program of asynq: it stays as it is.

// A Step is the payload of a task: the n-th thing that happens to an account.
type Step struct {
	Account string
	N       int
}

const typeStep = "account:step"

func newStep(account string, n int) (*asynq.Task, error) {
	payload, err := json.Marshal(Step{account, n})
	if err != nil {
		return nil, err
	}
	return asynq.NewTask(typeStep, payload, asynq.MaxRetry(10), asynq.Timeout(10*time.Second)), nil
}

// newMux makes the handlers. What they do to an account is written down in Redis, in the
// order in which it happened.
func newMux(client redis.UniversalClient, journal string) *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			time.Sleep(time.Duration(1+rand.N(4)) * time.Millisecond) // work takes its time
			return next.ProcessTask(ctx, task)
		})
	})
	mux.HandleFunc(typeStep, func(ctx context.Context, task *asynq.Task) error {
		var s Step
		if err := json.Unmarshal(task.Payload(), &s); err != nil {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		return client.RPush(ctx, journal+s.Account, s.N).Err()
	})
	return mux
}
