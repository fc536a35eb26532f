package sourcetest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"

	"github.com/countoff/countoff/sources/sourcetest"
)

// faulty is the way of one peer to a store over HTTP, with requests as in POST /17/settle.
type faulty struct{ sourcetest.Line }

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	var gone atomic.Bool // the sender is
	var res *http.Response
	var err error
	injected := f.DoContext(r.Context(), func() {
		if !gone.Load() {
			res, err = http.DefaultTransport.RoundTrip(r) //nolint:bodyclose // by who gets it, or below
			return
		}
		late := r.Clone(context.Background())
		if r.GetBody != nil {
			late.Body, _ = r.GetBody() // the client's own, which cannot fail
		}
		if answer, err := http.DefaultTransport.RoundTrip(late); err == nil {
			answer.Body.Close() // nobody waits for it
		}
	}, sourcetest.Op(path.Base(r.URL.Path)))
	gone.Store(true)
	if injected == nil {
		return res, err
	}
	if res != nil {
		res.Body.Close()
	}
	return nil, injected
}

// The requests of a source over HTTP suffer faults in the transport of its client. A late
// one is sent when its sender, and its sender's context, are gone.
func ExampleLine() {
	store := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fmt.Println("came:", r.URL.Path) }))
	defer store.Close()
	line := new(faulty)
	client := &http.Client{Transport: line} // of one peer: Harness.Peer returns Peer{Source: …, Inject: line.Inject, Kill: line.Kill}

	send := func(op sourcetest.Op, body io.Reader) {
		late := line.Inject(op, sourcetest.Late)
		if res, err := client.Post(store.URL+"/17/"+string(op), "", body); err == nil {
			res.Body.Close()
		}
		fmt.Println("on its way:", late.Hit())
		late.Release()
	}
	send(sourcetest.Settle, strings.NewReader("done"))
	send(sourcetest.Fetch, nil)
	// Output:
	// on its way: true
	// came: /17/settle
	// on its way: true
	// came: /17/fetch
}
