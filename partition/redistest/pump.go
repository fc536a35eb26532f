package redistest

import (
	"net"
	"os"
	"sync"
	"time"
)

// A pumped connection reads ahead, as a socket does. On a bare net.Pipe a pipeline
// that is longer than the server's buffer never ends: the client writes and does not
// read before all is written, and the server waits for its first reply to be read.
type pumped struct {
	net.Conn
	more chan struct{} // holds a value if there is something to look at

	mu       sync.Mutex
	buf      []byte
	err      error
	deadline time.Time
}

// Pump returns c, of a server in a bubble, as such a connection. It ends with c.
func Pump(c net.Conn) net.Conn {
	p := &pumped{Conn: c, more: make(chan struct{}, 1)}
	go func() {
		for {
			b := make([]byte, 4096)
			n, err := c.Read(b)
			p.mu.Lock()
			p.buf = append(p.buf, b[:n]...)
			p.err = err
			p.mu.Unlock()
			p.nudge()
			if err != nil {
				return
			}
		}
	}()
	return p
}

func (p *pumped) nudge() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *pumped) SetDeadline(t time.Time) error {
	p.SetReadDeadline(t)
	return p.Conn.SetWriteDeadline(t)
}

func (p *pumped) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	p.deadline = t
	p.mu.Unlock()
	p.nudge()
	return nil
}

func (p *pumped) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		n, err, deadline := copy(b, p.buf), p.err, p.deadline
		p.buf = p.buf[n:]
		p.mu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		var late <-chan time.Time
		if !deadline.IsZero() {
			wait := time.Until(deadline)
			if wait <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			timer := time.NewTimer(wait)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-p.more:
		case <-late:
		}
	}
}
