package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tags are what a member has, or what a partition asks for: words in ascending order,
// separated by blanks. The empty value is none.
type Tags string

// ParseTags reads words that are separated by commas or blanks, in any order. A word is as a name is, see
// [CheckName].
func ParseTags(s string) (Tags, error) {
	words := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	for _, w := range words {
		if !wordRule.MatchString(w) {
			return "", fmt.Errorf("partition: tag %q: want 1 to 64 characters out of A-Z a-z 0-9 . _ -", w)
		}
	}
	slices.Sort(words)
	return Tags(strings.Join(slices.Compact(words), " ")), nil
}

// Has reports whether every word of asked is among those of t.
func (t Tags) Has(asked Tags) bool {
	for w := range strings.FieldsSeq(string(asked)) {
		if !slices.Contains(strings.Fields(string(t)), w) {
			return false
		}
	}
	return true
}

// String returns the words with commas between them.
func (t Tags) String() string { return strings.ReplaceAll(string(t), " ", ",") }

// A Requirement says which tags the partitions First to Last ask of their owner, or the
// unit Unit if that is not empty.
type Requirement struct {
	First, Last ID
	Unit        string
	Tags        Tags
}

// ParseRequirement reads "7=gpu", "0-15=gpu,eu" or "NAME=eu", where NAME is a unit's.
func ParseRequirement(s string) (Requirement, error) {
	i := strings.LastIndex(s, "=")
	tags, err := ParseTags(s[i+1:])
	if i < 1 || tags == "" || err != nil {
		return Requirement{}, errors.Join(fmt.Errorf("partition: requirement %q: want FIRST-LAST=TAGS, PARTITION=TAGS or UNIT=TAGS", s), err)
	}
	what := s[:i]
	first, last, ranged := strings.Cut(what, "-")
	if !ranged {
		last = first
	}
	a, numberA := decimal(first)
	b, numberB := decimal(last)
	if !numberA || !numberB {
		return Requirement{Unit: what, Tags: tags}, nil
	}
	if b < a || b >= MaxTotal {
		return Requirement{}, fmt.Errorf("partition: requirement %q: want partitions of 0 to %d, the least first", s, MaxTotal-1)
	}
	return Requirement{First: ID(a), Last: ID(b), Tags: tags}, nil
}

// String returns what ParseRequirement reads.
func (r Requirement) String() string {
	switch {
	case r.Unit != "":
		return r.Unit + "=" + r.Tags.String()
	case r.First == r.Last:
		return fmt.Sprintf("%v=%v", r.First, r.Tags)
	}
	return fmt.Sprintf("%v-%v=%v", r.First, r.Last, r.Tags)
}

// Check returns an error if r cannot be written down: it would be read as something else, or
// not at all. A unit whose name is a number is one of those that cannot be asked for.
func (r Requirement) Check() error {
	if r.Unit != "" {
		if err := CheckUnit(r.Unit); err != nil { // stores have requirements one a line
			return err
		}
	}
	text := r.String()
	read, err := ParseRequirement(text)
	if err == nil && read != r {
		err = fmt.Errorf("partition: requirement %q: it would be read as another: want tags as ParseTags returns them, and a unit whose name is no number or range", text)
	}
	return err
}

// CheckRequirements returns all that is wrong with any of them.
func CheckRequirements(all []Requirement) error {
	var errs []error
	for _, r := range all {
		errs = append(errs, r.Check())
	}
	return errors.Join(errs...)
}

// Asks returns the tags that id asks of its owner: all that the requirements say of it.
func (c Config) Asks(id ID) Tags {
	var all []string
	for _, r := range c.Requires {
		if r.Unit == "" && r.First <= id && id <= r.Last || r.Unit != "" && r.Unit == c.Unit(id) {
			all = append(all, string(r.Tags))
		}
	}
	if len(all) < 2 {
		return Tags(strings.Join(all, ""))
	}
	words := strings.Fields(strings.Join(all, " "))
	slices.Sort(words)
	return Tags(strings.Join(slices.Compact(words), " "))
}

// Assign shares all ids of c out by s so that each goes to a member that has what it
// asks for. Ids that ask for the same are one group: s shares it out among those who
// have that, as if there were no others, so that what s promises of evenness and
// movement it keeps within each group. An id that no living member is eligible for is
// not in the table.
func Assign(s Strategy, c Config, members []Member, previous Table) Table {
	groups := make(map[Tags][]ID)
	for _, id := range c.IDs() {
		asks := c.Asks(id)
		groups[asks] = append(groups[asks], id)
	}
	table := make(Table)
	for _, asks := range slices.Sorted(maps.Keys(groups)) {
		ids := groups[asks]
		// Who is nobody's session stands for a seat that is free, and of which it is not known who had it:
		// it keeps the others in their places in each group.
		eligible := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Session != "" && !m.Tags.Has(asks) })
		maps.Copy(table, s.Assign(ids, eligible, previous))
	}
	return table
}
