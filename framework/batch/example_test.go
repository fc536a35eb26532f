package batch_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/batch"
)

// Rows are inserted many at once. A consumer, or a route of a Mux, is given the handler; here it is given a task by hand.
func ExampleNew() {
	type row struct{ Name string }
	insert := batch.JSON(func(_ context.Context, rows []row, _ []*framework.Task) error {
		fmt.Println("INSERT", rows)
		return nil
	})
	handler, err := batch.New(batch.Config{Size: 100}, insert)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(handler.Handle(context.Background(), &framework.Task{Payload: []byte(`{"Name":"ann"}`), Delivery: &framework.Delivery{Attempt: 1}}))
	// Output:
	// INSERT [{ann}]
	// <nil>
}

// A function that knows which of its tasks failed says so: the others are done.
func ExampleEach() {
	send := func(_ context.Context, tasks []*framework.Task) error {
		errs := make([]error, len(tasks))
		for i, t := range tasks {
			if t.Key == "" {
				errs[i] = framework.Dead(errors.New("nobody to send it to"))
			}
		}
		return batch.Each(errs)
	}
	fmt.Println(send(context.Background(), []*framework.Task{{Key: "ann"}, {}, {Key: "ben"}}))
	// Output: 1 of 3 tasks failed; the first: nobody to send it to
}
