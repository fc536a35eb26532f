package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// A Writer appends records to a file. It may be used concurrently.
type Writer struct{ file *os.File }

// Create opens the journal at path, which must not exist.
func Create(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{f}, nil
}

// Write appends r. When it returns, r outlives the process. A process whose journal
// cannot be written must not go on: Write panics.
func (w *Writer) Write(r Record) {
	if _, err := w.file.Write(r.Append(nil)); err != nil {
		panic(fmt.Errorf("journal: %w", err))
	}
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Read calls each for every record of the journal at path. A last line without an
// end, which a process left that died in a write, is no record.
func Read(path string, each func(Record)) error {
	return ReadUntil(path, func(r Record) error {
		each(r)
		return nil
	})
}

// ReadUntil is Read, until each returns an error, which it returns.
func ReadUntil(path string, each func(Record) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("journal: read %s: %w", path, err)
		}
		r, err := Parse(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := each(r); err != nil {
			return err
		}
	}
}
