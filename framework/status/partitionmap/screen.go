package partitionmap

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Screen shows frames one over the other in a terminal.
type Screen struct {
	out    io.Writer
	size   func() (width, height int, err error)
	drawn  int // lines of the frame that stands there
	widest int // columns of the longest of them
	// Width and Height of the terminal, as Fit or Draw saw it last.
	Width, Height int
}

// NewScreen returns a screen on f, or nil if f is no terminal that can show frames.
func NewScreen(f *os.File) *Screen {
	size := func() (int, int, error) { return term.GetSize(int(f.Fd())) }
	width, height, err := size()
	if err != nil || width < 40 || height < 10 || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Screen{out: f, size: size, Width: width, Height: height}
}

// Columns returns how many columns the terminal f has, also one that is too small for a [Screen]; 0 if it is none.
func Columns(f *os.File) int {
	width, _, _ := term.GetSize(int(f.Fd())) // 0 with an error
	return width
}

// Fit takes the size that the terminal has by now. It is for frames that are made for a width,
// such as a Map's; Draw does it too.
func (s *Screen) Fit() {
	if s.size == nil {
		return
	}
	// A terminal that tells no size has the one it had.
	if width, height, err := s.size(); err == nil && width > 1 && height > 1 {
		s.Width, s.Height = width, height
	}
}

// Colour reports whether the screen's user wants colour.
func (s *Screen) Colour() bool { return os.Getenv("NO_COLOR") == "" }

// Draw replaces the frame that stands there. Lines that do not fit are folded, and those
// with colours cut: one that the terminal wraps would leave its rest behind. Of story, which stands
// below the frame, the first lines are left out where there is no room for all; its last line has room
// before the end of the frame has.
func (s *Screen) Draw(frame []string, story ...string) {
	s.Fit()
	var lines []string
	for _, l := range frame {
		lines = append(lines, fold(l, s.Width-1)...)
	}
	most := s.Height - 1
	room := most
	if len(story) > 0 {
		room = max(1, room-len(fold(story[len(story)-1], s.Width-1)))
	}
	if len(lines) > room {
		shown := max(0, room-1)
		lines = append(lines[:shown:shown], fmt.Sprintf("… %s more: a taller window shows them", Plural(len(lines)-shown, "line")))
	}
	var below []string
	for _, l := range slices.Backward(story) {
		rows := fold(l, s.Width-1)
		if len(lines)+len(rows)+len(below) > most {
			break
		}
		below = slices.Concat(rows, below)
	}
	lines = append(lines, below...)
	var b strings.Builder
	switch {
	case s.drawn > 0 && s.widest >= s.Width:
		// It has become narrower, and whether it wrapped what stood there is not known.
		b.WriteString("\x1b[H\x1b[J")
	case s.drawn > 0:
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	s.widest = 0
	for _, l := range lines {
		l = cut(l, s.Width-1)
		s.widest = max(s.widest, columns(escapes.ReplaceAllString(l, "")))
		b.WriteString("\x1b[2K" + l + "\n")
	}
	b.WriteString("\x1b[J") // what a longer frame left below
	s.drawn = len(lines)
	// A terminal that is gone takes the process with it; there is nobody to tell.
	_, _ = io.WriteString(s.out, b.String())
}

// Keep leaves the frame where it is: the next one begins below it.
func (s *Screen) Keep() { s.drawn = 0 }

var (
	escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	escape  = regexp.MustCompile(`^` + escapes.String())
)

// fold breaks s between words into lines of at most most columns, the further ones indented
// by two more than s. Colours are left as they are.
func fold(s string, most int) []string {
	if strings.Contains(s, "\x1b") {
		return []string{s}
	}
	rest := []rune(s)
	indent := strings.Repeat(" ", min(len(s)-len(strings.TrimLeft(s, " "))+2, most/2))
	var lines []string
	for {
		fits := fitting(rest, most)
		if fits == len(rest) {
			break
		}
		at := fits
		for at > 0 && rest[at] != ' ' {
			at--
		}
		if strings.TrimSpace(string(rest[:at])) == "" {
			// A word that is longer than the line. Of a terminal that has no room for anything the
			// line is too long.
			at = max(fits, 1+slices.IndexFunc(rest, func(r rune) bool { return r != ' ' }))
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(indent + strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}

// cut keeps the first most columns of s; colours take none.
func cut(s string, most int) string {
	var b strings.Builder
	column, coloured := 0, false
	for s != "" {
		if e := escape.FindString(s); e != "" {
			b.WriteString(e)
			coloured = true
			s = s[len(e):]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		if column += columnsOf(r); column > most {
			break
		}
		b.WriteString(s[:size])
		s = s[size:]
	}
	if coloured {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
