//go:build unix

package filesource_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/countoff/countoff/examples/filesource"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// A consumer neither knows nor cares where its tasks lie.
func Example() {
	dir, err := os.MkdirTemp("", "filesource")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	src := &filesource.Source{Dir: dir, Partitions: 2}
	layout, err := src.Layout(context.Background())
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"hello", "how are you", "goodbye"} {
		task := sources.Task{ID: text, Key: "ann", Payload: []byte(text)}
		if err := src.Append(partition.Of(task.Key, layout.Total), task); err != nil {
			panic(err)
		}
	}

	done := make(chan struct{}, 3)
	greet := framework.HandlerFunc(func(_ context.Context, t *framework.Task) error {
		fmt.Printf("to %s: %s\n", t.Key, t.Payload)
		done <- struct{}{}
		return nil
	})
	timing := transition.Timing{Settle: 50 * time.Millisecond}
	consumer, err := framework.New("greetings", src, greet,
		framework.WithLedger(memledger.New(layout, timing, memledger.Options{})),
		framework.WithConfig(framework.Config{Timing: timing}))
	if err != nil {
		panic(err)
	}
	if err := consumer.Start(context.Background()); err != nil {
		panic(err)
	}
	for range 3 {
		<-done
	}
	if err := consumer.Stop(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// to ann: hello
	// to ann: how are you
	// to ann: goodbye
}
