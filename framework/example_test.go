package framework_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// Each run of a handler is a line of a log/slog logger.
func ExampleLog() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // which is another in each run of the example
		}
		return a
	}}))
	send := framework.HandlerFunc(func(context.Context, *framework.Task) error { return errors.New("no connection") })
	handler := framework.Log(func(ctx context.Context, t *framework.Task, _ time.Duration, err error) {
		log.InfoContext(ctx, "handled", "id", t.ID, "type", t.Type, "partition", t.Grant.ID, "err", err)
	})(send)
	_ = handler.Handle(context.Background(), &framework.Task{ID: "1", Type: "mail", Delivery: &framework.Delivery{Grant: partition.Grant{ID: 3}}})
	// Output:
	// level=INFO msg=handled id=1 type=mail partition=3 err="no connection"
}
