package partition

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Pause says that nobody works under a name until it is resumed. The zero value is none.
type Pause struct {
	Since time.Time // to the millisecond, by the clock of whoever said it
	Why   string    // for people; one line of at most [MaxWhy] bytes without spaces around it, or empty
}

// MaxWhy is how long a reason may be, in bytes: every peer reads it.
const MaxWhy = 200

// Check returns an error if p cannot be written down.
func (p Pause) Check() error {
	if p == (Pause{}) {
		return nil
	}
	if p.Since.UnixMilli() <= 0 {
		return errors.New("partition: a pause has to say since when")
	}
	return checkWhy(p.Why)
}

func checkWhy(why string) error {
	if len(why) > MaxWhy || strings.TrimSpace(why) != why || !utf8.ValidString(why) || strings.ContainsFunc(why, unicode.IsControl) {
		return fmt.Errorf("partition: reason %.80q: want one line of text, at most %d bytes, without spaces around it", why, MaxWhy)
	}
	return nil
}

// String returns what [ParsePause] reads, "" of none.
func (p Pause) String() string {
	if p == (Pause{}) {
		return ""
	}
	return strings.TrimSpace(strconv.FormatInt(p.Since.UnixMilli(), 10) + " " + p.Why)
}

// ParsePause reads what [Pause.String] printed. What it does not understand is a pause all the same, since
// when and why unknown: a peer that cannot read whether it may work does not.
func ParsePause(s string) Pause {
	if s == "" {
		return Pause{}
	}
	since, why, _ := strings.Cut(s, " ")
	ms, _ := strconv.ParseInt(since, 10, 64)
	return Pause{Since: time.UnixMilli(max(ms, 1)).UTC(), Why: why}
}
