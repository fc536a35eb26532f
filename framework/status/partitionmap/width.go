package partitionmap

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns is how many columns of a terminal s takes.
func columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// columnsOf is how many r takes. Terminals differ in what they make of several that are one
// sign, as flags and families: what is said here is the most, so that no line is too long.
func columnsOf(r rune) int {
	switch {
	case r < unicode.MaxASCII:
		return 1
	case r == '\ufe0f': // makes a sign of one column an emoji, which has two
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me): // stand over the one before
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// fitting is how many of runes fit in most columns, from the first on.
func fitting(runes []rune, most int) int {
	for i, r := range runes {
		if most -= columnsOf(r); most < 0 {
			return i
		}
	}
	return len(runes)
}

// Room is how many columns of a terminal s takes as [Column] prints it.
func Room(s string) int { return columns(Printable(s)) }

// Column is s as one cell of a table: printable, filled up to least columns, and without its
// middle where it has more than most.
func Column(s string, least, most int) string {
	s = clip(Printable(s), most)
	return s + strings.Repeat(" ", max(0, least-columns(s)))
}

// clip leaves out the middle: ids of peers differ at their ends.
func clip(s string, most int) string {
	if columns(s) <= most {
		return s
	}
	r := []rune(s)
	head := fitting(r, most/2-1)
	tail, room := len(r), most/2
	for tail > head && columnsOf(r[tail-1]) <= room {
		tail--
		room -= columnsOf(r[tail])
	}
	for tail < len(r) && columnsOf(r[tail]) == 0 { // it would stand over the dots
		tail++
	}
	return string(r[:head]) + "…" + string(r[tail:])
}
