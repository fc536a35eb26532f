package redissource

import (
	"errors"
	"net"
)

// readBytes is about the most that is read at once: a client waits for the whole of a reply no
// longer than for a small one.
const readBytes = 16 << 20

// A portion says how many elements to read at once. It is reckoned by what the last ones weighed;
// the zero value knows of none.
type portion struct {
	each int
	most int // of late; 0: nothing was
}

// of returns how many to ask for where limit are wanted.
func (p *portion) of(limit int) int {
	if p.each > 0 {
		limit = min(limit, max(1, readBytes/p.each))
	}
	if p.most > 0 {
		limit = min(limit, p.most)
	}
	return limit
}

// weighed takes in what n elements weighed.
func (p *portion) weighed(n, bytes int) {
	if n > 0 {
		p.each = bytes / n
	}
}

// failed takes in that n elements were asked for in vain. They may weigh more than can be read in
// the time, however often it is tried: next time it is half as many.
func (p *portion) failed(n int) {
	if n > 0 {
		p.each = max(p.each, 2*readBytes/n)
	}
}

// late takes in that a read of n elements ended with err, and reports whether to read again: no more
// than half as many from now on. What came before may have been light, and these too heavy to arrive
// in the time. It is for who would otherwise begin anew, and come to the same place.
func (p *portion) late(n int, err error) bool {
	var timeout net.Error
	if n < 2 || !errors.As(err, &timeout) || !timeout.Timeout() {
		return false
	}
	p.most = n / 2
	return true
}

// weigh takes in what elements weighed.
func (p *portion) weigh(elements []string) {
	bytes := 0
	for _, e := range elements {
		bytes += len(e)
	}
	p.weighed(len(elements), bytes)
}

// fits returns how many of the first elements, one at least, are not too many for one request. size
// says what element i weighs.
func fits(n int, size func(i int) int) int {
	bytes := size(0)
	for i := 1; i < n; i++ {
		if bytes += size(i); bytes > readBytes {
			return i
		}
	}
	return n
}

// unweighed is the portion of who does not know what to expect: small at first.
var unweighed = portion{each: readBytes / 16}

// pages reads a list, at most limit elements at once, until read returns fewer than it was asked
// for. Where read returns an error, what it has read does not count.
func pages(limit int, read func(from, to int64) ([]string, error)) error {
	p := unweighed
	for from := int64(0); ; {
		n := p.of(limit)
		page, err := read(from, from+int64(n)-1)
		if p.late(n, err) {
			continue
		}
		if err != nil || len(page) < n {
			return err
		}
		p.weigh(page)
		from += int64(len(page))
	}
}
