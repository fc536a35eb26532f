package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
)

const (
	// mirrorTimeout bounds a commit, so that a broker that is away holds up no stop.
	mirrorTimeout = 2 * time.Second
	// mirrorAge is how old a commit may become before it is repeated: so that brokers
	// do not forget it, and that what an owner said late does not stand for long.
	mirrorAge = time.Minute
	// mirrorYoung is how long an owner repeats what it says each time, news or not: the
	// last word of the owner before may still be on its way to the broker, and would stand
	// for mirrorAge if it comes after a first that is also the last.
	mirrorYoung = 3 * mirrorTimeout
	// mirrorTold is how often it is told that commits fail: they are tried each Mirror.
	mirrorTold = 10 * time.Second
)

// A mirror commits to a Kafka group how far the partitions are, and looks whether
// the topic has grown. What it commits decides nothing as long as the store
// remembers, so it may be late, or be said by an owner that does not know yet that
// it was followed by another: the next commit puts it right.
type mirror struct {
	source   *Source
	patience time.Duration // how long a commit, or a look at the topic, may take

	mu     sync.Mutex
	open   map[*stream]struct{}
	final  map[int32]word      // of streams that were closed, not committed yet
	last   map[int32]committed // as committed last
	opened map[int32]int64     // where the store had what was opened: until the first commit
	fresh  map[int32]bool      // the group stands where others left it before all peers, perhaps: until the first commit
	soon   chan struct{}       // holds a value if there is something final, or first
	quit   context.CancelFunc  // ends the goroutine; nil: there is none
	ended  chan struct{}
	told   time.Time // when it was last told that a commit failed; zero: none has since the last that did not
}

func newMirror(s *Source) mirror {
	return mirror{
		source: s, patience: mirrorTimeout, open: make(map[*stream]struct{}), final: make(map[int32]word), last: make(map[int32]committed),
		opened: make(map[int32]int64), fresh: make(map[int32]bool), soon: make(chan struct{}, 1),
	}
}

// A word is how far a partition is, and in which life of the topic.
type word struct {
	at   int64
	life string // empty: not known
}

type committed struct {
	word
	when time.Time
}

// metadata is what is committed beside the offset.
func (w word) metadata() string {
	if w.life == "" {
		return ""
	}
	return kafkaprogress.MirrorMark + w.life
}

// ofAnother reports whether an offset was committed of another life of the topic than this one: the
// topic is deleted, which takes its offsets along, and made anew; an owner that has not noticed commits
// how far it was; Redis is lost, or the name destroyed, and who begins it anew would go on there. An
// offset that does not say of which life it is was committed by another consumer, or by hand, and counts.
func ofAnother(o kadm.OffsetResponse, life string) bool {
	was := kafkaprogress.Life(o.Metadata)
	return was != "" && life != "" && was != life
}

// add takes in s; begun says that its partition was opened before. If it was not, its first commit does not wait: who
// follows could not tell where the group stood before all peers from what somebody sets.
func (m *mirror) add(s *stream, begun bool) {
	low := s.lowest()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[s] = struct{}{}
	m.opened[int32(s.Grant.ID)] = low
	if !begun {
		m.fresh[int32(s.Grant.ID)] = true
	}
	if m.quit == nil {
		var ctx context.Context
		ctx, m.quit = context.WithCancel(context.Background())
		m.ended = make(chan struct{})
		go m.run(ctx, m.ended)
	}
	if !begun {
		m.hurry()
	}
}

// hurry has what there is committed at once.
func (m *mirror) hurry() {
	select {
	case m.soon <- struct{}{}:
	default:
	}
}

// remove takes s out, after its last word. The goroutine ends with the last one, and is waited for
// until ctx ends.
func (m *mirror) remove(ctx context.Context, s *stream) {
	low, sound := s.lowest(), s.sound(time.Now())
	m.mu.Lock()
	delete(m.open, s)
	if sound {
		m.final[int32(s.Grant.ID)] = word{low, s.life}
	}
	over, ended := len(m.open) == 0, m.ended
	if over {
		m.quit()
		m.quit = nil
	}
	m.mu.Unlock()
	m.hurry()
	if over {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
}

// run commits and looks until ctx ends. A look ends with it; the last word does not.
func (m *mirror) run(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	commit, look := time.NewTicker(m.source.cfg.Mirror), time.NewTicker(m.source.cfg.Look)
	defer commit.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			m.commit(m.news())
			return
		case <-m.soon:
			m.commit(m.news())
		case <-commit.C:
			m.commit(m.news())
		case <-look.C:
			m.look(ctx)
		}
	}
}

// news returns what is to be committed.
func (m *mirror) news() map[int32]word {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.final
	m.final = make(map[int32]word)
	now := time.Now()
	for s := range m.open {
		p := int32(s.Grant.ID)
		is := word{s.lowest(), s.life}
		was := m.last[p] // at the instant zero if it was never said
		stale := was.word != is || now.Sub(was.when) >= mirrorAge || now.Sub(s.opened) < mirrorYoung
		if s.sound(now) && stale {
			at[p] = is
		}
	}
	return at
}

// commit commits; what fails is told now and then, and said again when there is more to say.
func (m *mirror) commit(at map[int32]word) {
	if len(at) == 0 || m.source.cfg.Group == NoGroup {
		return
	}
	told, err := m.others(at)
	if err == nil {
		err = m.write(context.Background(), at)
	}
	if refusal := (*kerr.Error)(nil); errors.As(err, &refusal) {
		told = nil // nothing was taken back
		m.refused(at)
	}
	for _, news := range told {
		m.source.warn(news)
	}
	if m.tells(err) {
		m.source.warn(err)
	}
}

// tells takes in how a commit went, and reports whether that is to be told.
func (m *mirror) tells(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil:
		m.told = time.Time{}
		return false
	case now.Sub(m.told) < mirrorTold:
		return false
	}
	m.told = now
	return true
}

// refused takes in that the group takes no commit, as while a consumer has it: nor did it, perhaps, of the owner before.
func (m *mirror) refused(at map[int32]word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range at {
		if _, said := m.last[p]; !said {
			m.fresh[p] = true
		}
	}
}

// others looks, before a commit, where the group stands, and returns what others have committed since peers last
// did: the commit takes that back, as the group decides nothing. A group that does not answer is not taken back.
//
// A group that is farther when a partition is said for the first time was moved by another consumer, or the store
// has forgotten: what lies between runs again. Where topics have ids an offset that does not name one is none of
// ours. Until the first commit after an opening it is held against where the store had the partition then: what lies
// between may have run again by now, and what was said in an ownership before does not count. It may be from before
// all peers where no peer has committed the partition, as far as is known; else somebody wants to move them.
func (m *mirror) others(at map[int32]word) (told []error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), m.patience)
	defer cancel()
	of := slices.Sorted(maps.Keys(at))
	stands, err := m.source.offsets(ctx, of...)
	if err != nil {
		return nil, err
	}
	var farther, moved []string
	m.mu.Lock()
	for _, p := range of {
		o, known := stands[p]
		is := at[p]
		last, said := m.last[p]
		foreign := is.life != "" && kafkaprogress.Life(o.Metadata) == ""
		if low, first := m.opened[p]; first && foreign {
			is.at, said = low, false
		}
		where := fmt.Sprintf("%d at %d instead of %d", p, o.At, is.at)
		switch {
		case !known || o.At < 0 || o.At == is.at || said && o.At == last.at || ofAnother(o, is.life):
		case !said && o.At > is.at:
			farther = append(farther, where)
		case foreign && !m.fresh[p]:
			moved = append(moved, where)
		}
	}
	m.mu.Unlock()
	group, name := m.source.cfg.Group, m.source.name
	if farther != nil {
		told = append(told, fmt.Errorf("kafkasource: group %s was farther than the store knows, in partition %s: what lies between runs again. "+
			"Another consumer has worked with the group since, or the store has forgotten; before peers follow such a consumer, run countoff destroy %s",
			group, strings.Join(farther, ", "), name))
	}
	if moved != nil {
		told = append(told, fmt.Errorf("kafkasource: group %s was set by somebody else, in partition %s: that moves nobody, and peers commit again what the store knows. "+
			"To move them stop all, run countoff destroy %s, set the group, and start them",
			group, strings.Join(moved, ", "), name))
	}
	return told, nil
}

// write commits.
func (m *mirror) write(ctx context.Context, at map[int32]word) error {
	cfg := &m.source.cfg
	offsets := make(kadm.Offsets)
	for p, w := range at {
		offsets.Add(kadm.Offset{Topic: cfg.Topic, Partition: p, At: w.at, LeaderEpoch: -1, Metadata: w.metadata()})
	}
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	done, err := prompt.Call(ctx, func() (kadm.OffsetResponses, error) {
		return m.source.admin.CommitOffsets(ctx, cfg.Group, offsets)
	})
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		return fmt.Errorf("kafkasource: commit to group %s: %w", cfg.Group, explain(err))
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, w := range at {
		m.last[p] = committed{w, now}
		delete(m.opened, p)
		delete(m.fresh, p)
	}
	return nil
}

// look asks what is to be asked now and then. It ends with stop, which is no news.
func (m *mirror) look(stop context.Context) {
	for _, ask := range []func(context.Context) error{m.source.lookForMore, m.noteEnds} {
		ctx, cancel := context.WithTimeout(stop, m.source.cfg.Look)
		err := ask(ctx)
		cancel()
		if err != nil && stop.Err() == nil {
			m.source.warn(err)
		}
	}
}

// lookForMore tells if the topic has grown, also what was taken in before: the ledger may have
// forgotten it since, in a fail-over, and nobody would work the new partitions.
func (s *Source) lookForMore(ctx context.Context) error {
	total, err := s.look(ctx)
	if err != nil || s.cfg.Grown == nil {
		return err
	}
	s.mu.Lock()
	first := s.first
	s.mu.Unlock()
	if total <= first {
		return nil
	}
	return s.cfg.Grown(ctx, total)
}

// noteEnds tells the store where the open partitions end. Its error is of those of which no broker
// says so as well: they are not read either, until one does, and the client does not tell.
func (m *mirror) noteEnds(ctx context.Context) error {
	s := m.source
	ends, err := prompt.Call(ctx, func() (kadm.ListedOffsets, error) { return s.admin.ListEndOffsets(ctx, s.cfg.Topic) })
	at := make(map[partition.ID]int64)
	m.mu.Lock()
	for st := range m.open {
		o, ok := ends.Lookup(s.cfg.Topic, int32(st.Grant.ID))
		switch {
		case ok && o.Err == nil:
			at[st.Grant.ID] = o.Offset
		case ok:
			err = errors.Join(err, fmt.Errorf("partition %v: %w", st.Grant.ID, o.Err))
		}
	}
	m.mu.Unlock()
	if len(at) > 0 {
		err = errors.Join(err, s.store.Ends(ctx, at))
	}
	if err != nil {
		return fmt.Errorf("kafkasource: where the partitions end: %w", explain(err))
	}
	return nil
}

// lowest is the lowest position that is not known to be finished.
func (s *stream) lowest() int64 {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Log.Lowest()
}

// sound reports whether the stream owned its partition when the store last spoke, and
// that is not long ago: an owner that was paused first asks for its fence, before it
// says how far it had come then. One whose topic is gone says nothing more: its name is that of
// another topic by now, which takes the position for its own.
func (s *stream) sound(now time.Time) bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return !s.Lost() && !s.gone && now.Sub(s.said) < 2*s.check()
}
