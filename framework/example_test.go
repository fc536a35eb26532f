package framework_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// A consumer over memory: a service of a single process, or a first try.
func Example() {
	layout := partition.Config{Total: 8}
	store, err := memsource.New(memsource.Config{Partitions: layout})
	if err != nil {
		fmt.Println(err)
		return
	}
	timing := transition.Timing{Settle: 10 * time.Millisecond}
	ledger := memledger.New(layout, timing, memledger.Options{})

	ctx, stop := context.WithCancel(context.Background())
	type mail struct{ To, Text string }
	handler := framework.JSON(func(_ context.Context, m mail, t *framework.Task) error {
		fmt.Printf("%s: %s\n", m.To, m.Text)
		if m.Text == "bye" {
			stop()
		}
		return nil
	})
	consumer, err := framework.New("mails", store, handler,
		framework.WithLedger(ledger),
		framework.WithConfig(framework.Config{Concurrency: 4, Timing: timing, PodGrace: time.Minute}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, payload := range []string{`{"To":"ann","Text":"hi"}`, `{"To":"ann","Text":"how are you"}`, `{"To":"ann","Text":"bye"}`} {
		if err := store.Push(sources.Task{Key: "ann", Payload: []byte(payload)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := consumer.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ann: hi
	// ann: how are you
	// ann: bye
}

func ExampleNewMux() {
	_, err := framework.NewMux(
		framework.On("welcome", framework.HandlerFunc(welcome)),
		framework.On("welcome", framework.HandlerFunc(welcome)),
		framework.On("digest", nil),
	)
	fmt.Println(err)
	// Output:
	// framework: two handlers for type "welcome"
	// framework: the handler for type "digest" is missing
}

func welcome(context.Context, *framework.Task) error {
	return framework.RetryAfter(5*time.Minute, errors.New("greylisted"))
}
