// Package fences reads which owners a name's data admits, for the watch over its coverage.
package fences

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/transition/coverage"
)

// Survey reads the fences of partitions, and whether their logs are empty; place is that of
// redisprogress.NewSurvey.
func Survey(client redis.UniversalClient, place func(partition.ID) (fence, log string)) framework.Survey {
	survey := redisprogress.NewSurvey(client, place)
	return func(ctx context.Context, ids []partition.ID) ([]coverage.Datum, error) {
		found, err := survey.Look(ctx, ids)
		data := make([]coverage.Datum, len(found))
		for i, f := range found {
			data[i] = coverage.Datum{ID: f.ID, Fence: f.Fence, Waiting: f.Log}
		}
		return data, err
	}
}
