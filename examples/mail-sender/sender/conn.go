package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// keepFor is how long an unused connection is believed to be alive: servers close
// idle ones after a minute or more.
const keepFor = 30 * time.Second

// conn is one connection with a go-mail client of its own, so that nothing of one
// mail's failure is shared with another's.
type conn struct {
	client *gomail.Client
	used   bool // has carried a mail
	since  time.Time

	mu      sync.Mutex
	net     net.Conn
	aborted bool
}

// connection returns a kept connection or dials.
func (s *Sender) connection(ctx context.Context) (*conn, error) {
	for {
		select {
		case c := <-s.idle:
			if time.Since(c.since) < keepFor {
				return c, nil
			}
			c.abort()
		default:
			return s.dial(ctx)
		}
	}
}

// keep puts c aside for the next mail, or closes it if enough are kept.
func (s *Sender) keep(c *conn) {
	c.used, c.since = true, time.Now()
	select {
	case s.idle <- c:
	default:
		c.abort()
	}
}

// dial connects, greets and authenticates. go-mail does not watch ctx once the
// connection stands and does not close one whose greeting failed: both are done
// here.
func (s *Sender) dial(ctx context.Context) (*conn, error) {
	c := &conn{}
	client, err := gomail.NewClient(s.server.host, s.server.options(s.tls, func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := s.connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return nc, c.attach(nc)
	})...)
	if err != nil {
		return nil, err
	}
	c.client = client
	stop := context.AfterFunc(ctx, c.abort)
	defer stop()
	if err := client.DialWithContext(ctx); err != nil {
		c.abort()
		return nil, fmt.Errorf("connect to %s: %w", s.Server(), err)
	}
	return c, nil
}

func (s *Sender) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if s.server.implicit {
		return (&tls.Dialer{Config: s.tls}).DialContext(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (c *conn) attach(nc net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net = nc
	if c.aborted {
		return errors.Join(net.ErrClosed, nc.Close())
	}
	return nil
}

// abort closes the connection, whatever runs on it.
func (c *conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.net != nil && !c.aborted {
		// The peer or a running command notices; there is nobody to tell.
		_ = c.net.Close()
	}
	c.aborted = true
}

// send sends msg, and closes the connection when ctx ends: go-mail itself waits for
// the server's answer whatever happens to ctx.
func (c *conn) send(ctx context.Context, msg *gomail.Msg) error {
	stop := context.AfterFunc(ctx, c.abort)
	err := c.client.Send(msg)
	if !stop() && !msg.IsDelivered() {
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

// stale reports whether the failure is that of a connection the server had closed:
// at MAIL, without an answer or with 421 (closing).
func stale(err error) bool {
	sent, ok := errors.AsType[*gomail.SendError](err)
	return ok && (sent.Reason == gomail.ErrSMTPMailFrom || sent.Reason == gomail.ErrConnCheck) &&
		(sent.ErrorCode() == 0 || sent.ErrorCode() == 421)
}

// intact reports whether the connection can carry another mail: the server
// answered, with something other than 421, and has forgotten the mail (go-mail says
// RSET after a refused MAIL or RCPT but not after a refused DATA).
func intact(err error) bool {
	sent, ok := errors.AsType[*gomail.SendError](err)
	if !ok || sent.ErrorCode() == 0 || sent.ErrorCode() == 421 {
		return false
	}
	return sent.Reason == gomail.ErrSMTPMailFrom || sent.Reason == gomail.ErrSMTPRcptTo || sent.Reason == gomail.ErrSMTPDataClose
}

// explain turns a failure into what it means for the mail.
func (s *Sender) explain(ctx context.Context, err error) error {
	// The connection has the context's deadline, and may meet it a moment before the
	// context's own timer does.
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("sender: %w", context.Cause(ctx))
	}
	if sent, ok := errors.AsType[*gomail.SendError](err); ok && sent.ErrorCode() >= 500 && !aboutUs(sent.ErrorCode()) {
		return fmt.Errorf("sender: %w: %w", ErrRefused, err)
	}
	return fmt.Errorf("sender: %w", err)
}

// aboutUs reports whether a 5xx speaks of our credentials or the service and not of the mail:
// dead-lettering every mail of a queue because a password changed would be wrong.
func aboutUs(code int) bool {
	switch code {
	case 530, 534, 535, 538:
		return true
	}
	return false
}
