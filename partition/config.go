package partition

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"
)

// Defaults and limits of a [Config].
const (
	Protocol     = 1       // version of the ledger and of the log under a partition
	TagsProtocol = 2       // the same, of a name whose partitions ask for tags: who does not know of them is refused
	DefaultTotal = 256     // partitions of a name that nobody chose a number for
	MaxTotal     = 1 << 16 // most partitions of a name
)

// A Hash says how a key finds its partition. All peers and producers of a name
// use the same one.
type Hash string

// The hashes.
const (
	XXHash64 Hash = "xxhash64" // [Of]; the default
	ByID     Hash = "id"       // [OfID]: the key is a decimal unsigned 64-bit number
	Murmur2  Hash = "murmur2"  // that of Kafka's producers, for topics
)

// Of returns the partition of key among total. It fails if the hash is [ByID] and the key is not
// a decimal number below 2^64. A hash that is none of the three is treated as [XXHash64]: it is
// Config.Validate that refuses it. Of panics if total is not positive.
func (h Hash) Of(key string, total int) (ID, error) {
	switch h {
	case ByID:
		n, ok := decimal(key)
		if !ok {
			return 0, fmt.Errorf("partition: key %q: the hash %q wants a decimal number below 2^64", key, ByID)
		}
		return OfID(n, total), nil
	case Murmur2:
		return OfID(uint64(murmur2(key)), total), nil
	}
	return Of(key, total), nil
}

// decimal reads what strconv.ParseUint reads, but allocates nothing for a key that
// is no number.
func decimal(s string) (n uint64, ok bool) {
	for i := range len(s) {
		d := uint64(s[i]) - '0'
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, s != ""
}

// A Config is what all peers and producers of a name agree on. The first of them
// writes it; who differs is refused ([ErrConfig]).
type Config struct {
	// Total is the number of partitions, 0 .. Total-1. Default 256, at most [MaxTotal].
	Total int
	// Hash is how a key finds its partition. Default xxhash64.
	Hash Hash
	// Units are the names of what is granted beside the partitions, such as
	// ingress lists. Their ids count from FirstUnit in the order of the sorted
	// names.
	Units []string
	// Requires are the tags that partitions and units ask of their owners. Peers and
	// producers do not say them: they stand with the name, and may be changed while it is
	// in use.
	Requires []Requirement
	// Paused says that nobody is to work, and since when; zero: it is not paused. It stands with the
	// name as Requires do.
	Paused Pause
	// Drained are the peers that are to have nothing, the one first that was drained first. They stand with the
	// name as Requires do.
	Drained []Drain
}

// WithDefaults returns c with zero fields filled in and Units sorted and unique.
func (c Config) WithDefaults() Config {
	if c.Total == 0 {
		c.Total = DefaultTotal
	}
	if c.Hash == "" {
		c.Hash = XXHash64
	}
	c.Units = slices.Compact(slices.Sorted(slices.Values(c.Units)))
	return c
}

// Validate says all that is wrong with c, apart from Requires, Paused and Drained, which have checks of their own.
// It fills in no defaults: a zero Config is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Total < 1 || c.Total > MaxTotal {
		errs = append(errs, fmt.Errorf("partition: %d partitions: want 1 to %d", c.Total, MaxTotal))
	}
	if c.Hash != XXHash64 && c.Hash != ByID && c.Hash != Murmur2 {
		errs = append(errs, fmt.Errorf("partition: hash %q: want %q, %q or %q", c.Hash, XXHash64, ByID, Murmur2))
	}
	for _, unit := range c.Units {
		errs = append(errs, CheckUnit(unit)) // UnitsHash takes a line for each
	}
	return errors.Join(errs...)
}

// UnitsHash identifies the list of units: peers with other lists are refused.
func (c Config) UnitsHash() string {
	if len(c.Units) == 0 {
		return "-"
	}
	return strconv.FormatUint(xxhash.Sum64String(strings.Join(c.Units, "\n")), 16)
}

// IDs returns every ID there is to grant: the partitions, then the units.
func (c Config) IDs() []ID {
	ids := make([]ID, 0, c.Total+len(c.Units))
	for i := range c.Total {
		ids = append(ids, ID(i))
	}
	for i := range c.Units {
		ids = append(ids, FirstUnit+ID(i))
	}
	return ids
}

// Unit returns the name of the unit id, or "" if there is none.
func (c Config) Unit(id ID) string {
	if i := int(id - FirstUnit); i >= 0 && i < len(c.Units) {
		return c.Units[i]
	}
	return ""
}

// ErrConfig means that the name is in use with another partition count, hash,
// list of units or protocol. Retrying cannot help.
var ErrConfig = errors.New("the name is in use with another configuration")

// wordRule is what a name or a tag may be.
var wordRule = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// CheckName says what is wrong with name as the name of a task processing: it is 1 to 64 characters out
// of A-Z a-z 0-9 . _ -
func CheckName(name string) error {
	if wordRule.MatchString(name) {
		return nil
	}
	return fmt.Errorf("partition: name %q: want 1 to 64 characters out of A-Z a-z 0-9 . _ -", name)
}

// A Named knows the name that it was made for: a ledger, a source, a store of progress.
type Named interface {
	// Name returns it; empty: it does not know.
	Name() string
}

// ErrName means that what belongs to one name was made for two.
var ErrName = errors.New("give all of them one name")

// Absent reports whether part is nil, as an interface or as the pointer in it, which has nothing to call:
// what a constructor returns beside an error.
func Absent(part any) bool {
	r := reflect.ValueOf(part)
	return part == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// SameName returns an error that wraps ErrName if part, which is called what, is [Named] and was
// made for another name. Peers that count off under one name and look for their tasks under another
// share out what is not theirs: there are partitions that nobody works on and nobody misses.
func SameName(name, what string, part any) error {
	named, ok := part.(Named)
	if !ok || Absent(part) || named.Name() == "" || named.Name() == name {
		return nil
	}
	return fmt.Errorf("partition: the %s was made for the name %q, not for %q: %w", what, named.Name(), name, ErrName)
}

// mostPeer is how long the id of a peer may be: as long as the name of a host.
const mostPeer = 255

// CheckPeer says what is wrong with id as the id of a peer. It is for people, who read it in
// terminals and logs, so that all of it must be seen: no control characters or line feeds, nothing
// that turns the direction of text around, no space at its ends. Names of hosts and pods, UUIDs
// and "host:port" are ids; "_" is none, and it has 255 bytes at most.
func CheckPeer(id string) error {
	ok := id != "" && len(id) <= mostPeer && strings.ToValidUTF8(id, "") == id && strings.TrimSpace(id) == id &&
		id != "_" // a row of the table of units: see package redisledger
	for _, r := range id {
		// Some that count as letters and symbols are blank, and some marks are never drawn.
		ok = ok && strconv.IsPrint(r) && r != '\u2800' &&
			!unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
	}
	if ok {
		return nil
	}
	return fmt.Errorf("partition: peer id %.40q: want 1 to %d bytes of UTF-8 that can be seen (letters, digits, punctuation, symbols, "+
		"spaces between them), and not _ alone, under which the table of units has those of nobody", id, mostPeer)
}

// mostUnit is how long the name of a unit of work may be.
const mostUnit = 1 << 16

// CheckUnit says what is wrong with the name of a unit of work. It is a line of text for programs
// in any language, and may stand in their environment: not empty, at most 65,536 bytes, and
// without line feed, carriage return and NUL.
func CheckUnit(unit string) error {
	switch {
	case unit == "":
		return errors.New("partition: unit: it is empty")
	case len(unit) > mostUnit:
		return fmt.Errorf("partition: unit %.40q…: it has %d bytes, want at most %d", unit, len(unit), mostUnit)
	case strings.ContainsAny(unit, "\n\r\x00"):
		return fmt.Errorf("partition: unit %.40q: want no line feed, carriage return or NUL", unit)
	}
	return nil
}
