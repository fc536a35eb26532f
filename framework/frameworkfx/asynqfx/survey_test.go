package asynqfx

import (
	"slices"
	"testing"

	"github.com/countoff/countoff/framework/frameworkfx/internal/fences"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition/coverage"
)

// The watch over the coverage sees the fences of queues, and that tasks wait in them.
func TestSurveySeesFencesAndTasks(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	fenced, full := name+"-fenced", name+"-full"
	src, err := asynqsource.New(client, name, asynqsource.Config{Queues: []string{fenced, full}})
	if err != nil {
		t.Fatal(err)
	}
	token := partition.Token{Epoch: 9, Session: "aa"}
	if err := client.HSet(t.Context(), "{"+fenced+"}:fence", "t", token.String()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.LPush(t.Context(), "asynq:{"+full+"}:pending", "id").Err(); err != nil {
		t.Fatal(err)
	}
	look := fences.Survey(client, src.Place)
	var got []coverage.Datum
	for range 2 { // on a cluster each look is at one queue
		data, err := look(t.Context(), []partition.ID{0, 1, partition.FirstUnit})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, data...)
	}
	for _, want := range []coverage.Datum{{ID: 0, Fence: token}, {ID: 1, Waiting: true}} {
		if !slices.Contains(got, want) {
			t.Errorf("%+v is not in %+v", want, got)
		}
	}
}
