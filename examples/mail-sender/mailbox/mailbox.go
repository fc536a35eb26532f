// Package mailbox is an SMTP server that keeps a record of what it received,
// when and from whom, and delivers nothing. The demo and the tests count with it:
// what a peer says of itself is not evidence, what arrived is.
package mailbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// A Delivery is one mail of which the client sent DATA. Times are of the server.
type Delivery struct {
	Seq       int    // place in the order in which DATA began, from 0
	Client    string // the name the client gave with HELO: the peer
	MessageID string // without <>; empty until the mail was read
	Subject   string
	From      string
	To        []string // envelope recipients, in the order of RCPT
	Began     time.Time
	Ended     time.Time // zero while it runs and if the connection broke off
	Accepted  bool      // answered with 250 (the client may still have missed it)
}

// Config says how the server behaves. The zero value accepts everything at once.
type Config struct {
	// Addr is where to listen. Default: a free port of 127.0.0.1.
	Addr string
	// Latency is how long the server takes to accept a mail. Default none.
	Latency time.Duration
	// Verdict, if set, is asked before a recipient is accepted; try counts that
	// recipient's RCPTs from 1. 0 accepts, a code of 4xx or 5xx refuses. It may be
	// called concurrently.
	Verdict func(recipient string, try int) int
	// TLS offers STARTTLS, or, with Implicit, speaks TLS from the first byte.
	TLS      *tls.Config
	Implicit bool
	// User and Password, if set, must be given before MAIL.
	User, Password string
}

// A Server is a running mailbox. All methods may be called concurrently.
type Server struct {
	cfg      Config
	smtp     *smtp.Server
	listener net.Listener
	served   chan error

	mu         sync.Mutex
	deliveries []Delivery
	accepted   int
	changed    chan struct{} // closed and replaced when accepted grows
	tries      map[string]int
	sessions   map[string]int // open connections by client name
	closed     chan struct{}
}

// Start listens and serves until Close.
func Start(cfg Config) (*Server, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	s := &Server{
		cfg: cfg, listener: l, served: make(chan error, 1), closed: make(chan struct{}),
		tries: map[string]int{}, sessions: map[string]int{}, changed: make(chan struct{}),
	}
	if cfg.Implicit {
		l = tls.NewListener(l, cfg.TLS)
	}
	s.smtp = smtp.NewServer(smtp.BackendFunc(s.session))
	s.smtp.Domain = "mailbox.invalid"
	s.smtp.AllowInsecureAuth = true
	s.smtp.TLSConfig = cfg.TLS
	s.smtp.ErrorLog = log.New(io.Discard, "", 0)
	go func() { s.served <- s.smtp.Serve(l) }()
	return s, nil
}

// Addr returns the address it listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL returns the address as the sender wants it, without credentials.
func (s *Server) URL() string {
	if s.cfg.Implicit {
		return "smtps://" + s.Addr()
	}
	return "smtp://" + s.Addr()
}

// Close ends all connections and returns when nothing of the server runs.
func (s *Server) Close() error {
	s.mu.Lock()
	select {
	case <-s.closed:
		s.mu.Unlock()
		return nil
	default:
		close(s.closed)
	}
	s.mu.Unlock()
	err := s.smtp.Close()
	// Serve may not have taken note of the listener yet, and then waits for ever.
	if closing := s.listener.Close(); !errors.Is(closing, net.ErrClosed) {
		err = errors.Join(err, closing)
	}
	if served := <-s.served; served != nil && !errors.Is(served, net.ErrClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Deliveries returns a copy of the record from seq on, in the order in which DATA began.
func (s *Server) Deliveries(seq int) []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq >= len(s.deliveries) {
		return nil
	}
	return slices.Clone(s.deliveries[seq:])
}

// WaitAccepted returns once n mails were accepted, or the error of ctx.
func (s *Server) WaitAccepted(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		accepted, changed := s.accepted, s.changed
		s.mu.Unlock()
		if accepted >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("mailbox: %d of %d mails accepted: %w", accepted, n, ctx.Err())
		}
	}
}

// Connected returns how many connections the client of that name has open.
func (s *Server) Connected(client string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[client]
}
