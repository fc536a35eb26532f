package mailbox

import (
	"bufio"
	"bytes"
	"io"
	netmail "net/mail"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// session is one connection, from its HELO on.
type session struct {
	server     *Server
	client     string
	authorized bool
	from       string
	to         []string
}

// session is called once the client has given its name.
func (s *Server) session(c *smtp.Conn) (smtp.Session, error) {
	client := c.Hostname()
	s.mu.Lock()
	s.sessions[client]++
	s.mu.Unlock()
	return &session{server: s, client: client, authorized: s.cfg.User == ""}, nil
}

// AuthMechanisms says how a client may authenticate.
func (c *session) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth checks user and password.
func (c *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != c.server.cfg.User || password != c.server.cfg.Password {
			return smtp.ErrAuthFailed
		}
		c.authorized = true
		return nil
	}), nil
}

// Mail begins a mail.
func (c *session) Mail(from string, _ *smtp.MailOptions) error {
	if !c.authorized {
		return &smtp.SMTPError{Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "authentication required"}
	}
	c.from, c.to = from, nil
	return nil
}

// Rcpt adds a recipient, or refuses it if the configuration says so.
func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if verdict := c.server.cfg.Verdict; verdict != nil {
		key := strings.ToLower(to)
		c.server.mu.Lock()
		c.server.tries[key]++
		try := c.server.tries[key]
		c.server.mu.Unlock()
		if code := verdict(to, try); code != 0 {
			return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 2, 0}, Message: "refused by script"}
		}
	}
	c.to = append(c.to, to)
	return nil
}

// Data records the mail. It stands in the record from the moment DATA began, so
// that what a killed client had begun is seen.
func (c *session) Data(r io.Reader) error {
	s := c.server
	s.mu.Lock()
	seq := len(s.deliveries)
	s.deliveries = append(s.deliveries, Delivery{Seq: seq, Client: c.client, From: c.from, To: c.to, Began: time.Now()})
	s.mu.Unlock()

	body, err := io.ReadAll(r)
	id, subject := header(body)
	s.mu.Lock()
	s.deliveries[seq].MessageID, s.deliveries[seq].Subject = id, subject
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if !s.pause() {
		return &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "closing"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliveries[seq].Ended = time.Now()
	s.deliveries[seq].Accepted = true
	s.accepted++
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Reset forgets the mail that was begun.
func (c *session) Reset() { c.from, c.to = "", nil }

// Logout ends the session.
func (c *session) Logout() error {
	c.server.mu.Lock()
	c.server.sessions[c.client]--
	c.server.mu.Unlock()
	return nil
}

// header reads what identifies a mail: the Message-ID without its brackets and the
// subject. A mail that was cut off in its header has neither.
func header(mail []byte) (id, subject string) {
	msg, err := netmail.ReadMessage(bufio.NewReader(bytes.NewReader(mail)))
	if err != nil {
		return "", ""
	}
	return strings.Trim(msg.Header.Get("Message-Id"), "<> "), msg.Header.Get("Subject")
}

// pause waits the configured latency; false means that the server closed meanwhile.
func (s *Server) pause() bool {
	if s.cfg.Latency <= 0 {
		return true
	}
	timer := time.NewTimer(s.cfg.Latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closed:
		return false
	}
}
