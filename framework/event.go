package framework

import (
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
)

// An Observer is told everything that happens. Observe is called from many
// goroutines at once, on the path of the work: it must be fast and must not call
// Start or Stop, nor end its goroutine (runtime.Goexit). Events of one grant come in
// their order, except that handlers run side by side.
//
// A panic of it ends the [Consumer], the [Units] or the [Share] as an error does that does not
// pass: in order, with what it was told of. It is told nothing after that, until the next Start,
// and the others are told all of it. If it panicked with a lock held for which other calls of it
// wait already, those wait for ever, and Stop with them: defer what frees it. A source that tells
// things by itself is to tell [Consumer.Observer], or a panic there ends the process.
type Observer interface{ Observe(Event) }

// An ObserverFunc is a function as an [Observer]. A nil one hears nothing.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) {
	if f != nil {
		f(e)
	}
}

// A HandledObserver is an [Observer] that is told of runs by ObserveHandled, and of everything
// else by Observe. An Event is put on the heap; a Handled by itself is not, and there is one for
// each task. What is said of Observe holds for both methods.
type HandledObserver interface {
	Observer
	ObserveHandled(Handled)
}

// Observers are several observers as one. Those that are a [HandledObserver] are told as such;
// nil ones are left out.
type Observers []Observer

// Observe tells all of them, in their order.
func (all Observers) Observe(e Event) {
	for _, o := range all {
		observe(o, e)
	}
}

// ObserveHandled tells all of them, in their order.
func (all Observers) ObserveHandled(e Handled) {
	for _, o := range all {
		observeHandled(o, e)
	}
}

func observe(o Observer, e Event) {
	if o != nil {
		o.Observe(e)
	}
}

// coordinated is what tells o what the coordinator of a peer of name tells; nil if nobody listens.
func coordinated(name string, o Observer) func(transition.Event) {
	if o == nil {
		return nil
	}
	return func(e transition.Event) { o.Observe(Coordinated{Consumer: name, Event: e}) }
}

func observeHandled(o Observer, e Handled) {
	switch o := o.(type) {
	case nil:
	case HandledObserver:
		o.ObserveHandled(e)
	default:
		o.Observe(e)
	}
}

// An Event is one thing that happened: one of the types that [Events] lists, always by value.
type Event interface{ event() }

// Where says whose event it is.
type Where struct {
	Consumer string // the name
	Grant    partition.Grant
}

// Events of a consumer.
type (
	// Started: the source and the ledger have answered, the peer takes part.
	Started struct {
		Consumer string
		Peer     string // its id; see also transition.Renamed
		Session  partition.Session
		Config   partition.Config
		Takeover time.Duration // bound: a dead peer's partitions are granted again by then
	}
	// StartFailed: the source or the ledger has not answered; again after Again.
	StartFailed struct {
		Consumer string
		Err      error
		Again    time.Duration
	}
	// Warned: something about the configuration deserves a look.
	Warned struct {
		Consumer string
		Warning  string
	}
	// Stopping: the consumer hands over what it has.
	Stopping struct {
		Consumer string
		Within   time.Duration // by then it turns hard
	}
	// Stopped: nothing of the consumer runs any more. Err is why it ended by itself, or what a
	// stop left behind; nil after an orderly stop.
	Stopped struct {
		Consumer string
		Took     time.Duration // since Stopping, or zero
		Err      error
	}
	// Coordinated: what the coordinator tells of the lease, the rolls and the
	// grants. See package transition.
	Coordinated struct {
		Consumer string
		Event    transition.Event // never nil, but in Events
	}
	// Miscounted: the peer was not, or not surely, counted in an interval of the
	// interval indexer. After two in a row it is no member until it is counted again.
	Miscounted struct {
		Consumer string
		Interval uint64
		Err      error
	}
	// Checked: what the health check says has changed; nil is well. It counts once it has
	// lasted: see [WithHealth], and transition.Declared.
	Checked struct {
		Consumer string
		Err      error
	}
	// MajorityMissed: fewer than a majority of the masters that witness the epochs answer and
	// take what they are told. What is held is worked on, and nothing is gained.
	MajorityMissed struct {
		Consumer string
		Err      error // says which of them, and why
	}
	// MajorityBack: after MajorityMissed, a majority does so again.
	MajorityBack struct{ Consumer string }
	// Limited: tasks have waited for the consumer's rate for a second or longer, without a second in which
	// none did; Share is how many tasks a second this peer may start of it.
	Limited struct {
		Consumer string
		Rate     Rate
		Share    float64
	}
	// Unlimited: after Limited, no task has waited for the rate for a second: none was ready, or what
	// was waited for a worker.
	Unlimited struct{ Consumer string }
	// Uncovered: something about the name is wrong for longer than it may be; the
	// finding says what. Told by one peer of the name; see [WithSurvey].
	Uncovered struct {
		Consumer string
		Finding  coverage.Finding
	}
	// Covered: nothing of this kind is wrong any more.
	Covered struct {
		Consumer string
		Kind     coverage.Kind
		Took     time.Duration // since the first Uncovered of the kind
	}
	// Relieved: this peer, which told of something as Uncovered, looks no more: it is not
	// the first any longer, or stops. Whether it is still so is for the next one to tell.
	Relieved struct{ Consumer string }
)

// Events of a grant.
type (
	// Opened: the fence of the grant is installed; it is being served. Took counts
	// from the grant.
	Opened struct {
		Where
		Took time.Duration
	}
	// OpenFailed: the source has not opened the partition; again after Again, or
	// never if that is zero.
	OpenFailed struct {
		Where
		Err   error
		Again time.Duration
	}
	// Fetched: Tasks came in; at most Limit had been asked for.
	Fetched struct {
		Where
		Tasks, Limit int
	}
	// FetchFailed: the source has not fetched; again after Again, or never if that is zero.
	FetchFailed struct {
		Where
		Err   error
		Again time.Duration
	}
	// Blocked: Held tasks are in hand, as many as a lane may hold: nothing is fetched until some of them are done.
	// Parked of them wait for their next try. Waiting wait behind a task of Key, more than behind one of any other
	// key; if none waits so, Key is empty. It is told a second after that began.
	// A source that reads its log no further for the same reason may tell it too, with the key of its oldest task and nothing else.
	Blocked struct {
		Where
		Key                   string
		Waiting, Parked, Held int
	}
	// Unblocked: after Blocked, the partition is fetched from again, or is to end.
	Unblocked struct{ Where }
	// JobTicked: Fired ticks of a periodic job were enqueued, by the source itself. Tick is
	// the newest that was dealt with, Late after its time. Passed: older ones were missed
	// and are not fired.
	JobTicked struct {
		Where
		Job    string
		Tick   time.Time
		Late   time.Duration
		Fired  int
		Passed bool
	}
	// JobsFailed: the store has not taken the ticks of the partition's jobs, or not told
	// which are due; again after Again.
	JobsFailed struct {
		Where
		Err   error
		Again time.Duration
	}
	// Handled: a run of a handler ended. Outcome is 0 if it was for nothing, because the
	// partition was lost, the drain time over or the consumer stopped hard, or since the handler
	// left the task to the next owner (ErrHandedOver), who runs it again.
	Handled struct {
		Where
		Task    *Task // as the handler got it; must not be changed
		Outcome sources.Outcome
		Delay   time.Duration // of Retry and Requeue
		Took    time.Duration
		Err     error
	}
	// Buried: the source has made dead letters of tasks that no handler was given, since
	// nobody can read them or they ended their peers too often. A unit's are lines of its list.
	Buried struct {
		Consumer string
		sources.Buried
	}
	// Cancelled: somebody wants Task out of the way, and why. If it Runs, the context of its handler
	// has ended, and Handled tells what came of it; otherwise it is a dead letter without another run.
	Cancelled struct {
		Where
		Task *Task // must not be changed
		Why  string
		Runs bool
	}
	// Settled: the source has answered for what became of this many tasks.
	Settled struct {
		Where
		Done, Retried, Requeued, Dead int
		Took                          time.Duration
	}
	// Halted: the source has not answered for outcomes for For, a tenth of a lease or more. No
	// more tasks of the partition start until it does.
	Halted struct {
		Where
		For time.Duration
	}
	// Resumed: after Halted, the source has answered, after For. It is not told of a grant that
	// was lost meanwhile.
	Resumed struct {
		Where
		For time.Duration
	}
	// SettleFailed: the source has not answered for the outcomes of Tasks, so that it is unknown
	// whether it knows them. They are said again after Again, or never if that is zero.
	SettleFailed struct {
		Where
		Tasks int
		Err   error
		Again time.Duration
	}
	// Draining: nothing new is started; Running handlers may end until Within is
	// over.
	Draining struct {
		Where
		Running int
		Within  time.Duration
	}
	// DrainOverdue: Running handlers took longer than After; their contexts have
	// ended. The partition is held until they return.
	DrainOverdue struct {
		Where
		Running int
		After   time.Duration
	}
	// CloseFailed: the source has not closed the partition; again after Again.
	CloseFailed struct {
		Where
		Err   error
		Again time.Duration
	}
	// Drained: nothing of the grant runs or is unsettled, its stream is closed;
	// GivenBack tasks were fetched and not finished.
	Drained struct {
		Where
		Took      time.Duration // since Draining
		GivenBack int
	}
	// Lost: the partition is lost, for Cause; Running handlers were cancelled.
	Lost struct {
		Where
		Cause   error
		Running int
	}
	// Dropped: the last handler of a lost partition has returned; Tasks were fetched, and the
	// source has not answered that they are over. Some of them may be, where a call was cut short.
	Dropped struct {
		Where
		Took  time.Duration // since Lost
		Tasks int
	}
	// HandlerStuck: the handler of Task has not returned within the cancel grace
	// after its context ended. A partition is not claimed again here before it
	// does; a handler timeout that is ignored keeps a worker. Told once of a run.
	HandlerStuck struct {
		Where
		Task  *Task
		For   time.Duration // since it was started
		Cause error         // why the context ended
	}
)

// Events of units; see [Units].
type (
	// UnitStarted: the handler of a unit is called.
	UnitStarted struct {
		Where
		Unit string
	}
	// UnitEnded: the handler of a unit has returned.
	UnitEnded struct {
		Where
		Unit  string
		Cause error // why its context had ended; nil: it returned by itself
		Err   error // what it returned
		Took  time.Duration
		Again time.Duration // until it is called again; 0: it is not
	}
	// UnitsChanged: the list was read and has changed. Units is how many there are.
	UnitsChanged struct {
		Consumer              string
		Units, Added, Removed int
	}
	// UnitsTroubled: the list could not be read, the units not be shared out evenly, or the table
	// not written; each is told once until it works again. Or something in the list cannot be a
	// unit (see partition.CheckUnit; or the hash of the layout refuses the name) and is nobody's;
	// told again when that changes. What runs goes on.
	UnitsTroubled struct {
		Consumer string
		Err      error
	}
)

func (Started) event()        {}
func (StartFailed) event()    {}
func (Warned) event()         {}
func (Stopping) event()       {}
func (Stopped) event()        {}
func (Coordinated) event()    {}
func (Miscounted) event()     {}
func (Checked) event()        {}
func (MajorityMissed) event() {}
func (MajorityBack) event()   {}
func (Limited) event()        {}
func (Unlimited) event()      {}
func (Uncovered) event()      {}
func (Covered) event()        {}
func (Relieved) event()       {}
func (Opened) event()         {}
func (OpenFailed) event()     {}
func (Fetched) event()        {}
func (FetchFailed) event()    {}
func (Blocked) event()        {}
func (Unblocked) event()      {}
func (JobTicked) event()      {}
func (JobsFailed) event()     {}
func (Handled) event()        {}
func (Buried) event()         {}
func (Cancelled) event()      {}
func (Settled) event()        {}
func (SettleFailed) event()   {}
func (Halted) event()         {}
func (Resumed) event()        {}
func (Draining) event()       {}
func (DrainOverdue) event()   {}
func (CloseFailed) event()    {}
func (Drained) event()        {}
func (Lost) event()           {}
func (Dropped) event()        {}
func (HandlerStuck) event()   {}
func (UnitStarted) event()    {}
func (UnitEnded) event()      {}
func (UnitsChanged) event()   {}
func (UnitsTroubled) event()  {}

// Events returns one empty event of every type there is, so that a listener's test
// can show that it misses none.
func Events() []Event {
	return []Event{
		Started{}, StartFailed{}, Warned{}, Stopping{}, Stopped{}, Coordinated{}, Miscounted{}, Checked{},
		MajorityMissed{}, MajorityBack{}, Limited{}, Unlimited{}, Uncovered{}, Covered{}, Relieved{},
		Opened{}, OpenFailed{}, Fetched{}, FetchFailed{}, Blocked{}, Unblocked{}, JobTicked{}, JobsFailed{},
		Handled{}, Buried{}, Cancelled{}, Settled{}, SettleFailed{}, Halted{}, Resumed{},
		Draining{}, DrainOverdue{}, CloseFailed{}, Drained{}, Lost{}, Dropped{}, HandlerStuck{},
		UnitStarted{}, UnitEnded{}, UnitsChanged{}, UnitsTroubled{},
	}
}
