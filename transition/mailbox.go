package transition

import (
	"sync"

	"github.com/countoff/countoff/transition/machine"
)

// A mailbox takes what happens to the coordinator, in order and without bound: who
// puts never waits, so that a tenant may report from inside a call of the
// coordinator.
type mailbox struct {
	bell chan struct{} // holds one

	mu     sync.Mutex
	mail   []mail
	hinted bool // a hint is in there: more are the same one
}

// mail is an event with what the machine does not need of it.
type mail struct {
	event  machine.Event
	cause  error   // of machine.Lost
	fatal  error   // the peer cannot go on
	report []Event // for the observer
}

func newMailbox() *mailbox { return &mailbox{bell: make(chan struct{}, 1)} }

func (b *mailbox) put(m mail) {
	b.mu.Lock()
	if _, hint := m.event.(machine.Hinted); hint && len(m.report) == 0 {
		if b.hinted {
			b.mu.Unlock()
			return
		}
		b.hinted = true
	}
	b.mail = append(b.mail, m)
	b.mu.Unlock()
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// take returns all that is there.
func (b *mailbox) take() []mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.mail
	b.mail, b.hinted = nil, false
	return all
}
