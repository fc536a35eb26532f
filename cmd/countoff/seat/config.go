package seat

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/framework"
)

// A Config says what command holds the seat.
type Config struct {
	Name    string
	Units   framework.UnitsConfig // without a Handler
	Command []string
	// Signal is sent to the command, beside the line on its input, when a unit leaves, and if
	// OnChange is set also when one comes. Nil: none.
	Signal   os.Signal
	OnChange bool
	// Drain is how long the command may take to release a unit, and to end in the end.
	Drain time.Duration
	// Health says how this peer is; without a Command it is well.
	Health Health
	// Out and Err are the command's; Err gets what the seat has to say, too.
	Out, Err io.Writer
	// Guard is how the guard is started: a program and its arguments. The command follows.
	Guard []string
}

// A Health is a command that says how the peer is: it ends with 0 if that is well. One that is
// not keeps its seat and hands its units over; see framework.WithHealth.
type Health struct {
	Command string        // for sh -c
	Every   time.Duration // pause between two runs
	Timeout time.Duration // what a run may take; then it is killed, and the peer not well
}

// An ExitError says that the command ended by itself, and not well.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the command ended with code %d", e.Code) }

// ErrWrong means that what the peer was told is wrong: to try again cannot help.
var ErrWrong = errors.New("the seat cannot be held")

// ErrStart means that the command cannot be started.
var ErrStart = errors.New("the command cannot be started")

// mostUnits is how long COUNTOFF_UNITS may get: the system takes no longer variable.
const mostUnits = 100 << 10

const (
	nameVariable     = "COUNTOFF_NAME"
	indexVariable    = "COUNTOFF_INDEX"
	replicasVariable = "COUNTOFF_REPLICAS"
	ackVariable      = "COUNTOFF_ACK_FD"
	unitsVariable    = "COUNTOFF_UNITS"
	tokensVariable   = "COUNTOFF_TOKENS"
)

// Variables are those that a command has of its seat.
var Variables = []string{nameVariable, indexVariable, replicasVariable, ackVariable, unitsVariable, tokensVariable}

// environment is that of the command at its start.
func environment(name string, index, replicas int, units []framework.Unit) []string {
	env := []string{
		nameVariable + "=" + name,
		fmt.Sprintf("%s=%d", indexVariable, index),
		fmt.Sprintf("%s=%d", replicasVariable, replicas),
		ackVariable + "=3",
	}
	var names, tokens []string
	for _, u := range units {
		names = append(names, u.Name)
		tokens = append(tokens, u.Token.String())
	}
	for variable, all := range map[string][]string{unitsVariable: names, tokensVariable: tokens} {
		if text := strings.Join(all, "\n"); len(text) <= mostUnits {
			env = append(env, variable+"="+text)
		}
	}
	return append(inherited(), env...)
}

// inherited is the environment of this process without the units of the command of another countoff
// run, which this one may be: where ours are too long, those would stand for them.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, unitsVariable+"=") || strings.HasPrefix(v, tokensVariable+"=")
	})
}

// The words of the lines on the command's input.
const (
	wordPlace   = "place"   // place INDEX REPLICAS
	wordAdded   = "added"   // added TOKEN UNIT
	wordMoved   = "moved"   // moved TOKEN UNIT: another peer is to have it
	wordRemoved = "removed" // removed TOKEN UNIT: it is not in the list any more
)

// wordReleased is the word of the command's answer: released TOKEN UNIT.
const wordReleased = "released"

func line(word string, u framework.Unit) string { return word + " " + u.Token.String() + " " + u.Name }
