package website_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/scraper/website"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// The one who watches over the others is not blind.
func TestTwoOwnersAreNoticed(t *testing.T) {
	server, err := website.Start(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	old, young := partition.Token{Epoch: 4, Session: "a"}, partition.Token{Epoch: 5, Session: "b"}
	site := server.URL("news")
	visit := func(peer string, token partition.Token) error {
		return website.Visit(t.Context(), client, site, peer, token)
	}
	if err := visit("ann", old); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = visit("ann", old) })
	begun(t, server, 2)
	if err := visit("bob", young); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := visit("ann", old); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("an owner of before was let in: %v", err)
	}
	book := server.Book()
	if book.Visits != 3 || book.Refused != 1 || len(book.Double) != 1 || len(book.Changes) != 1 || book.Changes[0].To != "bob" {
		t.Errorf("%+v", book)
	}
	if sight := server.Look()[site]; sight.Owner != "bob" {
		t.Errorf("%+v", sight)
	}
}

// Who hands a site over is not seen there any more when its next owner comes; only who has lost it does not wait.
func TestAVisitIsEndedBeforeAHandOver(t *testing.T) {
	for _, c := range []struct {
		why  error
		ends bool
	}{{framework.ErrHandedOver, true}, {framework.ErrRemoved, true}, {transition.ErrTaken, false}} {
		t.Run(c.why.Error(), func(t *testing.T) {
			server, err := website.Start(map[bool]time.Duration{true: 50 * time.Millisecond, false: time.Hour}[c.ends])
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			client := &http.Client{}
			defer client.CloseIdleConnections()
			ctx, end := context.WithCancelCause(t.Context())
			site, visited := server.URL("news"), make(chan error, 1)
			go func() { visited <- website.Visit(ctx, client, site, "ann", partition.Token{Epoch: 4, Session: "a"}) }()
			begun(t, server, 1)
			end(c.why)
			if err := <-visited; err != nil {
				t.Error(err)
			}
			if seen := !server.Look()[site].Last.IsZero(); c.ends && !seen {
				t.Error("she is still there")
			}
		})
	}
}

// begun waits until so many visits have begun.
func begun(t *testing.T, server *website.Server, visits int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); server.Book().Visits < visits; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the visit does not begin")
		}
	}
}

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sites")
	if err := os.WriteFile(file, []byte("# sites\n a \n\nb"), 0o600); err != nil {
		t.Fatal(err)
	}
	if sites, err := website.Read(file); err != nil || !slices.Equal(sites, []string{"a", "b"}) {
		t.Errorf("%q %v", sites, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := website.Read(file); err == nil {
		t.Error("an empty file was taken")
	}
}
