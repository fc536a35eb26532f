package redisprogress

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

var (
	//go:embed open.lua
	openSource string
	//go:embed settle.lua
	settleSource string
	//go:embed close.lua
	closeSource string
	//go:embed due.lua
	dueSource string
	//go:embed read.lua
	readSource string

	openScript   = redis.NewScript(openSource)
	settleScript = redis.NewScript(settleSource)
	closeScript  = redis.NewScript(closeSource)
	dueScript    = redis.NewScript(dueSource)
	readScript   = redis.NewScript(readSource)

	settleHash any = settleScript.Hash()
)

// A Log is one ownership of one log in Redis. It keeps no state: every answer goes
// to the caller, who keeps a progress.Log. Its methods may be called concurrently,
// except that settlements are composed one at a time.
type Log struct {
	client redis.UniversalClient
	keys   Keys
	grant  partition.Grant
	token  any // a string, as the library takes it
	epoch  string
	list   bool
	settle []any // the KEYS of settle.lua, as the library takes them
	// strays says that the commands of one pipeline may come to the server in another order: see Read.
	strays bool
}

// New returns the ownership g of the log that keys name, under tok.
func New(client redis.UniversalClient, keys Keys, g partition.Grant, tok partition.Token) *Log {
	l := &Log{client: client, keys: keys, grant: g, token: tok.String(), epoch: tok.Epoch.String(), list: keys.Pending != ""}
	if !l.list {
		// A key that is not there would have to be of the same slot: any of ours is.
		l.keys.Pending, l.keys.Delayed, l.keys.Dead = keys.Fence, keys.Fence, keys.Fence
	}
	_, single := client.(*redis.Client)
	l.strays = !single
	k := l.keys
	l.settle = []any{k.Fence, k.Done, k.Lifted, k.Tries, k.Pending, k.Delayed, k.Dead}
	return l
}

// A Tried is what the store knows of the runs of an open task.
type Tried = progress.Tried

// A Lifted is an open task that the base has passed.
type Lifted struct {
	Position int64
	Envelope string // empty without a list
}

// An Opened is what Open found.
type Opened struct {
	progress.Opened
	Tried  map[int64]Tried
	Lifted []Lifted // by position
	// Due is how long until the next delayed task, negative if there is none.
	Due time.Duration
}

// Ended takes out a position that was settled since.
func (o *Opened) Ended(pos int64) {
	delete(o.Tried, pos)
	o.Lifted = slices.DeleteFunc(o.Lifted, func(l Lifted) bool { return l.Position == pos })
	if i, found := slices.BinarySearch(o.Done, pos); pos >= o.Base && !found {
		o.Done = slices.Insert(o.Done, i, pos)
	}
}

// Open installs the fence and reads what earlier owners left. begin is the base of a
// log nobody has ever opened. It returns a [sources.FencedError] if the same or a
// newer epoch stands under another token. Opening again with the token that stands
// changes nothing.
func (l *Log) Open(ctx context.Context, begin int64) (Opened, error) {
	flag := "0"
	if l.list {
		flag = "1"
	}
	k := l.keys
	reply, err := numbers(openScript.Run(ctx, l.client, []string{k.Fence, k.Done, k.Lifted, k.Tries, k.Pending, k.Delayed},
		l.token, l.epoch, flag, begin))
	now := time.Now()
	if err != nil {
		return Opened{}, err
	}
	if reply[0] != 1 {
		return Opened{}, &sources.FencedError{Grant: l.grant, Stored: partition.Epoch(reply[1])}
	}
	o := Opened{Opened: progress.Opened{
		Base: reply[1], Suspects: reply[2], Writes: reply[3], Gate: max(reply[4], reply[1]),
	}, Due: time.Duration(reply[6]) * time.Millisecond}
	store := reply[5]
	if reply[7] == 0 {
		return o, o.parse(nil, nil, nil, now, store) // nothing is left: there is nothing to read
	}

	var done *redis.StringSliceCmd
	var tries *redis.MapStringStringCmd
	var lifted *redis.StringSliceCmd
	err = l.read(ctx, &o.Opened, func(pipe redis.Pipeliner) {
		done = pipe.ZRange(ctx, l.keys.Done, 0, -1)
		tries = pipe.HGetAll(ctx, l.keys.Tries)
		lifted = pipe.HKeys(ctx, l.keys.Lifted)
	})
	if err != nil {
		return Opened{}, err
	}
	envelopes, err := l.envelopes(ctx, &o.Opened, lifted.Val())
	if err != nil {
		return Opened{}, err
	}
	if err := o.parse(done.Val(), tries.Val(), envelopes, now, store); err != nil {
		return Opened{}, err
	}
	return o, nil
}

// read reads what earlier owners left. It is this owner's only if the fence still stands
// afterwards: an empty settlement at the end tells.
func (l *Log) read(ctx context.Context, o *progress.Opened, queue func(redis.Pipeliner)) error {
	empty := &progress.Request{Seen: o.Writes, Read: o.Base, Base: o.Base, Alone: progress.None}
	var check *redis.Cmd
	for _, source := range [...]bool{false, true} {
		pipe := l.client.Pipeline()
		queue(pipe)
		check = l.Settle(ctx, pipe, empty, nil, nil, source)
		if _, err := pipe.Exec(ctx); err == nil {
			break
		} else if !NoScript(err) || source {
			return err
		}
	}
	a, err := l.Answer(check)
	switch {
	case err != nil:
		return err
	case a.Status == progress.Forgot, a.Status == progress.Stale && a.Epoch < l.grant.Epoch:
		return sources.ErrForgot
	case a.Status == progress.Stale:
		return &sources.FencedError{Grant: l.grant, Stored: a.Epoch}
	}
	o.Writes = a.Writes
	return nil
}

// readBytes is about the most that one reply weighs: a client waits for the whole of it no longer
// than for a small one, and what has been lifted may be thousands of large tasks.
const readBytes = 16 << 20

// envelopes reads the lifted envelopes at positions, as many at once as weigh readBytes.
func (l *Log) envelopes(ctx context.Context, o *progress.Opened, positions []string) (map[string]string, error) {
	out := make(map[string]string, len(positions))
	if !l.list || len(positions) == 0 {
		for _, x := range positions {
			out[x] = ""
		}
		return out, nil
	}
	lengths := make([]*redis.IntCmd, len(positions))
	err := l.read(ctx, o, func(pipe redis.Pipeliner) {
		for i, x := range positions {
			lengths[i] = pipe.HStrLen(ctx, l.keys.Lifted, x)
		}
	})
	for from, upto := 0, 0; err == nil && from < len(positions); from = upto {
		for bytes := int64(0); upto < len(positions) && (upto == from || bytes+lengths[upto].Val() <= readBytes); upto++ {
			bytes += lengths[upto].Val()
		}
		page := positions[from:upto]
		var values *redis.SliceCmd
		err = l.read(ctx, o, func(pipe redis.Pipeliner) { values = pipe.HMGet(ctx, l.keys.Lifted, page...) })
		for i, v := range values.Val() {
			if envelope, there := v.(string); there {
				out[page[i]] = envelope
			}
		}
	}
	return out, err
}

func (o *Opened) parse(done []string, tries, lifted map[string]string, now time.Time, store int64) error {
	for _, s := range done {
		x, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("redisprogress: the done set holds %q", s)
		}
		o.Done = append(o.Done, x)
	}
	o.Tried = make(map[int64]Tried, len(tries))
	for s, v := range tries {
		x, err := strconv.ParseInt(s, 10, 64)
		if err == nil {
			o.Tried[x], err = progress.ParseTried(v, now, store)
		}
		if err != nil {
			return fmt.Errorf("redisprogress: the tries of %q: %w", s, err)
		}
	}
	for s, v := range lifted {
		x, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("redisprogress: lifted is %q", s)
		}
		o.Lifted = append(o.Lifted, Lifted{x, v})
	}
	slices.SortFunc(o.Lifted, func(a, b Lifted) int { return int(a.Position - b.Position) })
	return nil
}

// A Content is what the store is to keep of a verdict.
type Content = progress.Content

// A Lock is a key that is deleted with the end (done or dead) of the task at
// Position, if it holds Value.
type Lock struct {
	Position   int64
	Key, Value string
}

// Read queues in pipe the reading of n elements of the list, the first of them at position pos, reckoned from base. Before
// the settlement that moves the base: behind it others would stand there, and no answer would tell.
//
// A client of a cluster sends a command again by itself where the node that it asked says MOVED. Of a pipeline that may be
// one alone: the read comes to a replica, which becomes the master before it reads on, and the settlement is
// executed there at once; or both go to nodes taken at random, while the client knows none for the slot, and one of them is right. So
// there a script reads, which looks at the base: without it the answer is [redis.Nil]. With source it travels along.
func (l *Log) Read(ctx context.Context, pipe redis.Pipeliner, base, pos int64, n int, source bool) *redis.StringSliceCmd {
	from := pos - base
	to := from + int64(n) - 1
	if !l.strays {
		return pipe.LRange(ctx, l.keys.Pending, from, to)
	}
	command, script := "evalsha", readScript.Hash()
	if source {
		command, script = "eval", readSource
	}
	cmd := redis.NewStringSliceCmd(ctx, command, script, 2, l.keys.Fence, l.keys.Pending, base, from, to)
	cmd.SetFirstKeyPos(3)
	_ = pipe.Process(ctx, cmd) // a pipeline has no error before it is executed
	return cmd
}

// Settle queues the script that says r in pipe. content goes with the verdicts of
// r.Others, one by one. With source the script travels along: for a server that does
// not know it.
func (l *Log) Settle(ctx context.Context, pipe redis.Pipeliner, r *progress.Request, content []Content, locks []Lock, source bool) *redis.Cmd {
	// What is the same each time is there as the library takes it: to make it so is an allocation for each word.
	command, script := any("evalsha"), settleHash
	if source {
		command, script = "eval", settleSource
	}
	words := make([]any, 0, 3+len(l.settle)+11+4*len(r.Others)+3*len(locks))
	words = append(words, command, script, len(l.settle)+len(locks))
	words = append(words, l.settle...)
	for _, k := range locks {
		words = append(words, k.Key)
	}
	list, alone, counts := any("0"), any(""), any("")
	if l.list {
		list = "1"
	}
	if r.Alone != progress.None {
		alone = strconv.FormatInt(r.Alone, 10) + " " + strconv.Itoa(r.AloneTries)
	}
	if len(r.Done)+len(r.Others)+len(r.Lift) > 0 {
		counts = count(r.Others, len(locks))
	}
	words = append(words, l.token, list, r.Seen, r.Read, r.Base, r.Gate, r.Fetch, alone, counts, join(r.Done), join(r.Lift))
	for _, o := range [...]progress.Outcome{progress.Retry, progress.Requeue, progress.Dead} {
		for i, v := range r.Others {
			if v.Outcome != o {
				continue
			}
			c := &content[i]
			switch o {
			case progress.Retry:
				words = append(words, v.Position, progress.Runs(v.Attempt, c.Waits), millis(c.Delay), c.Error)
			case progress.Requeue:
				words = append(words, v.Position, c.Body, millis(c.Delay))
			case progress.Dead:
				words = append(words, v.Position, c.Body)
			}
		}
	}
	for _, k := range locks {
		words = append(words, k.Position, k.Value)
	}
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(3)
	_ = pipe.Process(ctx, cmd) // a pipeline has no error before it is executed
	return cmd
}

// count says how many of each kind there are among what goes with a settlement.
func count(others []progress.Verdict, locks int) string {
	var n [progress.Dead + 1]int64
	for _, v := range others {
		n[v.Outcome]++
	}
	b := make([]byte, 0, 16)
	for _, x := range [...]int64{n[progress.Retry], n[progress.Requeue], n[progress.Dead], int64(locks)} {
		b = append(strconv.AppendInt(b, x, 10), ' ')
	}
	return string(b)
}

func millis(d time.Duration) int64 { return max(0, d.Milliseconds()) }

func join(positions []int64) []byte {
	if len(positions) == 0 {
		return nil
	}
	b := make([]byte, 0, 12*len(positions))
	for _, x := range positions {
		b = append(strconv.AppendInt(b, x, 10), ' ')
	}
	return b
}

// A Reply is what the store said to a settlement.
type Reply struct {
	progress.Answer
	// Epoch is the one that stands, if the answer is Stale.
	Epoch partition.Epoch
	// End is the position after the last element of the list, -1 without one.
	End int64
	// Due is how long until the next delayed task, negative if there is none. It
	// was asked only if Asked.
	Due   time.Duration
	Asked bool
}

// Answer reads the reply to a settlement. An error says that there is none: nothing
// is known then, unless NoScript says that nothing was executed.
func (l *Log) Answer(cmd *redis.Cmd) (Reply, error) {
	n, err := numbers(cmd)
	if err != nil {
		return Reply{}, err
	}
	switch n[0] {
	case 0:
		return Reply{Answer: progress.Answer{Status: progress.Stale}, Epoch: partition.Epoch(n[1])}, nil
	case 1:
		return Reply{
			Answer: progress.Answer{Status: progress.Admitted, Before: n[1], Base: n[2], Writes: n[3], Gate: n[4]},
			End:    n[5], Due: time.Duration(n[6]) * time.Millisecond, Asked: n[6] != -2,
		}, nil
	}
	return Reply{Answer: progress.Answer{Status: progress.Forgot}}, nil
}

// moveBytes is about the most that one script moves: the server does nothing else meanwhile.
const moveBytes = 1 << 20

// Move queues in pipe the script that moves at most limit delayed tasks whose time
// has come, of large ones fewer, to the end of the list. See Moved. With source the
// script travels along.
func (l *Log) Move(ctx context.Context, pipe redis.Pipeliner, limit int, source bool) *redis.Cmd {
	keys := []string{l.keys.Fence, l.keys.Pending, l.keys.Delayed}
	if source {
		return pipe.Eval(ctx, dueSource, keys, limit, moveBytes)
	}
	return pipe.EvalSha(ctx, dueScript.Hash(), keys, limit, moveBytes)
}

// Moved returns how many delayed tasks were moved, and how long until the next one,
// negative if there is none.
func Moved(cmd *redis.Cmd) (moved int, next time.Duration, err error) {
	n, err := numbers(cmd)
	if err != nil {
		return 0, 0, err
	}
	return int(n[0]), time.Duration(n[1]) * time.Millisecond, nil
}

// Close ends the ownership. It returns nil also if the fence is another's already.
// Nothing may run any more, and every verdict must have been answered.
func (l *Log) Close(ctx context.Context) error {
	_, err := numbers(closeScript.Run(ctx, l.client, []string{l.keys.Fence}, l.token))
	return err
}

// NoScript reports whether the server did not know the script: nothing of it was
// executed.
func NoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// numbers reads a reply that is a list of numbers.
func numbers(cmd *redis.Cmd) ([8]int64, error) {
	var n [8]int64
	list, err := cmd.Slice()
	if err != nil {
		return n, err
	}
	if len(list) == 0 || len(list) > len(n) {
		return n, errors.New("redisprogress: a script answered what it does not say")
	}
	for i, v := range list {
		x, ok := v.(int64)
		if !ok {
			return n, errors.New("redisprogress: a script answered what it does not say")
		}
		n[i] = x
	}
	return n, nil
}
