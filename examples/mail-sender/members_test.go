package main_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/coverage"
)

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// put tells a worker something and returns the code of the answer.
func put(t *testing.T, url, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return resp.StatusCode
}

// holds waits until each peer owns that many partitions, and returns the peers.
func (s *stage) holds(want map[string]int) map[string]status.Peer {
	s.t.Helper()
	peers := map[string]status.Peer{}
	s.until(fmt.Sprintf("the shares %v", want), func() error {
		st, err := status.Read(s.t.Context(), s.client, s.name)
		if err != nil {
			return err
		}
		clear(peers)
		got := map[string]int{}
		for _, p := range st.Peers {
			if p.Present() {
				peers[p.ID], got[p.ID] = p, p.Partitions
			}
		}
		for _, h := range st.Partitions {
			if h.State != status.Owned {
				return fmt.Errorf("partition %v is %s", h.ID, h.State)
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	return peers
}

// A peer is told another weight, and that it is in maintenance, while mails flow: the shares
// follow, it keeps its place, and nothing is lost, doubled or out of order.
func TestWeightAndMaintenance(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	at := freePort(t)
	s.work("a", "--http", at)
	s.work("b", "--weight", "3")
	before := s.holds(map[string]int{"a": 4, "b": 12})["a"]
	f := s.feed(60)
	for body, code := range map[string]int{"0": 400, "much": 400, strings.Repeat("1", 100): 400} {
		if got := put(t, at+"/weight", body); got != code {
			t.Errorf("weight %s: %d", body, got)
		}
	}
	put(t, at+"/weight", "3\n")
	if p := s.holds(map[string]int{"a": 8, "b": 8})["a"]; p.Weight != 3 || p.Unwell {
		t.Errorf("with another weight it is %+v", p)
	}
	put(t, at+"/maintenance", "on")
	p := s.holds(map[string]int{"a": 0, "b": 16})["a"]
	if !p.Unwell || p.Weight != 3 || p.Session != before.Session || p.Index != before.Index {
		t.Errorf("in maintenance it is %+v, and was %+v", p, before)
	}
	if out := s.countoff("status", s.name); !strings.Contains(out, "unwell") {
		t.Errorf("status shows\n%s", out)
	}
	put(t, at+"/maintenance", "off")
	s.holds(map[string]int{"a": 8, "b": 8})
	f.stop()
	if doubled := s.settled(); len(doubled) > 0 {
		t.Errorf("doubled without a crash: %v", doubled)
	}
}

// Partitions that ask for a tag are worked on by peers that have it. When the only one dies,
// that is told; and one that comes takes over.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	s.work("a")
	b := s.work("b", "--tags", "eu,fast")
	s.holds(map[string]int{"a": 8, "b": 8})
	f := s.feed(60)
	if out := s.countoff("require", s.name, "0-7=eu"); !strings.Contains(out, "0-7=eu") {
		t.Errorf("require shows %s", out)
	}
	s.holds(map[string]int{"a": 4, "b": 12})
	b.kill()
	s.until("somebody to tell that nobody is eligible", func() error {
		st, err := status.Read(s.t.Context(), s.client, s.name)
		if err != nil {
			return err
		}
		for _, f := range st.Findings {
			if f.Kind == coverage.NoneEligible && len(f.Partitions) == 8 {
				return nil
			}
		}
		return fmt.Errorf("%v", st.Findings)
	})
	if out, code := run(t, "countoff", "doctor", s.name, "--redis", s.url()); code != 7 || !strings.Contains(out, "it asks for eu") {
		t.Errorf("doctor ends with %d\n%s", code, out)
	}
	s.work("c", "--tags", "eu")
	s.holds(map[string]int{"a": 4, "c": 12})
	f.stop()
	if doubled := s.settled("b"); len(doubled) > 0 {
		t.Errorf("doubled by peers that live: %v", doubled)
	}
}

// Under the strategy jump a peer's partitions go to the living when it is killed, and come
// back when its id does; those of the others never move.
func TestStickyFailover(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	start := func(id string) *worker { return s.work(id, "--strategy", "jump") }
	start("a")
	b := start("b")
	start("c")
	// table waits until peers own everything as their rolls say, and returns who has what.
	table := func(peers int) (owners map[partition.ID]status.Held) {
		s.until(fmt.Sprintf("%d peers to own everything", peers), func() error {
			st, err := status.Read(s.t.Context(), s.client, s.name)
			if err != nil {
				return err
			}
			if st.Roll.Replicas != peers {
				return fmt.Errorf("%d replicas", st.Roll.Replicas)
			}
			owners = map[partition.ID]status.Held{}
			for _, p := range st.Partitions {
				if p.State != status.Owned {
					return fmt.Errorf("partition %v is %s", p.ID, p.State)
				}
				owners[p.ID] = p.Held
			}
			return nil
		})
		return owners
	}
	// What a roll says and what the ledger granted agree only after a moment.
	settled := func(peers int, ok func(map[partition.ID]status.Held) error) (owners map[partition.ID]status.Held) {
		s.until("the table to be as it should", func() error {
			owners = table(peers)
			return ok(owners)
		})
		return owners
	}
	var first map[partition.ID]status.Held
	settled(3, func(o map[partition.ID]status.Held) error {
		census := map[string]int{}
		for _, h := range o {
			census[h.Owner]++
		}
		before := first
		if first = o; len(census) < 3 || !maps.EqualFunc(before, o, func(x, y status.Held) bool { return x.Owner == y.Owner && x.Epoch == y.Epoch }) {
			return fmt.Errorf("%v", census)
		}
		return nil
	})
	f := s.feed(60)
	b.kill()
	settled(2, func(o map[partition.ID]status.Held) error {
		for id, h := range first {
			if h.Owner == "b" && o[id].Owner == "b" {
				return fmt.Errorf("%v is b's", id)
			}
		}
		return nil
	})
	start("b")
	back := settled(3, func(o map[partition.ID]status.Held) error {
		for id, h := range first {
			if o[id].Owner != h.Owner {
				return fmt.Errorf("%v is %s's and was %s's", id, o[id].Owner, h.Owner)
			}
		}
		return nil
	})
	for id, h := range first {
		if h.Owner != "b" && back[id].Epoch != h.Epoch {
			t.Errorf("%v moved from %s: it has the epoch %v, and had %v", id, h.Owner, back[id].Epoch, h.Epoch)
		}
	}
	f.stop()
	if doubled := s.settled("b"); len(doubled) > 0 {
		t.Errorf("doubled by peers that live: %v", doubled)
	}
}
