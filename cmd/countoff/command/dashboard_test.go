package command

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition/redistest"
)

// served starts a dashboard, and returns its address and what ends it and returns its error.
func (s shell) served(line string) (page string, end func() error) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	var out output
	done := make(chan error, 1)
	go func() { done <- s.start(ctx, &out, "dashboard --listen 127.0.0.1:0 "+line) }()
	address := regexp.MustCompile(`http://\S+/`)
	wait(s.t, func() bool { return address.MatchString(out.String()) })
	return address.FindString(out.String()), func() error {
		stop()
		return <-done
	}
}

// a browser keeps no connections for later.
func browser(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func request(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func answer(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// The page of a real name, and a stream that does not keep the program from ending.
func TestDashboard(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 8")
	s.run("init other --partitions 4")
	s.run("enqueue n x --key k")
	page, end := s.served("--every 100ms")
	c := browser(t)
	if _, list := answer(t, c, request(t, page)); !strings.Contains(list, "?name=n") || !strings.Contains(list, "?name=other") {
		t.Errorf("the list is\n%s", list)
	}
	if _, html := answer(t, c, request(t, page+"?name=n")); !strings.Contains(html, "8 partitions") || !strings.Contains(html, "; 1 pending") ||
		!strings.Contains(html, "the name was made") {
		t.Errorf("the page is\n%s", html)
	}
	stream, err := c.Do(request(t, page+"events?name=n"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if _, err := io.ReadFull(stream.Body, make([]byte, 100)); err != nil {
		t.Error(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
}

// With a login nothing is shown without it.
func TestDashboardWithALogin(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 8")
	page, end := s.served("n --login ops:se:cret")
	c := browser(t)
	for _, path := range []string{"", "?name=n", "events", "status.json", "history.json", "map.txt", "live.js"} {
		for _, password := range []string{"", "se", "se:cret2"} {
			r := request(t, page+path)
			if password != "" {
				r.SetBasicAuth("ops", password)
			}
			if code, body := answer(t, c, r); code != http.StatusUnauthorized || strings.Contains(body, "partitions") {
				t.Errorf("/%s with %q: %d %s", path, password, code, body)
			}
		}
	}
	r := request(t, page)
	r.SetBasicAuth("ops", "se:cret")
	if code, body := answer(t, c, r); code != http.StatusOK || !strings.Contains(body, "8 partitions") {
		t.Errorf("with the login: %d %s", code, body)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A page from elsewhere whose name was made to lead to this machine (DNS rebinding) reads nothing.
func TestDashboardUnderAnotherName(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 8")
	c := browser(t)
	for flags, foreign := range map[string]int{"n": http.StatusForbidden, "n --login a:b": http.StatusOK} {
		page, end := s.served(flags)
		for host, want := range map[string]int{
			"evil.example:8470": foreign, "localhost.evil.example": foreign, "evil.example": foreign,
			"localhost:8470": http.StatusOK, "LOCALHOST": http.StatusOK, "127.0.0.1:1": http.StatusOK, "[::1]:8470": http.StatusOK, "::1": http.StatusOK,
		} {
			r := request(t, page+"status.json")
			r.Host = host
			r.SetBasicAuth("a", "b")
			if code, body := answer(t, c, r); code != want {
				t.Errorf("%q, as %s: %d %s", flags, host, code, body)
			}
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// Who is told to end while pages wait for a store that stands still ends.
func TestDashboardOfASilentStore(t *testing.T) {
	t.Parallel()
	mini, _ := redistest.Mini(t)
	var silent silence
	s := shell{t, "redis://" + through(t, mini.Addr(), &silent), ""}
	s.run("init n --partitions 8")
	s.url += "?read_timeout=10m" // the client would give the answer up after 3 s
	page, end := s.served("n --timeout 10m")
	silent.Store(true)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if response, err := browser(t).Do(request(t, page)); err == nil {
			response.Body.Close()
		}
	}()
	wait(t, func() bool { return silent.held.Load() > 0 })
	if err := end(); err != nil {
		t.Error(err)
	}
	<-gone
}
