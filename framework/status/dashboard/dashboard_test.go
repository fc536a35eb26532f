package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// evil is what others may have written into an id, a tag or a reason.
const evil = `<script src=x></script>"'&` + "\x1b[2J"

// sample is a name in which there is something of everything.
func sample(name string, round int) status.Status {
	s := status.Status{
		Name: name, Roll: status.Roll{Version: uint64(7 + round), Replicas: 3}, TakeoverMS: 5100,
		Peers: []status.Peer{
			{ID: "ann", Session: "a", State: status.Live, Weight: 2, Partitions: 3, LeaseMS: 1900 - 100*int64(round), Tags: []string{"gpu", evil}},
			{ID: evil, Session: "b", Index: 1, State: status.Expired, Weight: 1},
			{ID: "cid", Session: "c", Index: -1, State: "gone", Unwell: true},
		},
		Findings: []status.Finding{{Kind: "unowned", Partitions: []partition.ID{3}, Text: "nobody owns it: " + evil}},
		Barrier:  &status.Barrier{Roll: 7, Arrived: []string{"ann"}, Behind: []status.Behind{{Peer: evil, Roll: 6}}},
		Units: []status.Unit{
			{Held: status.Held{State: status.Owned, Owner: "ann"}, Name: "inbox", Pending: 2},
			{Held: status.Held{State: status.Unowned}, Name: "outbox", Trouble: evil},
		},
		ToCancel: &status.ToCancel{Waits: 2, Runs: 1, Since: time.Unix(1_800_000_000, 0)},
		Table:    map[string][]string{"ann": {"https://example.com/" + evil}, "_": slices.Repeat([]string{"u"}, mostUnits+2)},
	}
	for i, h := range []status.Held{
		{State: status.Owned, Owner: "ann", Epoch: 5, Session: "a"},
		{State: status.Moving, Owner: "ann", Epoch: 6, Session: "a"},
		{State: status.Opening, Owner: evil, Epoch: 8, Session: "b"},
		{State: status.Unowned},
		{State: status.Double, Owner: evil, Epoch: 9, Session: "b"},
		{State: status.Owned, Owner: "ann", Epoch: 10, Session: "a"},
	} {
		h.ID = partition.ID(i)
		p := status.Partition{Held: h}
		if i == 5 {
			p.Pending, p.Dead = 3*round, 1
		}
		s.Partitions = append(s.Partitions, p)
	}
	return s
}

// A store is what boards of the tests look at.
type store struct {
	mu    sync.Mutex
	round int
	looks int
	err   error
	more  int // partitions
	// unlisted: the names cannot be listed.
	unlisted bool
}

func (s *store) config() Config {
	return Config{
		List: func(context.Context) ([]string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.unlisted {
				return nil, errors.New("the store is away")
			}
			return []string{"billing", "mails"}, nil
		},
		Read: func(_ context.Context, name string) (status.Status, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.looks++
			if name != "billing" && name != "mails" {
				return status.Status{}, fmt.Errorf("%s: %w", name, redisconfig.ErrNone)
			}
			found := sample(name, s.round)
			for i := range s.more {
				found.Partitions = append(found.Partitions, status.Partition{Held: status.Held{ID: partition.ID(6 + i), State: status.Unowned}})
			}
			return found, s.err
		},
		History: func(_ context.Context, _ string, limit int) (machine.History, error) {
			if limit != told {
				return nil, fmt.Errorf("history of %d", limit)
			}
			return machine.History{{What: machine.Came, Peer: evil, At: time.Unix(1_700_000_000, 0)}, {What: machine.Made, At: time.Unix(1_700_000_001, 0)}}, nil
		},
	}
}

func (s *store) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

func newBoard(t *testing.T, cfg Config) *Board {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// get is what h answers.
func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// A feed is the stream of a page.
type feed struct {
	events *bufio.Reader
	cancel context.CancelFunc
	done   chan struct{}
}

// A wire writes to whoever reads; it has no deadlines.
type wire struct {
	head http.Header
	io.Writer
}

func (w wire) Header() http.Header { return w.head }
func (w wire) WriteHeader(int)     {}
func (w wire) Flush()              {}

func open(t *testing.T, h http.Handler, path string) *feed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	f := &feed{bufio.NewReader(r), cancel, make(chan struct{})}
	go func() {
		defer close(f.done)
		defer w.Close()
		h.ServeHTTP(wire{http.Header{}, w}, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	}()
	stop := context.AfterFunc(ctx, func() { r.Close() })
	t.Cleanup(func() {
		cancel()
		stop()
		<-f.done
	})
	return f
}

// next is the next event: what to put where.
func (f *feed) next(t *testing.T) (changes [][2]string) {
	t.Helper()
	line, err := f.events.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	data, ok := bytes.CutPrefix(line, []byte("data: "))
	if !ok {
		t.Fatalf("event %q", line)
	}
	if err := json.Unmarshal(data, &changes); err != nil {
		t.Fatal(err)
	}
	if _, err := f.events.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	return changes
}

// What others have written is text, whatever it is, and everything in a page can be drawn.
func TestPageWithTextOfOthers(t *testing.T) {
	t.Parallel()
	var s store
	b := newBoard(t, s.config())
	for _, path := range []string{"/", "/?name=billing"} {
		code, page := get(t, b, path)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, page)
		}
		for _, none := range []string{"<script src=x>", "\x1b", "dashboard: template", "ZgotmplZ", " style=", "onclick"} {
			if strings.Contains(page, none) {
				t.Errorf("%s has %q in it:\n%s", path, none, page)
			}
		}
	}
	_, page := get(t, b, "/?name=billing")
	for _, want := range []string{
		`data-pace="1" data-timeout="10"`, `<i id="c2" class="opening l0 h1" data-peer="B"`, "&lt;script", "ann@5", "nobody owns it", "roll 7 before all have stopped", "waits for", "inbox", "and 2 more",
		"the name was made", `<i id="c1" class="moving l0 h0" data-peer="A"`, `<i id="c3" class="unowned l0" data-peer=""`, "takeover within", "5.1 s", `<meter max="3" value="3" aria-hidden="true">`, `<title id="title">2 wrong · billing · countoff</title>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// That nothing is wrong is said, and not only by what is left out: in three seconds nobody looks for what is not there.
func TestThatNothingIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	const well, title = ">Nothing is wrong<", `<title id="title">countoff</title>`
	for what, c := range map[string]struct {
		change func(*status.Status)
		well   bool
		wrong  int
	}{
		"all is well":       {func(*status.Status) {}, true, 0},
		"a finding":         {func(s *status.Status) { s.Findings = []status.Finding{{Kind: "refused", Text: "x"}} }, false, 1},
		"a list of trouble": {func(s *status.Status) { s.Units = []status.Unit{{Name: "inbox", Trouble: "no list"}} }, false, 1},
		"no cancelling":     {func(s *status.Status) { s.ToCancel = &status.ToCancel{Trouble: "no hash"} }, false, 1},
		"a dead letter":     {func(s *status.Status) { s.Partitions[0].Dead = 1 }, false, 0},
		"nobody's":          {func(s *status.Status) { s.Partitions[0].State = status.Unowned }, false, 0},
		"not known":         {func(s *status.Status) { s.Partitions[0].Unknown = true }, false, 0},
	} {
		s := status.Status{Peers: []status.Peer{{ID: "ann", Session: "a", State: status.Live}}, Partitions: []status.Partition{{Held: status.Held{State: status.Owned, Owner: "ann", Session: "a"}}}}
		c.change(&s)
		b := newBoard(t, Config{
			List: func(context.Context) ([]string, error) { return []string{"billing"}, nil },
			Read: func(context.Context, string) (status.Status, error) { return s, nil },
		})
		_, page := get(t, b, "/?name=billing")
		_, list := get(t, b, "/")
		if got := strings.Contains(page, well); got != c.well || strings.Contains(list, well) != got {
			t.Errorf("%s: that nothing is wrong is said: %v\n%s\n%s", what, got, page, list)
		}
		if got := strings.Contains(list, title); got != (c.wrong == 0) || strings.Contains(list, `Something is wrong with <a href="?name=billing">`) == got {
			t.Errorf("%s: the list is\n%s", what, list)
		}
		if got := strings.Contains(page, `<title id="title">billing · countoff</title>`); got != (c.wrong == 0) {
			t.Errorf("%s: the page is\n%s", what, page)
		}
	}
}

// Of a paused name nobody takes over anything.
func TestPageOfAPausedName(t *testing.T) {
	t.Parallel()
	var s store
	cfg := s.config()
	read := cfg.Read
	cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
		found, err := read(ctx, name)
		found.Config.Paused = partition.Pause{Since: time.Unix(1_790_000_000, 0)}
		return found, err
	}
	if code, page := get(t, newBoard(t, cfg), "/?name=billing"); code != http.StatusOK || strings.Contains(page, "takeover within") {
		t.Errorf("%d\n%s", code, page)
	}
}

// A drained peer may have been forgotten: the page of its name tells of it, and so does the list of all.
func TestDrainedPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var st store
		cfg := st.config()
		read := cfg.Read
		cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
			s, err := read(ctx, name)
			if name == "billing" {
				s.Drained = []status.Drained{{Peer: "p1", Since: time.Now(), Why: "<slow>"}, {Peer: "gone", Since: time.Now()}}
			}
			return s, err
		}
		b := newBoard(t, cfg)
		if _, page := get(t, b, "/?name=billing"); !strings.Contains(page, "(&lt;slow&gt;), and does not take part: countoff recall billing p1 ") || !strings.Contains(page, "countoff recall billing gone ") {
			t.Errorf("the page is\n%s", page)
		}
		if _, page := get(t, b, "/"); strings.Count(page, "(2 drained)") != 1 || strings.Count(page, "drained") != 1 {
			t.Errorf("the list is\n%s", page)
		}
	})
}

// However many look, the store is asked once each second, and not at all when they have gone.
func TestLooksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		b := newBoard(t, s.config())
		var feeds []*feed
		for range 20 {
			f := open(t, b, "/events?name=billing")
			feeds = append(feeds, f)
			time.Sleep(7 * time.Millisecond) // of fake time: they do not come together
		}
		const seconds = 10
		var all sync.WaitGroup
		for _, f := range feeds {
			all.Go(func() {
				for range seconds {
					f.next(t)
				}
			})
		}
		all.Wait()
		if n := s.count(); n < seconds || n > seconds+2 {
			t.Errorf("%d looks in %d s", n, seconds)
		}
		for _, f := range feeds {
			f.cancel()
			<-f.done
		}
		before := s.count()
		time.Sleep(time.Hour)
		if n := s.count(); n != before {
			t.Errorf("%d looks while nobody looked", n-before)
		}
	})
}

// A name whose looks take long keeps the store busy for a quarter of the time at most.
func TestLooksThatTakeLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		read := cfg.Read
		cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
			time.Sleep(2 * time.Second) // of fake time
			return read(ctx, name)
		}
		f := open(t, newBoard(t, cfg), "/events?name=billing")
		for began := time.Now(); time.Since(began) < time.Minute; {
			f.next(t)
		}
		if n := s.count(); n < 7 || n > 9 {
			t.Errorf("%d looks of 2 s in a minute", n)
		}
	})
}

// Who waits for a look that somebody else takes goes when he likes, and the look is the others' all the same.
func TestWhoLeavesTakesNoLookAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		read, slow := cfg.Read, make(chan struct{})
		cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
			select {
			case <-slow:
			case <-ctx.Done():
				return status.Status{}, ctx.Err()
			}
			return read(ctx, name)
		}
		b := newBoard(t, cfg)
		first := open(t, b, "/events?name=billing")
		synctest.Wait()
		second := open(t, b, "/events?name=billing")
		synctest.Wait()
		began := time.Now()
		second.cancel()
		<-second.done
		if waited := time.Since(began); waited > 0 {
			t.Errorf("who has left waits %v", waited)
		}
		first.cancel()
		third := open(t, b, "/events?name=billing")
		synctest.Wait()
		close(slow)
		if changes := third.next(t); len(changes) == 0 || s.count() != 1 {
			t.Errorf("%d looks, and the third sees %v", s.count(), changes)
		}
	})
}

// Who is gone before his turn takes no look at all.
func TestWhoIsGoneTakesNoLook(t *testing.T) {
	t.Parallel()
	var s store
	b := newBoard(t, s.config())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // of two things that are ready a select takes either
		if _, err := b.look(gone, "billing"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n := s.count(); n != 0 {
		t.Errorf("%d looks", n)
	}
}

// A store that does not answer is told of, and keeps a page no longer than the timeout.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		cfg.Read = func(ctx context.Context, _ string) (status.Status, error) {
			<-ctx.Done()
			return status.Status{}, fmt.Errorf("status: %w", ctx.Err())
		}
		cfg.Timeout = 3 * time.Second
		b := newBoard(t, cfg)
		began := time.Now()
		for _, path := range []string{"/?name=billing", "/status.json?name=billing", "/history.json?name=billing", "/map.txt?name=billing"} {
			code, page := get(t, b, path)
			if code != http.StatusServiceUnavailable || !strings.Contains(page, "deadline exceeded") || strings.Contains(page, "what is shown") {
				t.Errorf("%s: %d %s", path, code, page)
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > 16*time.Second {
			t.Errorf("four looks took %v", took)
		}
		if _, page := get(t, b, "/"); !strings.Contains(page, "deadline exceeded") {
			t.Errorf("the list of names is\n%s", page)
		}
	})
}

func TestSameAsJSONAndText(t *testing.T) {
	t.Parallel()
	var s store
	cfg := s.config()
	cfg.Names = []string{"billing"} // then none needs to be asked for
	b := newBoard(t, cfg)
	var got, want any
	_, body := get(t, b, "/status.json")
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(sample("billing", 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("status.json is\n%v\nwant\n%v", got, want)
	}
	if _, body := get(t, b, "/history.json"); !regexp.MustCompile(`(?s)"what":"joined".*"what":"made"`).MatchString(body) {
		t.Errorf("history.json is %s", body)
	}
	_, body = get(t, b, "/map.txt")
	var m partitionmap.Map
	if want := strings.Join(m.Whole(sample("billing", 0), false), "\n"); body != want+"\n" || !strings.Contains(body, "  u  u") {
		t.Errorf("map.txt is\n%s\nwant\n%s", body, want)
	}
}

// What waits for its time in a queue of asynq the page shows beside what can be moved now, as the text does.
func TestWhatIsScheduledInAnIngress(t *testing.T) {
	t.Parallel()
	for delayed, want := range map[int]string{0: `<td class="n">2</td></tr>`, 3: `<td class="n">2</td><td class="n">3</td></tr>`} {
		s := sample("mails", 0)
		s.Units[0].Delayed = delayed
		v := (*view)(nil).next("mails", s, nil, nil, time.Now())
		if lists := v.pieces["lists"]; !strings.Contains(lists, want) || strings.Contains(lists, ">delayed<") != (delayed > 0) {
			t.Errorf("with %d that are delayed it shows\n%s", delayed, lists)
		}
	}
}

// Names that are not there, or not for those who look here, are not found; who guesses at names leaves nothing behind.
func TestNamesThatAreNotThere(t *testing.T) {
	t.Parallel()
	var s store
	cfg := s.config()
	b := newBoard(t, cfg)
	for _, name := range []string{"nope", "%2e%2e%2f", "a%00b"} {
		for _, path := range []string{"/", "/events", "/status.json", "/history.json", "/map.txt"} {
			if code, body := get(t, b, path+"?name="+name); code != http.StatusNotFound || !strings.Contains(body, "name") {
				t.Errorf("%s of %s: %d %s", path, name, code, body)
			}
		}
	}
	read := cfg.Read
	cfg.Read = func(context.Context, string) (status.Status, error) {
		return status.Status{}, errors.New("the store is away")
	}
	away := newBoard(t, cfg)
	if code, _ := get(t, away, "/?name=guess"); code != http.StatusServiceUnavailable {
		t.Errorf("of a store that is away: %d", code)
	}
	if len(b.views)+len(away.views) != 0 {
		t.Errorf("the boards keep %v and %v", b.views, away.views)
	}
	cfg.Read = read
	cfg.Names = []string{"mails", "elsewhere"}
	b = newBoard(t, cfg)
	if code, body := get(t, b, "/?name=billing"); code != http.StatusNotFound || !strings.Contains(body, "not among") {
		t.Errorf("a name that is not shown: %d %s", code, body)
	}
	if code, body := get(t, b, "/"); code != http.StatusOK || !strings.Contains(body, "mails") || strings.Contains(body, "billing") ||
		!strings.Contains(body, "no configuration yet") {
		t.Errorf("names that are shown: %d %s", code, body)
	}
}

// No answer may be framed, kept or guessed at, and none may run what it did not bring.
func TestHeaders(t *testing.T) {
	t.Parallel()
	var s store
	b := newBoard(t, s.config())
	for _, path := range []string{"/", "/?name=billing", "/?name=none", "/status.json?name=billing", "/live.js", "/nothing"} {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s has %v", path, w.Header())
		}
	}
}

// deaf is where a stream writes to somebody who goes after the first event.
type deaf struct {
	wire
	until  time.Time
	cancel func()
}

func (w *deaf) SetWriteDeadline(until time.Time) error {
	w.until = until
	w.cancel()
	return nil
}

// A view that nobody asks for is not kept for ever: names come and go.
func TestViewsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		b := newBoard(t, s.config())
		get(t, b, "/?name=billing")
		time.Sleep(2 * long)
		get(t, b, "/?name=mails")
		if len(b.views) != 1 || b.views["mails"] == nil {
			t.Errorf("the board keeps %v", b.views)
		}
		if get(t, b, "/?name=billing"); len(b.views) != 2 {
			t.Errorf("of two that were just asked for the board keeps %v", b.views)
		}
	})
}

// A store that answers again is seen at once, however long it had been waited for.
func TestStoreThatAnswersAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		read, silent := cfg.Read, false
		cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
			if silent {
				<-ctx.Done()
				return status.Status{}, ctx.Err()
			}
			return read(ctx, name)
		}
		b := newBoard(t, cfg)
		for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusOK} {
			silent = i == 1
			if code, body := get(t, b, "/status.json?name=billing"); code != want {
				t.Errorf("look %d: %d %s", i, code, body)
			}
			time.Sleep(time.Second)
		}
	})
}

// The same of a node of a cluster: until it answers, the time that it may take goes by at each look.
func TestNodeThatAnswersAgain(t *testing.T) {
	t.Parallel()
	for what, unread := range map[string]status.Status{
		"partition": {Partitions: []status.Partition{{Unknown: true}}},
		"list":      {Units: []status.Unit{{Unknown: true}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var s store
			cfg := s.config()
			read, silent := cfg.Read, true
			cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
				if silent {
					time.Sleep(5 * time.Second) // of fake time
					return unread, nil
				}
				return read(ctx, name)
			}
			b := newBoard(t, cfg)
			if code, body := get(t, b, "/status.json?name=billing"); code != http.StatusOK || !strings.Contains(body, `"unknown":true`) {
				t.Fatalf("%s: %d %s", what, code, body)
			}
			silent = false
			time.Sleep(3 * time.Second)
			if code, body := get(t, b, "/status.json?name=billing"); code != http.StatusOK || strings.Contains(body, `"unknown":true`) {
				t.Errorf("%s: 3 s after it answers again it is not read: %d %s", what, code, body)
			}
		})
	}
}

// Letters change with each look: those who show what was seen before leave them alone, since several do so at once.
func TestLettersAreOfWhoLooks(t *testing.T) {
	t.Parallel()
	v := (*view)(nil).next("billing", sample("billing", 0), nil, nil, time.Now())
	v.letters = nil
	if away := v.next("billing", status.Status{}, nil, redisconfig.ErrNone, time.Now()); strings.Contains(away.row, "dashboard: ") ||
		!strings.Contains(away.row, "h0") || !strings.Contains(away.row, "no configuration yet") {
		t.Errorf("the row is\n%s", away.row)
	}
}

// What is wrong comes first, then what holds the most; of what happened the newest.
func TestWhatComesFirst(t *testing.T) {
	t.Parallel()
	s := sample("billing", 1) // 3 is nobody's, 4 of two, 5 holds something
	s.Partitions[1].Pending = 1
	history := machine.History{{What: machine.Made}, {What: machine.Came, Peer: "ann"}}
	v := (*view)(nil).next("billing", s, history, nil, time.Now())
	var ids []partition.ID
	for _, p := range v.Busy().Shown {
		ids = append(ids, p.ID)
	}
	if want := []partition.ID{3, 4, 5, 1}; !slices.Equal(ids, want) {
		t.Errorf("the partitions are %v, want %v", ids, want)
	}
	if past := v.Past(); len(past) != 2 || !strings.Contains(past[0], "ann") {
		t.Errorf("what happened is %q", past)
	}
}

// After a peer of many partitions has died, those that hold the most are seen all the same, and how many are not.
func TestTroubleLeavesRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ trouble, busy, wantTrouble, wantBusy int }{
		{100, 50, mostBusy / 2, mostBusy / 2}, {100, 0, mostBusy, 0}, {3, 50, 3, mostBusy - 3}, {30, 2, 30, 2}, {31, 2, 30, 2},
	} {
		var s status.Status
		for i := range c.trouble + c.busy {
			p := status.Partition{Held: status.Held{ID: partition.ID(i), State: status.Unowned}, Pending: 1}
			if i >= c.trouble {
				p.State, p.Pending = status.Owned, 1000
			}
			s.Partitions = append(s.Partitions, p)
		}
		shown := (*view)(nil).next("billing", s, nil, nil, time.Now()).Busy()
		trouble := 0
		for _, p := range shown.Shown[:c.wantTrouble] {
			if p.State == status.Unowned {
				trouble++
			}
		}
		if busy := len(shown.Shown) - trouble; trouble != c.wantTrouble || busy != c.wantBusy || shown.More != c.trouble+c.busy-trouble-busy {
			t.Errorf("%+v: %d in trouble first, %d others and %d more", c, trouble, busy, shown.More)
		}
	}
}

// A partition that cannot be read is in the list though it seems to hold nothing, and nowhere said to be empty.
func TestWhatCannotBeReadIsListed(t *testing.T) {
	t.Parallel()
	s := status.Status{Partitions: []status.Partition{{Held: status.Held{ID: 7, Owner: "ann", Epoch: 1, State: status.Owned}, Unknown: true}}}
	v := (*view)(nil).next("billing", s, nil, nil, time.Now())
	if listed := v.Busy().Shown; len(listed) != 1 || !listed[0].Unknown {
		t.Errorf("listed are %+v", listed)
	}
	if text := string(v.Map()); !strings.Contains(text, "cannot be read") || strings.Contains(text, "0 pending") {
		t.Errorf("the map says %s", text)
	}
}

// A name that is given twice is one: with a series of it twice Prometheus would refuse them all.
func TestANameThatIsGivenTwice(t *testing.T) {
	t.Parallel()
	cfg := new(store).config()
	cfg.Names = []string{"mails", "billing", "mails"}
	b := newBoard(t, cfg)
	if _, page := get(t, b, "/"); strings.Count(page, "<tbody>") != 2 {
		t.Errorf("the list is\n%s", page)
	}
	if _, text := get(t, b, "/metrics"); strings.Count(text, `countoff_name_up{name="mails"}`) != 1 {
		t.Errorf("the metrics are\n%s", text)
	}
}

// Many partitions lie closer on a page, and the list of names has the first of them.
func TestManyPartitions(t *testing.T) {
	t.Parallel()
	s := store{more: 1019} // beside 6
	b := newBoard(t, s.config())
	if _, page := get(t, b, "/?name=billing"); !strings.Contains(page, `class="map dense"`) || strings.Count(page, `<i id="c`) != 1025 {
		t.Error("the page of 1025 partitions is not dense, or has others")
	}
	if _, list := get(t, b, "/"); strings.Count(list, `<i class="`) != 2*256 {
		t.Errorf("the list has %d partitions of two names", strings.Count(list, `<i class="`))
	}
}

// All links hold below any path.
func TestBelowAnotherPath(t *testing.T) {
	t.Parallel()
	var s store
	mux := http.NewServeMux()
	mux.Handle("GET /ops/board/", http.StripPrefix("/ops/board", newBoard(t, s.config())))
	for _, path := range []string{"", "?name=billing"} {
		code, page := get(t, mux, "/ops/board/"+path)
		links := regexp.MustCompile(`(?:href|src|data-events)="([^"]*)"`).FindAllStringSubmatch(page, -1)
		if code != http.StatusOK || len(links) < 4 {
			t.Fatalf("%d, links %q", code, links)
		}
		for _, link := range links {
			if strings.HasPrefix(link[1], "events") {
				open(t, mux, "/ops/board/"+link[1]).next(t)
				continue
			}
			if code, body := get(t, mux, "/ops/board/"+strings.TrimPrefix(link[1], ".")); code != http.StatusOK {
				t.Errorf("%s: %d %s", link[1], code, body)
			}
		}
	}
}

// What the script and the style speak of is there.
func TestFilesFitTogether(t *testing.T) {
	t.Parallel()
	var s store
	b := newBoard(t, s.config())
	_, page := get(t, b, "/?name=billing")
	_, script := get(t, b, "/live.js")
	_, css := get(t, b, "/style.css")
	for _, id := range regexp.MustCompile(`getElementById\("(.*?)"\)`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(page, `id="`+id[1]+`"`) {
			t.Errorf("the script wants an element %q", id[1])
		}
	}
	var classes []string
	for _, attribute := range regexp.MustCompile(`class="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		classes = append(classes, strings.Fields(attribute[1])...)
	}
	for i := range partitionmap.Hues {
		classes = append(classes, fmt.Sprint("h", i))
	}
	for i := 1; i <= 5; i++ {
		classes = append(classes, fmt.Sprint("l", i))
	}
	for _, class := range classes {
		if class != "l0" && class != status.Owned && !strings.Contains(css, "."+class) {
			t.Errorf("the style does not know the class %q", class)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	for holds, want := range map[int]int{-1: 0, 0: 0, 1: 1, 7: 1, 8: 2, 63: 2, 64: 3, 511: 3, 512: 4, 4095: 4, 4096: 5, 1 << 40: 5} {
		if got := load(status.Partition{Pending: holds}); got != want {
			t.Errorf("the bar of one that holds %d is %d high, want %d", holds, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Every: time.Millisecond, Timeout: -1})
	for _, want := range []string{"no Names and no List", "Read is nil", "every 1ms", "timeout -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if _, err := New(Config{Names: []string{"a b"}, Read: status.Place{}.Read}); err == nil || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("a name that is none: %v", err)
	}
}
