package redissource

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/jobs"
)

var (
	//go:embed jobs_fire.lua
	jobsFireSource string

	jobsFireScript = redis.NewScript(bellSource + jobsFireSource)
)

// Ticked says what became of ticks of a job, or that the store has not taken them.
type Ticked struct {
	Grant partition.Grant
	Job   string
	// Fired ticks were enqueued; Tick is the newest that was dealt with, Late how long
	// after its time that was.
	Fired int
	Tick  time.Time
	Late  time.Duration
	// Passed says that older ticks were not fired: the entry's Missed says so.
	Passed bool
	// Err is why the ticks of the partition cannot be fired now; it is tried again after
	// Again. The other fields but Grant are empty.
	Err   error
	Again time.Duration
}

// jobsKey is the HASH entry -> milliseconds up to which its ticks are dealt with, and what
// people want to know.
func (k Keys) jobsKey() string { return k.tag + ":jobs" }

// A jobRecord is what is recorded of a job.
type jobRecord struct {
	upto int64 // milliseconds; 0: nothing is recorded

	Spec  string `json:"spec"`
	Zone  string `json:"zone"`
	Key   string `json:"key"`
	Tick  string `json:"tick,omitempty"` // the last one that was fired
	Fired int64  `json:"fired"`          // how many were
}

func (r jobRecord) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and a number
	}
	return strconv.FormatInt(r.upto, 10) + " " + string(text)
}

func parseJobRecord(s string) (r jobRecord, err error) {
	if s == "" {
		return r, nil
	}
	digits, rest, _ := strings.Cut(s, " ")
	upto, err := strconv.ParseUint(digits, 10, 63) // no sign: the script compares digits
	if err == nil {
		err = json.Unmarshal([]byte(rest), &r)
	}
	if err != nil {
		return r, fmt.Errorf("%q is recorded of it: %w", s, err)
	}
	r.upto = int64(upto)
	return r, nil
}

// unreadable says which record is meant, and what to do about it.
func unreadable(name, entry string, err error) error {
	return fmt.Errorf("job %q of %s: %w; \"countoff jobs %s --forget %s\" lets it begin anew", entry, name, err, name, entry)
}

// A jobStep is what is to be done about one job now.
type jobStep struct {
	value     string // to be recorded; empty: nothing is to be done
	envelopes [][]byte
	ticked    Ticked
	next      time.Time // the first tick after this; zero: none
}

// stepOf decides. A job that was never seen, or has another schedule than was recorded, begins
// now: ticks of the past are not its own.
func stepOf(j *jobs.Job, r jobRecord, now time.Time) jobStep {
	after := time.UnixMilli(r.upto)
	fresh := jobRecord{upto: r.upto, Spec: j.Spec, Zone: j.Zone, Key: j.Key, Tick: r.Tick, Fired: r.Fired}
	if r.upto == 0 || r.Spec != j.Spec || r.Zone != j.Zone {
		fresh.upto = max(r.upto+1, now.UnixMilli())
		return jobStep{value: fresh.String(), next: j.Next(time.UnixMilli(fresh.upto))}
	}
	plan := j.Due(after, now)
	if !plan.Upto.After(after) {
		return jobStep{next: plan.Next}
	}
	s := jobStep{next: plan.Next, ticked: Ticked{
		Job: j.Name, Fired: len(plan.Fire), Tick: plan.Upto, Late: now.Sub(plan.Upto), Passed: plan.Passed,
	}}
	for _, at := range plan.Fire {
		t := j.Task(at)
		s.envelopes = append(s.envelopes, appendEnvelope(nil, &envelope{
			id: t.ID, typ: j.Type, key: j.Key, born: sources.MomentOf(t.Born), headers: t.Headers, payload: j.Payload,
		}))
		fresh.Tick = t.Headers[jobs.HeaderTick]
	}
	fresh.upto, fresh.Fired = plan.Upto.UnixMilli(), r.Fired+int64(len(plan.Fire))
	s.value = fresh.String()
	return s
}

const (
	// lookEvery is how often an owner looks at the store's clock when nothing is due: in
	// that time its own clock drifts by less than 30 ms.
	lookEvery    = time.Minute
	firstFailure = 100 * time.Millisecond
	lastFailure  = 5 * time.Second
)

// A ticker fires the jobs of one ownership of a partition.
type ticker struct {
	stream *stream
	jobs   []*jobs.Job
	total  int
	known  []string // what is recorded of each, as last answered
}

// errStale ends a ticker: the fence is another's, or the partition another's to be.
var errStale = errors.New("the ownership is over")

// run fires until the stream is stopped, the ownership is over or ctx ends.
func (t *ticker) run(ctx context.Context) {
	failure := time.Duration(0)
	for {
		wait, err := t.look(ctx)
		if errors.Is(err, errStale) || ctx.Err() != nil {
			return
		}
		if err != nil {
			failure = min(max(2*failure, firstFailure), lastFailure)
			wait = min(wait, failure)
			t.tell(Ticked{Err: err, Again: wait})
		} else {
			failure = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.stream.Stopped():
			timer.Stop()
			return
		}
	}
}

func (t *ticker) tell(e Ticked) {
	if told := t.stream.source.cfg.Ticked; told != nil {
		e.Grant = t.stream.Grant
		told(e)
	}
}

// look fires what is due and returns when to look again, at the latest. A job whose record
// cannot be read is an error, and does not keep the others from being fired.
func (t *ticker) look(ctx context.Context) (time.Duration, error) {
	now, err := t.call(ctx, make([]jobStep, len(t.jobs)))
	if err != nil {
		return lookEvery, err
	}
	for {
		steps, due, next := make([]jobStep, len(t.jobs)), false, now.Add(lookEvery)
		var unread []error
		for i, j := range t.jobs {
			r, err := parseJobRecord(t.known[i])
			if err != nil {
				unread = append(unread, unreadable(t.stream.source.name, j.Name, err))
				continue
			}
			steps[i] = stepOf(j, r, now)
			due = due || steps[i].value != ""
			if n := steps[i].next; !n.IsZero() && n.Before(next) {
				next = n
			}
		}
		if !due {
			return max(next.Sub(now), time.Millisecond), errors.Join(unread...)
		}
		if now, err = t.call(ctx, steps); err != nil {
			return lookEvery, err
		}
		for i, s := range steps {
			if s.value != "" && t.known[i] == s.value && s.ticked.Job != "" {
				t.tell(s.ticked)
			}
		}
	}
}

// call carries out steps, learns what is recorded, and returns the store's clock.
func (t *ticker) call(ctx context.Context, steps []jobStep) (time.Time, error) {
	s := t.stream
	args := []any{s.token.String(), t.total, len(steps)}
	for i, j := range t.jobs {
		from, _, _ := strings.Cut(t.known[i], " ")
		args = append(args, j.Name, from, steps[i].value, len(steps[i].envelopes))
	}
	for _, step := range steps {
		for _, e := range step.envelopes {
			args = append(args, e)
		}
	}
	answer, err := jobsFireScript.Run(ctx, s.source.client, []string{s.keys.Fence, s.keys.Pending, s.keys.jobsKey()}, args...).StringSlice()
	switch {
	case err != nil:
		return time.Time{}, redisconfig.Explain(err)
	case len(answer) == 1 && answer[0] == "STALE", len(answer) == 2 && answer[0] == "RESIZED":
		return time.Time{}, errStale
	case len(answer) != 2+len(t.jobs) || answer[0] != "OK":
		return time.Time{}, fmt.Errorf("redissource: jobs: answer %q", answer)
	}
	ms, err := strconv.ParseInt(answer[1], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	copy(t.known, answer[2:])
	return time.UnixMilli(ms), nil
}

// jobsOf returns the jobs whose tasks belong to partition id.
func (s *Source) jobsOf(id partition.ID, layout partition.Config) []*jobs.Job {
	var all []*jobs.Job
	for _, j := range s.jobs {
		if home, err := layout.Hash.Of(j.Key, layout.Total); err == nil && home == id {
			all = append(all, j)
		}
	}
	return all
}

// checkJobs says which jobs have keys that belong to no partition.
func checkJobs(all []*jobs.Job, hash partition.Hash) error {
	var errs []error
	for _, j := range all {
		if _, err := hash.Of(j.Key, 1); err != nil {
			errs = append(errs, fmt.Errorf("%w: job %q: %w", partition.ErrConfig, j.Name, err))
		}
	}
	return errors.Join(errs...)
}

// tickers returns what fires the jobs of the stream's partition, if it has any.
func (s *stream) tickers(layout partition.Config) []func(context.Context) {
	all := s.source.jobsOf(s.Grant.ID, layout)
	if len(all) == 0 {
		return nil
	}
	t := &ticker{stream: s, jobs: all, total: layout.Total, known: make([]string, len(all))}
	return []func(context.Context){t.run}
}

// A JobState is what the store knows of a job.
type JobState struct {
	Entry      string
	Partition  partition.ID
	Spec, Zone string
	Key        string
	// Upto is the instant up to which its ticks are dealt with.
	Upto time.Time
	// Last is the last tick that was fired, zero if none was, and Fired how many were.
	Last  time.Time
	Fired int64
}

// Jobs reads what is known of the jobs in the partitions ids of name: for people. What cannot be
// read, a record or a partition, is an error beside all others. Nodes of a cluster have half of the
// time of ctx to answer.
func Jobs(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID) ([]JobState, error) {
	keys := eachKey(name, ids, Keys.jobsKey)
	found := make([]*redis.MapStringStringCmd, len(ids))
	redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) { found[i] = pipe.HGetAll(ctx, keys[i]) })
	var all []JobState
	var unread []error
	var away unanswered
	for i, cmd := range found {
		away.add(ids[i], cmd.Err())
		for entry, value := range cmd.Val() {
			r, err := parseJobRecord(value)
			if err != nil {
				unread = append(unread, unreadable(name, entry, err))
				continue
			}
			s := JobState{Entry: entry, Partition: ids[i], Spec: r.Spec, Zone: r.Zone, Key: r.Key, Upto: time.UnixMilli(r.upto), Fired: r.Fired}
			if last, err := time.Parse(time.RFC3339, r.Tick); err == nil {
				s.Last = last
			}
			all = append(all, s)
		}
	}
	return all, errors.Join(append(unread, away.err("jobs", name))...)
}

// ForgetJob removes what is known of an entry in the partitions ids, and reports whether there
// was anything. An entry that is forgotten while peers have it begins anew. Partitions where that cannot be
// done are an error, and it is forgotten in all others. Nodes of a cluster have half of the time of ctx.
func ForgetJob(ctx context.Context, client redis.UniversalClient, name, entry string, ids []partition.ID) (bool, error) {
	keys := eachKey(name, ids, Keys.jobsKey)
	gone := make([]*redis.IntCmd, len(ids))
	redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) { gone[i] = pipe.HDel(ctx, keys[i], entry) })
	found := false
	var away unanswered
	for i, cmd := range gone {
		found = found || cmd.Val() > 0
		away.add(ids[i], cmd.Err())
	}
	return found, away.err("forget job "+entry, name)
}

// moveJobs moves what is recorded of jobs to the partitions that their keys have from now on.
// Nobody fires meanwhile. Repeated, it changes nothing: the greater number stands.
//
// The two partitions may be of different slots, so a record is written there before it is removed here.
// Broken off between the two it stands in both, as it was: nobody works until another call has ended the
// resize, which finds it there and removes it here. What of this call comes later is refused by both
// fences. So no tick is lost or fired twice.
func (m *mover) moveJobs(ctx context.Context, id partition.ID) error {
	from := KeysOf(m.name, id).jobsKey()
	var found *redis.MapStringStringCmd
	if err := m.read(ctx, id, func(pipe redis.Pipeliner) { found = pipe.HGetAll(ctx, from) }); err != nil {
		return err
	}
	for entry, value := range found.Val() {
		r, err := parseJobRecord(value)
		if err != nil {
			return unreadable(m.name, entry, err)
		}
		home, err := m.hash.Of(r.Key, m.to)
		if err != nil || home == id {
			continue // nobody's, or at home
		}
		to := KeysOf(m.name, home).jobsKey()
		var there *redis.StringCmd
		if err := m.read(ctx, home, func(pipe redis.Pipeliner) { there = pipe.HGet(ctx, to, entry) }); err != nil {
			return err
		}
		if known, err := parseJobRecord(there.Val()); err != nil || known.upto < r.upto {
			if err := m.do(ctx, command{home, to, []any{"HSET", entry, value}}); err != nil {
				return err
			}
		}
		if err := m.kept(ctx, kept{key: KeysOf(m.name, home).Fence, token: m.tokens[home]}); err != nil {
			return err
		}
		if err := m.do(ctx, command{id, from, []any{"HDEL", entry}}); err != nil {
			return err
		}
	}
	return nil
}
