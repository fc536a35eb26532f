package framework

import (
	"maps"
	"slices"
	"sync"
)

// ends are those who hear of the end of each run of a member.
type ends struct {
	mu   sync.Mutex
	all  map[int]func(error)
	last int
}

// hear has do called at the end of each run, until enough has returned: a do that was begun
// before may still be running then.
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

// tell calls them without the lock: they may have enough, or hear anew.
func (e *ends) tell(err error) {
	e.mu.Lock()
	all := slices.Sorted(maps.Keys(e.all))
	e.mu.Unlock()
	for _, n := range all {
		e.mu.Lock()
		do := e.all[n]
		e.mu.Unlock()
		if do != nil {
			do(err)
		}
	}
}
