package website_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/scraper/website"
	"github.com/countoff/countoff/partition"
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
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); server.Book().Visits < 2; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the visit does not begin")
		}
	}
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
