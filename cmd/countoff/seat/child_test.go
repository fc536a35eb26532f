//go:build unix

package seat

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
)

// A command that writes whatever it likes stops nobody from hearing what comes after it: the
// guard, too, would wait for room in the pipe, and nothing would be handed over any more.
func TestListenReadsOn(t *testing.T) {
	in := strings.NewReader("released 1:s a\n" + strings.Repeat("x", 3<<20) + "\n\nreleased 1:s b\r\nguard ended")
	var heard []string
	listen(in, func(line string) { heard = append(heard, line) })
	if want := []string{"released 1:s a", "", "released 1:s b\r", "guard ended"}; !slices.Equal(heard, want) {
		t.Errorf("heard %.200q", heard)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%d bytes were not read: %v", len(rest), err)
	}
}

// Where the clock that the processes have in common is the wall clock, it may be set: what an
// earlier order said must not let the command live on by as much.
func TestGuardWhenTheSharedClockIsSet(t *testing.T) {
	own, shared := time.Duration(0), 1000*time.Hour
	g := &guard{clock: func(time.Time) time.Duration { return own }, shared: func() time.Duration { return shared }}
	until := func(d time.Duration) { g.obey(order{orderUntil, int64(shared + d)}) }
	until(10 * time.Second)
	shared -= time.Hour
	own += 5 * time.Second
	until(10 * time.Second)
	if g.until != own+10*time.Second {
		t.Errorf("set back: the ownership stands for %v, want 10s", g.until-own)
	}
	until(time.Second) // said earlier than what was heard before
	if g.until != own+10*time.Second {
		t.Errorf("an earlier instant counts: %v", g.until-own)
	}
}

// What the guard knew of may run out between the end of the ownership and the word of it: the
// command has its time all the same, unless its peer is in a hurry then.
func TestGuardWhenNothingIsOwnedAnyMore(t *testing.T) {
	own := time.Hour
	g := &guard{clock: func(time.Time) time.Duration { return own }, until: own, killAt: own + time.Second}
	own += time.Millisecond
	g.obey(order{orderFree, int64(20 * time.Second)})
	if want := own + 20*time.Second; g.killAt != want || g.until <= want {
		t.Errorf("killed at %v, owned until %v, now is %v", g.killAt, g.until, own)
	}
	g.obey(order{orderEnd, int64(time.Second)})
	if want := own + time.Second; g.killAt != want {
		t.Errorf("in a hurry: killed at %v, now is %v", g.killAt, own)
	}
}

// countoff run inside the command of another countoff run: what is left out as too long is not
// that of the outer one.
func TestUnitsOfAnOuterRunAreNotHandedOn(t *testing.T) {
	t.Setenv(unitsVariable, "of the outer run")
	t.Setenv(tokensVariable, "of the outer run")
	var many []framework.Unit
	for i := range 5000 {
		many = append(many, framework.Unit{Name: fmt.Sprintf("https://example.org/a/long/path/%05d", i), Token: partition.Token{Epoch: 1, Session: "s"}})
	}
	for _, units := range [][]framework.Unit{nil, many[:1], many} {
		for _, v := range environment("inner", 0, 1, units) {
			if strings.Contains(v, "of the outer run") {
				t.Errorf("with %d units its command finds %s", len(units), v)
			}
		}
	}
}
