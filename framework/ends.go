package framework

import "sync"

// ends are those who hear of the end of each run of a member.
type ends struct {
	mu   sync.Mutex
	all  map[int]func(error)
	last int
}

// hear has do called at the end of each run, until enough has returned.
func (e *ends) hear(do func(error)) (enough func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[int]func(error){}
	}
	e.last++
	n := e.last
	e.all[n] = do
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.all, n)
	}
}

func (e *ends) tell(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, do := range e.all {
		do(err)
	}
}
