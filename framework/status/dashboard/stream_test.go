package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition/redisconfig"
)

// A page to which everything was done that its stream said is the page that is served then.
func TestStreamBringsAPageUpToDate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		b := newBoard(t, s.config())
		_, page := get(t, b, "/?name=billing")
		f := open(t, b, "/events?name=billing")
		standing := map[string]string{}
		apply := func() (ids []string) {
			for _, change := range f.next(t) {
				id, html := change[0], change[1]
				ids = append(ids, id)
				old, ok := standing[id]
				if !ok {
					old = html // the first event brings what may be there already
				}
				if id == "map" { // cells of it may have changed since
					old = regexp.MustCompile(`<div id="map".*?</div>`).FindString(page)
				}
				if strings.Count(page, old) != 1 {
					t.Fatalf("%s stands %d times in the page:\n%s\n%s", id, strings.Count(page, old), old, page)
				}
				page = strings.Replace(page, old, html, 1)
				if id == "map" {
					for _, cell := range regexp.MustCompile(`<i id="(c\d+)".*?</i>`).FindAllStringSubmatch(html, -1) {
						standing[cell[1]] = cell[0]
					}
				}
				standing[id] = html
			}
			return ids
		}
		same := func() {
			t.Helper()
			if _, now := get(t, b, "/?name=billing"); page != now {
				t.Errorf("the page is\n%s\nwant\n%s", page, now)
			}
		}
		apply()
		same()
		if ids := apply(); len(ids) != 0 {
			t.Errorf("nothing has changed, and the stream says %v", ids)
		}
		s.change(func() { s.round = 1 })
		if ids := apply(); !slices.Equal(ids, []string{"headline", "sums", "peers", "busy", "c5"}) {
			t.Errorf("a round later the stream says %v", ids)
		}
		same()
		s.change(func() { s.err = errors.New("the store is away") })
		if ids := apply(); !slices.Equal(ids, []string{"title", "wrong"}) {
			t.Errorf("while the store is away the stream says %v", ids)
		}
		same()
		if !strings.Contains(page, "the store is away") || !strings.Contains(page, "ann@5") {
			t.Errorf("while the store is away the page is\n%s", page)
		}
		s.change(func() { s.err, s.more = nil, 2 })
		if ids := apply(); !slices.Contains(ids, "map") {
			t.Errorf("with more partitions the stream says %v", ids)
		}
		if !strings.Contains(page, `id="c7"`) || strings.Contains(page, "the store is away") {
			t.Errorf("with more partitions the page is\n%s", page)
		}
		s.change(func() { s.more = 1 })
		apply()
		same()
	})
}

// A browser that reads nothing does not keep a stream for ever.
func TestWhoReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		ctx, cancel := context.WithCancel(t.Context())
		w := &deaf{wire: wire{http.Header{}, io.Discard}, cancel: cancel}
		newBoard(t, s.config()).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?name=billing", nil))
		if want := time.Now().Add(patience); !w.until.Equal(want) {
			t.Errorf("it may take until %v, want %v", w.until, want)
		}
	})
}

// Who asks for the head of a stream gets it, and no stream that nobody reads.
func TestHeadOfAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		b := newBoard(t, s.config())
		for _, path := range []string{"/events", "/events?name=billing"} {
			w := httptest.NewRecorder()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			b.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodHead, path, nil))
			if w.Code != http.StatusOK || w.Body.Len() > 0 || ctx.Err() != nil {
				t.Errorf("%s: %d %q, %v", path, w.Code, w.Body, ctx.Err())
			}
			cancel()
		}
	})
}

// Streams do not keep a server from shutting down.
func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		b := newBoard(t, s.config())
		one, all := open(t, b, "/events?name=billing"), open(t, b, "/events")
		one.next(t)
		all.next(t)
		b.Close()
		<-one.done
		<-all.done
		if code, _ := get(t, b, "/?name=billing"); code != http.StatusOK {
			t.Errorf("after Close: %d", code)
		}
	})
}

// A name that is destroyed while somebody looks at it says so on the page, and may come back.
func TestNameThatIsDestroyed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		b := newBoard(t, s.config())
		both := []*feed{open(t, b, "/events?name=billing"), open(t, b, "/events?name=billing")}
		for _, f := range both {
			f.next(t)
		}
		s.change(func() { s.err = redisconfig.ErrNone })
		for _, f := range both {
			if changes := f.next(t); len(changes) != 2 || !strings.Contains(changes[1][1], "no configuration yet") {
				t.Errorf("the stream says %v", changes)
			}
		}
		s.change(func() { s.err = nil })
		for _, f := range both {
			if changes := f.next(t); len(changes) == 0 || strings.Contains(fmt.Sprint(changes), "no configuration yet") {
				t.Errorf("when it is back the stream says %v", changes)
			}
		}
	})
}
