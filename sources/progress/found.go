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
	Waits      int // of the Tries, those that waited (sources.Waits)
	Crashes    int
	NotBefore  time.Time // by this process's clock; zero: at once
	FirstError string
}

// mostAhead is as far ahead as a time.Duration reaches, in milliseconds.
const mostAhead = math.MaxInt64 / int64(time.Millisecond)

// Attempts is how many of the runs failed.
func (t Tried) Attempts() int { return t.Tries - t.Waits }

// Runs is the word of a store for so many runs, of which some waited: "5", or "5-3".
func Runs(tries, waits int) string {
	if waits == 0 {
		return strconv.Itoa(tries)
	}
	return strconv.Itoa(tries) + "-" + strconv.Itoa(waits)
}

// ParseTried reads what a store keeps of a Tried, "tries crashes notbefore error", the tries as [Runs] says them. now is
// the present instant, and store the same by the store's clock, whose the third is: in
// milliseconds since 1970.
func ParseTried(s string, now time.Time, store int64) (t Tried, err error) {
	part := strings.SplitN(s, " ", 4)
	if len(part) < 4 {
		return t, fmt.Errorf("%q is not of four words: tries crashes notbefore error", s)
	}
	var at int64
	var errs [4]error
	tries, waits, waited := strings.Cut(part[0], "-")
	t.Tries, errs[0] = strconv.Atoi(tries)
	if waited {
		if t.Waits, errs[3] = strconv.Atoi(waits); errs[3] == nil && (t.Waits < 1 || t.Waits > t.Tries) {
			errs[3] = fmt.Errorf("%d of %d runs waited", t.Waits, t.Tries)
		}
	}
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
	Waits int           // of Retry: how many of its runs waited
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
