package progress

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Tried is what the store knows of the runs of an open task.
type Tried struct {
	Tries      int
	Crashes    int
	NotBefore  time.Time // by this process's clock; zero: at once
	FirstError string
}

// mostAhead is as far ahead as a time.Duration reaches, in milliseconds.
const mostAhead = math.MaxInt64 / int64(time.Millisecond)

// ParseTried reads what a store keeps of a Tried, "tries crashes notbefore error". now is
// the present instant, and store the same by the store's clock, whose the third is: in
// milliseconds since 1970.
func ParseTried(s string, now time.Time, store int64) (t Tried, err error) {
	part := strings.SplitN(s, " ", 4)
	if len(part) < 4 {
		return t, fmt.Errorf("%q is not of four words: tries crashes notbefore error", s)
	}
	var at int64
	var errs [3]error
	t.Tries, errs[0] = strconv.Atoi(part[0])
	t.Crashes, errs[1] = strconv.Atoi(part[1])
	at, errs[2] = strconv.ParseInt(part[2], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return Tried{}, fmt.Errorf("%q: %w", s, err)
	}
	if at > store {
		t.NotBefore = now.Add(time.Duration(min(at-store, mostAhead)) * time.Millisecond)
	}
	t.FirstError = part[3]
	return t, nil
}

// A Content is what the store is to keep of a verdict.
type Content struct {
	Delay time.Duration // of Retry and Requeue
	Error string        // of Retry; kept if it is the first
	Body  []byte        // of Requeue the new envelope, of Dead the letter
}

// Found is what an owner finds of a log whose elements lie elsewhere.
type Found struct {
	Opened
	Tried  map[int64]Tried
	Lifted []int64 // ascending
	// Life names the log that the positions are of; empty if nobody has said so yet.
	// A log that was deleted and made again has another one.
	Life string
}

// Ended takes out a position that was settled since.
func (f *Found) Ended(pos int64) {
	delete(f.Tried, pos)
	f.Lifted = slices.DeleteFunc(f.Lifted, func(x int64) bool { return x == pos })
	if i, found := slices.BinarySearch(f.Done, pos); pos >= f.Base && !found {
		f.Done = slices.Insert(f.Done, i, pos)
	}
}
