package logstream

import (
	"slices"
	"sync"

	"github.com/countoff/countoff/sources/progress"
)

// A Permit lets one stream of a source at a time run a task that is accused of a
// crash, first come first served: if the process dies, there is one to blame. The zero
// value is free.
type Permit struct {
	mu     sync.Mutex // taken while a stream's is held, never the other way round
	holder *seat
	queue  []*seat
}

// A seat is a stream's place in the queue for the permit. Its stream's lock guards it,
// but for granted.
type seat struct {
	permit *Permit
	mine   chan struct{}
	wants  bool // it was asked for
	has    bool // ... and is here
}

// newSeat returns a seat that wants nothing.
func (p *Permit) newSeat() *seat { return &seat{permit: p, mine: make(chan struct{}, 1)} }

// granted holds a value if the permit has come since the stream last looked.
func (s *seat) granted() <-chan struct{} { return s.mine }

// look asks for the permit if log wants it and the stream is not over, gives it up if not,
// tells log, and reports whether it has just come.
func (s *seat) look(log *progress.Log, over bool) bool {
	wants := log.WantsPermit() && !over
	if !wants && !s.wants {
		return false
	}
	had := s.has
	s.wants = wants
	if s.has = wants && s.permit.ask(s); !wants {
		s.permit.release(s)
	}
	log.Permit(s.has)
	return s.has && !had
}

// leave gives up the permit, or the wish for it.
func (s *seat) leave() { s.permit.release(s) }

// ask reports whether s has the permit. If not, s is told when it has.
func (p *Permit) ask(s *seat) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holder == nil {
		p.holder = s
	}
	if p.holder != s && !slices.Contains(p.queue, s) {
		p.queue = append(p.queue, s)
	}
	return p.holder == s
}

func (p *Permit) release(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, s); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	if p.holder != s {
		return
	}
	p.holder = nil
	if len(p.queue) > 0 {
		p.holder = p.queue[0]
		p.queue = slices.Delete(p.queue, 0, 1)
		select {
		case p.holder.mine <- struct{}{}:
		default:
		}
	}
}
