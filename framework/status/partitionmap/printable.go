package partitionmap

import (
	"strings"
	"unicode"
)

// Printable is s as one line of a terminal may have it. Ids, keys and reasons are the text of
// other programs: an escape sequence in one would move the cursor, or hide what is wrong.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

func printable(lines []string) []string {
	for i, l := range lines {
		lines[i] = Printable(l)
	}
	return lines
}
