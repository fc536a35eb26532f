package sender

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	netmail "net/mail"
	"strings"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/mail"
	gomail "github.com/wneessen/go-mail"
)

// DefaultTimeout bounds the sending of one mail, connecting included. A second more is what
// the last handlers of a stopping peer have by default.
const DefaultTimeout = 19 * time.Second

// ErrRefused means that the server refused the mail for good: another try would
// get the same answer.
var ErrRefused = errors.New("refused for good")

// Config of a Sender.
type Config struct {
	// URL is smtp://[user:password@]host[:port] or smtps://…, with the options
	// starttls=off|try|must (default must with credentials, else try), helo=NAME
	// (default the host's name) and timeout=DURATION (default 19s).
	URL string
	// From is the address of mails that name none.
	From string
	// Idle is how many connections are kept open between mails. Default 16.
	Idle int
	// TLS is used for smtps and STARTTLS. Default: the system's certificates.
	TLS *tls.Config
}

// A Sender sends mails. Its methods may be called concurrently.
type Sender struct {
	server server
	from   *netmail.Address
	tls    *tls.Config
	idle   chan *conn
}

// New returns a Sender, or everything that is wrong with cfg. It does not connect.
func New(cfg Config) (*Sender, error) {
	srv, urlErr := parseURL(cfg.URL)
	from, fromErr := netmail.ParseAddress(cfg.From)
	if fromErr != nil {
		fromErr = fmt.Errorf("sender: from %q: %w", cfg.From, fromErr)
	}
	if err := errors.Join(urlErr, fromErr); err != nil {
		return nil, err
	}
	if cfg.Idle <= 0 {
		cfg.Idle = 16
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		config = cfg.TLS.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = srv.host
	}
	return &Sender{server: srv, from: from, tls: config, idle: make(chan *conn, cfg.Idle)}, nil
}

// Timeout returns how long one mail may take at most.
func (s *Sender) Timeout() time.Duration { return s.server.timeout }

// Server returns host:port, without credentials.
func (s *Sender) Server() string { return fmt.Sprintf("%s:%d", s.server.host, s.server.port) }

// Send sends m as the mail id, born when it was queued: a second try has the same
// Message-ID and Date, so that the receiving side can tell it is the same mail.
//
// It returns an error that wraps ErrRefused if the server refused the mail with
// 5xx. Any other error is worth another try. When ctx ends the connection is
// closed at once and the error wraps the cause; whether the mail was accepted is
// then unknown.
func (s *Sender) Send(ctx context.Context, id string, born time.Time, m mail.Mail) error {
	msg, err := s.message(id, born, m)
	if err != nil {
		return fmt.Errorf("sender: %w: %w", ErrRefused, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.server.timeout, fmt.Errorf("%s did not answer within %v", s.Server(), s.server.timeout))
	defer cancel()
	for {
		c, err := s.connection(ctx)
		if err != nil {
			return s.explain(ctx, err)
		}
		err = c.send(ctx, msg)
		switch {
		case msg.IsDelivered(): // even if something failed after the server's 250
			s.keep(c)
			return nil
		case c.used && stale(err):
			// The server had closed a connection we kept. It says so in answer to
			// MAIL at the latest, when nothing of this mail was sent.
			c.abort()
			continue
		case !intact(err):
			c.abort()
		default:
			s.keep(c)
		}
		return s.explain(ctx, err)
	}
}

// Close ends the connections that are kept. Sends that still run end on their own.
func (s *Sender) Close() {
	for {
		select {
		case c := <-s.idle:
			c.abort()
		default:
			return
		}
	}
}

// message builds what is sent.
func (s *Sender) message(id string, born time.Time, m mail.Mail) (*gomail.Msg, error) {
	msg := gomail.NewMsg()
	from := s.from
	if m.From != "" {
		parsed, err := netmail.ParseAddress(m.From)
		if err != nil {
			return nil, fmt.Errorf("from: %w", err)
		}
		from = parsed
	}
	msg.FromMailAddress(from)
	for _, list := range []struct {
		addresses mail.Addresses
		set       func(...*netmail.Address)
	}{{m.To, msg.ToMailAddress}, {m.Cc, msg.CcMailAddress}, {m.Bcc, msg.BccMailAddress}} {
		parsed, err := list.addresses.Parsed()
		if err != nil {
			return nil, err
		}
		if len(parsed) > 0 {
			list.set(parsed...)
		}
	}
	if m.ReplyTo != "" {
		if err := msg.ReplyTo(m.ReplyTo); err != nil {
			return nil, err
		}
	}
	msg.SetMessageIDWithValue(MessageID(id, from.Address))
	msg.SetDateWithValue(born)
	msg.Subject(m.Subject)
	for name, value := range m.Headers {
		msg.SetGenHeader(gomail.Header(name), value)
	}
	switch {
	case m.HTML == "":
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	case m.Text == "":
		msg.SetBodyString(gomail.TypeTextHTML, m.HTML)
	default:
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
		msg.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
	}
	return msg, nil
}

// MessageID returns the Message-ID (without brackets) of the mail that is the task
// id: the id itself where its characters allow it, otherwise a digest of it.
func MessageID(id, from string) string {
	domain := "localhost"
	if _, after, ok := strings.Cut(from, "@"); ok && after != "" {
		domain = after
	}
	if id == "" || len(id) > 64 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		sum := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(sum[:16])
	}
	return id + "@" + domain
}
