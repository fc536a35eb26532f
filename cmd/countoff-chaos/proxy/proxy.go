package proxy

import (
	"net"
	"sync"
	"time"
)

// A Mode is what a proxy does with its traffic.
type Mode struct {
	// Delay is how long each way takes.
	Delay time.Duration
	// Cut closes what is open and refuses what comes.
	Cut bool
	// Silent holds everything back, both ways, until the mode changes; then it
	// arrives, late.
	Silent bool
}

// A Proxy forwards connections to one address. Its methods may be called
// concurrently.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed when the mode changes
	conns   map[net.Conn]bool
	closed  bool
}

// Start forwards a free port of loopback to target.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set changes the mode.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	if m.Cut {
		p.closeAll()
	}
}

// Close ends all of it and returns when nothing runs any more.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	close(p.changed)
	p.changed = make(chan struct{})
	p.closeAll()
	p.mu.Unlock()
	_ = p.listener.Close() // it may be closed already
	p.wg.Wait()
}

func (p *Proxy) closeAll() {
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(in) })
	}
}

// serve forwards one connection both ways until either side ends.
func (p *Proxy) serve(in net.Conn) {
	defer in.Close()
	if !p.keep(in) {
		return
	}
	defer p.drop(in)
	out, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	if !p.keep(out) {
		return
	}
	defer p.drop(out)
	var ways sync.WaitGroup
	ways.Go(func() { p.forward(in, out) })
	ways.Go(func() { p.forward(out, in) })
	ways.Wait()
}

// keep notes a connection, unless there may be none.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode.Cut {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// A parcel is what was read at once.
type parcel struct {
	bytes []byte
	at    time.Time
}

// forward carries what comes from one side to the other.
func (p *Proxy) forward(from, to net.Conn) {
	way := make(chan parcel, 1024)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(way)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				way <- parcel{append([]byte(nil), buf[:n]...), time.Now()}
			}
			if err != nil {
				return
			}
		}
	})
	defer reader.Wait()
	defer func() { // the other way ends too, and our reader with it
		_ = from.Close()
		_ = to.Close()
		for range way { // what the reader still has is for nobody
		}
	}()
	for x := range way {
		if !p.hold(x.at) {
			return
		}
		if _, err := to.Write(x.bytes); err != nil {
			return
		}
	}
}

// hold waits until what was read at that time may arrive. It reports whether the
// proxy is still open.
func (p *Proxy) hold(at time.Time) bool {
	for {
		p.mu.Lock()
		mode, changed, closed := p.mode, p.changed, p.closed
		p.mu.Unlock()
		if closed || mode.Cut {
			return false
		}
		wait := time.Until(at.Add(mode.Delay))
		if !mode.Silent && wait <= 0 {
			return true
		}
		if mode.Silent {
			<-changed
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		}
	}
}
