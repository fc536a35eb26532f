package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html/template"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/framework/status/past"
)

// Serve serves h, which is b itself or b behind checks and beside other pages, until ctx ends. It
// returns nil then, or what keeps it from serving, and l is closed.
func (b *Board) Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	b.Close() // no stream ends by itself
	const rest = 2 * time.Second
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
	defer cancel()
	var err error
	if server.Shutdown(last) != nil {
		err = server.Close() // pages that wait for a store that does not answer
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// routes are the paths of a board. All lie in one folder, so that the links between them hold wherever it
// is mounted.
func (b *Board) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", b.page)
	mux.HandleFunc("GET /events", b.events)
	mux.HandleFunc("GET /status.json", b.one(func(w http.ResponseWriter, v *view) { writeJSON(w, http.StatusOK, v.status) }))
	mux.HandleFunc("GET /history.json", b.one(func(w http.ResponseWriter, v *view) {
		entries := []past.Entry{}
		for _, e := range v.history {
			entries = append(entries, past.EntryOf(e))
		}
		writeJSON(w, http.StatusOK, entries)
	}))
	mux.HandleFunc("GET /map.txt", b.one(func(w http.ResponseWriter, v *view) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(v.text)) // who is gone reads nothing
	}))
	mux.HandleFunc("GET /metrics", b.metrics)
	for _, name := range []string{"style.css", "live.js"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, name) })
	}
	return mux
}

// ServeHTTP serves, below the path of the board: a page of all names, and with ?name= of one;
// status.json, history.json and map.txt of a name; metrics of all, for Prometheus; and what these need.
func (b *Board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	// Whatever stands in an id or a reason, it is no script here, and no other page frames this one.
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	b.mux.ServeHTTP(w, r)
}

// name is what a request is about; empty: all.
func (b *Board) name(r *http.Request) string {
	name := r.URL.Query().Get("name")
	if name == "" && len(b.cfg.Names) == 1 {
		return b.cfg.Names[0]
	}
	return name
}

// times are what the script of a page has to know of them, in seconds.
type times struct {
	Pace    float64 // between two events
	Timeout float64 // of a look
}

func (b *Board) times(pace time.Duration) times {
	return times{Pace: pace.Seconds(), Timeout: b.cfg.Timeout.Seconds()}
}

func (b *Board) page(w http.ResponseWriter, r *http.Request) {
	name, code := b.name(r), http.StatusOK
	var html string
	if name == "" {
		title, list := b.overview(r.Context())
		html = drawn("overview", struct {
			Title, List template.HTML
			times
		}{template.HTML(title), template.HTML(list), b.times(b.slower())}) //nolint:gosec // they were drawn by templates
	} else {
		v, err := b.look(r.Context(), name)
		if err != nil {
			http.Error(w, partitionmap.Printable(err.Error()), codeOf(err))
			return
		}
		if !v.seen {
			code = http.StatusServiceUnavailable
		}
		html = drawn("page", struct {
			*view
			times
		}{v, b.times(b.cfg.Every)})
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(html)) // who is gone reads nothing
}

// one answers with what write makes of the look at the name that is asked for.
func (b *Board) one(write func(http.ResponseWriter, *view)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := b.look(r.Context(), b.name(r))
		code := http.StatusServiceUnavailable
		if err != nil {
			code = codeOf(err)
		} else {
			err = v.err
		}
		if err != nil {
			writeJSON(w, code, map[string]string{"error": err.Error()})
			return
		}
		write(w, v)
	}
}

// codeOf is the code of a look that showed nothing.
func codeOf(err error) int {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return http.StatusNotFound
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // who is gone reads nothing
}

// slower is how often the list of all names is brought up to date, which are more to look at than one.
func (b *Board) slower() time.Duration { return 5 * b.cfg.Every }

// errSilent spares who opens the list the wait for each name of a store that stands still.
var errSilent = errors.New("not looked at: the store does not answer for other names")

// timedOut reports whether err is that nobody answered.
func timedOut(err error) bool {
	var slow interface{ Timeout() bool }
	return errors.As(err, &slow) && slow.Timeout()
}

// allViews are those of all names, in their order. With an error they are those of the names that were there.
func (b *Board) allViews(ctx context.Context) ([]*view, error) {
	names, fault := b.names(ctx)
	views := make([]*view, len(names))
	const atOnce = 8
	var answered, silent atomic.Int32
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			v, err := (*view)(nil), errSilent
			if answered.Load() > 0 || silent.Load() < atOnce {
				v, err = b.look(ctx, name)
			}
			switch {
			case err == nil && v.err == nil:
				answered.Add(1)
			case err == nil && timedOut(v.err):
				silent.Add(1)
			case err != nil: // it may just have been destroyed
				v = (*view)(nil).next(name, status.Status{}, nil, err, time.Time{})
			}
			views[i] = v
		})
	}
	all.Wait()
	return views, fault
}

// overview is the title of the page of all names, and their list.
func (b *Board) overview(ctx context.Context) (title, list string) {
	var all struct {
		Fault string
		Wrong []string // names of them
		Well  bool
		Rows  []template.HTML
	}
	views, err := b.allViews(ctx)
	if err != nil {
		all.Fault = partitionmap.Printable(err.Error())
	}
	all.Well = err == nil && len(views) > 0
	for _, v := range views {
		if v.Troubles() > 0 {
			all.Wrong = append(all.Wrong, v.name)
		}
		all.Well = all.Well && v.Well()
		all.Rows = append(all.Rows, template.HTML(v.row)) //nolint:gosec // it was drawn by a template
	}
	return drawn("all", all), drawn("list", all)
}

// events streams what changes on a page.
func (b *Board) events(w http.ResponseWriter, r *http.Request) {
	name := b.name(r)
	if name == "" {
		shown := ""
		b.stream(w, r, b.slower(), func(ctx context.Context) [][2]string {
			title, list := b.overview(ctx)
			was := shown
			if shown = list; shown == was {
				return nil
			}
			return [][2]string{{"title", title}, {"list", list}}
		})
		return
	}
	shown, err := b.look(r.Context(), name)
	if err != nil {
		http.Error(w, partitionmap.Printable(err.Error()), codeOf(err))
		return
	}
	var sent *view // the page may be older than what is shown now
	b.stream(w, r, b.cfg.Every, func(ctx context.Context) [][2]string {
		if sent != nil {
			v, err := b.look(ctx, name)
			if err != nil { // it was destroyed, and may come back
				v = sent.next(name, status.Status{}, nil, err, time.Now())
			}
			shown = v
		}
		changes := shown.since(sent)
		sent = shown
		return changes
	})
}

// patience is how long a browser may take to read an event.
const patience = 30 * time.Second

// stream sends what changes returns, again and again. Nothing new is an event too: so a page knows that it is not old.
func (b *Board) stream(w http.ResponseWriter, r *http.Request, every time.Duration, changes func(context.Context) [][2]string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies of nginx keep events back
	if r.Method == http.MethodHead {
		return // a stream does not end, and nobody reads this one
	}
	response := http.NewResponseController(w)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var event bytes.Buffer
		event.WriteString("data: ")
		encoder := json.NewEncoder(&event)
		encoder.SetEscapeHTML(false) // it is not in a page: half the size
		list := changes(r.Context())
		if r.Context().Err() != nil {
			return
		}
		if list == nil {
			list = [][2]string{}
		}
		_ = encoder.Encode(list) // texts can be encoded
		event.WriteString("\n")
		// Of a server that knows no deadlines its own hold.
		_ = response.SetWriteDeadline(time.Now().Add(patience))
		if _, err := w.Write(event.Bytes()); err != nil || response.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-b.closed.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}
