// Package queue puts mails into the queue: generated ones, or those of a file of
// JSON lines.
package queue

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"

	"github.com/countoff/countoff/examples/mail-sender/mail"
	"github.com/countoff/countoff/sources/redissource"
)

// batch is how many mails travel together, at most.
const batch = 500

// maxLine is the longest line of a file: a mail with its bodies, no attachments.
const maxLine = 16 << 20

// Generate makes n mails to recipients different addresses, in an order that seed
// decides. Subjects number the mails of one recipient from 0, so that a reader can
// see their order.
func Generate(n, recipients int, seed uint64) iter.Seq2[mail.Mail, error] {
	return func(yield func(mail.Mail, error) bool) {
		random := rand.New(rand.NewPCG(seed, 0))
		next := make(map[int]int) // of those that were chosen: recipients may be any number
		for range n {
			r := random.IntN(max(recipients, 1))
			m := mail.Mail{
				To:      mail.Addresses{fmt.Sprintf("user-%03d@example.com", r)},
				Subject: fmt.Sprintf("mail %d", next[r]),
				Text:    "Sent by countoff's mail-sender.\n",
			}
			next[r]++
			if !yield(m, nil) {
				return
			}
		}
	}
}

// A LineError says what is wrong with a line of a file.
type LineError struct {
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

// ErrPause is no error: the next mail is not there yet, and nobody knows when it comes.
var ErrPause = errors.New("no more mails yet")

// Lines reads mails from JSON lines. A line that is no mail gives a LineError and
// does not end the reading, nor does ErrPause, where the next line has yet to be read;
// another error does.
func Lines(r io.Reader) iter.Seq2[mail.Mail, error] {
	return func(yield func(mail.Mail, error) bool) {
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 256<<10), maxLine)
		more := false // the next line has been read
		s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
			advance, line, err := bufio.ScanLines(data, atEOF)
			more = bytes.IndexByte(data[advance:], '\n') >= 0
			return advance, line, err
		})
		line := 0
		for s.Scan() {
			line++
			if len(bytes.TrimSpace(s.Bytes())) > 0 {
				m, err := mail.Decode(s.Bytes())
				if err != nil {
					err = &LineError{Line: line, Err: err}
				}
				if !yield(m, err) {
					return
				}
			}
			if !more && !yield(mail.Mail{}, ErrPause) {
				return
			}
		}
		if err := s.Err(); err != nil {
			yield(mail.Mail{}, fmt.Errorf("line %d: %w", line+1, err))
		}
	}
}

// A Report counts what became of mails.
type Report struct {
	Enqueued   int
	Duplicates int // their id waits or runs already
	Refused    int // lines that are no mail
}

// Message returns m as a task.
func Message(m mail.Mail) (redissource.Message, error) {
	payload, err := json.Marshal(m)
	if err != nil {
		return redissource.Message{}, err
	}
	return redissource.Message{ID: m.ID, Unique: m.ID != "", Type: mail.Type, Key: m.Key(), Payload: payload}, nil
}

// Enqueue puts mails into the queue, in their order: many together where they come fast, and
// what has come at each ErrPause. refused is told of each line
// that is no mail, progress after each batch. It stops at the first other error, or
// when ctx ends: then after the batch that is on its way, so that of no mail it is
// unknown. The report counts what the store has answered for.
func Enqueue(ctx context.Context, p *redissource.Producer, mails iter.Seq2[mail.Mail, error], refused func(error), progress func(Report)) (Report, error) {
	var report Report
	var waiting []redissource.Message
	flush := func() error {
		if len(waiting) == 0 {
			return nil
		}
		results, err := p.Enqueue(context.WithoutCancel(ctx), waiting...) // within the producer's timeout
		for _, r := range results {
			switch {
			case r.Err != nil:
			case r.Duplicate:
				report.Duplicates++
			default:
				report.Enqueued++
			}
		}
		waiting = waiting[:0]
		progress(report)
		return err
	}
	for m, err := range mails {
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		var line *LineError
		switch {
		case errors.As(err, &line):
			report.Refused++
			refused(err)
			continue
		case errors.Is(err, ErrPause):
			if err := flush(); err != nil {
				return report, err
			}
			continue
		case err != nil:
			return report, err
		}
		message, err := Message(m)
		if err != nil {
			return report, err
		}
		if waiting = append(waiting, message); len(waiting) == batch {
			if err := flush(); err != nil {
				return report, err
			}
		}
	}
	return report, flush()
}
