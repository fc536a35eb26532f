package logstream

import "github.com/countoff/countoff/sources"

// A grave is a verdict on a task that was not handed out.
type grave struct {
	seq uint64
	of  sources.Buried
}

// Bury notes that the verdict seq makes a dead letter of a task that was not handed out.
// The caller holds the lock.
func (s *Stream) Bury(seq uint64, of sources.Buried) {
	of.Grant, of.Tasks = s.Grant, 1
	s.graves = append(s.graves, grave{seq, of})
}

// TellBuried tells of what was buried and answered for since it was called last; tell may
// be nil.
func (s *Stream) TellBuried(tell func(sources.Buried)) {
	var all sources.Buried
	s.Mu.Lock()
	n := 0
	for ; n < len(s.graves) && s.graves[n].seq <= s.Log.Answered(); n++ {
		all.Add(s.graves[n].of)
	}
	s.graves = s.graves[n:]
	s.Mu.Unlock()
	if tell != nil && n > 0 {
		tell(all)
	}
}
