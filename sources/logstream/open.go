package logstream

import (
	"errors"
	"fmt"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// Open is the Open of a [sources.Source] around what opens its stream. It refuses a token that is
// not of the epoch of g. Of what open fails with, a FencedError is returned as it is, since it says
// what the next grant has to be above, and anything else as an Error.
func Open(g partition.Grant, tok partition.Token, open func() (sources.Stream, error)) (sources.Stream, error) {
	var st sources.Stream
	err := fmt.Errorf("the token %v is not of the grant's epoch", tok)
	if tok.Epoch == g.Epoch && tok.Epoch != 0 {
		st, err = open()
	}
	if err == nil {
		return st, nil
	}
	if fenced, ok := errors.AsType[*sources.FencedError](err); ok {
		return nil, fenced
	}
	return nil, &sources.Error{Op: "open", Grant: g, Err: err}
}
