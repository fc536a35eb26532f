package partition

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Drain says that one peer is to have nothing until it is recalled: others take over what it has.
type Drain struct {
	Peer  string    // its id, under which it may come and go
	Since time.Time // to the millisecond, by the clock of whoever said it
	Why   string    // for people, as that of a [Pause]
}

// MaxDrains is how many peers of a name may be drained at once: all orders are read with each census, and
// those that nobody remembers must not pile up.
const MaxDrains = 64

// ErrDrains means that MaxDrains peers are drained already.
var ErrDrains = fmt.Errorf("%d peers are drained already: recall those that are gone for good", MaxDrains)

// Check returns an error if d cannot be written down.
func (d Drain) Check() error {
	var errSince error
	if d.Since.UnixMilli() <= 0 {
		errSince = errors.New("partition: a drain has to say since when")
	}
	return errors.Join(CheckPeer(d.Peer), errSince, checkWhy(d.Why))
}

// String returns a line of what [ParseDrains] reads: since when, who and why, with tabs between them.
func (d Drain) String() string {
	return strings.TrimSuffix(strconv.FormatInt(d.Since.UnixMilli(), 10)+"\t"+d.Peer+"\t"+d.Why, "\t")
}

// PrintDrains prints drains one a line.
func PrintDrains(all []Drain) string {
	lines := make([]string, len(all))
	for i, d := range all {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// ParseDrains reads what [PrintDrains] printed. A line that names nobody is none: a census that failed because
// of it would keep every later roll from being sealed.
func ParseDrains(text string) (all []Drain) {
	for line := range strings.SplitSeq(text, "\n") {
		since, rest, _ := strings.Cut(line, "\t")
		peer, why, _ := strings.Cut(rest, "\t")
		if peer == "" {
			continue
		}
		ms, _ := strconv.ParseInt(since, 10, 64)
		all = append(all, Drain{Peer: peer, Since: time.UnixMilli(max(ms, 1)).UTC(), Why: why})
	}
	return all
}

// Drains returns the drain of the peer with that id, and whether there is one.
func (c Config) Drains(peer string) (Drain, bool) {
	i := slices.IndexFunc(c.Drained, func(d Drain) bool { return d.Peer == peer })
	if i < 0 {
		return Drain{}, false
	}
	return c.Drained[i], true
}

// WithDrain returns all with d, unless its peer is drained already: of two the first counts.
func WithDrain(all []Drain, d Drain) ([]Drain, error) {
	if _, stands := (Config{Drained: all}).Drains(d.Peer); stands {
		return all, nil
	}
	if len(all) >= MaxDrains {
		return all, ErrDrains
	}
	return append(slices.Clone(all), d), nil
}

// WithoutDrain returns all but that of peer.
func WithoutDrain(all []Drain, peer string) []Drain {
	return slices.DeleteFunc(slices.Clone(all), func(d Drain) bool { return d.Peer == peer })
}
