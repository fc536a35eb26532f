package website

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Server is the website.
type Server struct {
	http  *http.Server
	addr  string
	takes time.Duration

	mu    sync.Mutex
	sites map[string]*site // by URL
	book  Book
}

// A site is what is known of one.
type site struct {
	inside map[partition.Token]int // visits under way
	newest partition.Epoch
	owner  string // whose visit was the last
	token  partition.Token
	seen   time.Time // when it ended
}

// A Book is what has been noted.
type Book struct {
	Visits  int
	Refused int // under an older token than one seen before: nothing was done
	Double  []string
	Changes []Change
}

// A Change is the first visit of another owner.
type Change struct {
	Site, From, To string
	At             time.Time
	Gap            time.Duration // since the last visit of the owner before
}

// A Sight is what is seen of a site.
type Sight struct {
	Owner string
	Last  time.Time
}

// Start listens on a free port of loopback. A visit takes as long as takes.
func Start(takes time.Duration) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{addr: l.Addr().String(), takes: takes, sites: map[string]*site{}}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.http.Serve(l) }() // until Close
	return s, nil
}

// URL returns the address of a site.
func (s *Server) URL(name string) string { return "http://" + s.addr + "/" + name }

// Close ends the server.
func (s *Server) Close() { _ = s.http.Close() }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	url, peer := "http://"+s.addr+r.URL.Path, r.Header.Get(peerHeader)
	token, err := partition.ParseToken(r.Header.Get(tokenHeader))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.enter(url, peer, token) {
		http.Error(w, "the site has a newer owner", http.StatusConflict)
		return
	}
	left := time.NewTimer(s.takes)
	defer left.Stop()
	select {
	case <-left.C:
	case <-r.Context().Done(): // the visitor is gone
	}
	s.leave(url, peer, token)
	fmt.Fprintln(w, "welcome", peer)
}

// enter notes the beginning of a visit, unless a newer owner was there.
func (s *Server) enter(url, peer string, token partition.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.sites[url]
	if at == nil {
		at = &site{inside: map[partition.Token]int{}}
		s.sites[url] = at
	}
	if token.Epoch < at.newest {
		s.book.Refused++
		return false
	}
	for other := range at.inside {
		if other != token {
			s.book.Double = append(s.book.Double, fmt.Sprintf("%s: %s entered with %v while %v was inside", url, peer, token, other))
		}
	}
	now := time.Now()
	if at.owner != "" && token != at.token {
		s.book.Changes = append(s.book.Changes, Change{Site: url, From: at.owner, To: peer, At: now, Gap: now.Sub(at.seen)})
	}
	at.newest, at.owner, at.token = token.Epoch, peer, token
	at.inside[token]++
	s.book.Visits++
	return true
}

func (s *Server) leave(url, peer string, token partition.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.sites[url]
	if at.inside[token]--; at.inside[token] == 0 {
		delete(at.inside, token)
	}
	if at.owner == peer {
		at.seen = time.Now()
	}
}

// Look returns who was seen where.
func (s *Server) Look() map[string]Sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]Sight, len(s.sites))
	for url, at := range s.sites {
		all[url] = Sight{Owner: at.owner, Last: at.seen}
	}
	return all
}

// Book returns what was noted up to now.
func (s *Server) Book() Book {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.book
	b.Double = append([]string(nil), b.Double...)
	b.Changes = append([]Change(nil), b.Changes...)
	return b
}
