// Package wire reads what asynq has encoded, as protobuf does, without its code: the
// tasks' messages and what its servers say of themselves.
package wire

import (
	"encoding/binary"
	"errors"
)

// ErrBroken means that something is not the encoding of a message.
var ErrBroken = errors.New("wire: it is not the encoding of a message")

// mostField is the greatest number that a field may have.
const mostField = 1<<29 - 1

// Fields walks over the fields of an encoded message: n is the value of a number, s of
// everything that has a length. It ends with the first error of visit.
func Fields(raw string, visit func(field int, n uint64, s string) error) error {
	for len(raw) > 0 {
		tag, size := uvarint(raw)
		if field := tag >> 3; size <= 0 || field == 0 || field > mostField {
			return ErrBroken
		}
		raw = raw[size:]
		var n uint64
		var s string
		switch tag & 7 {
		case 0:
			n, size = uvarint(raw)
		case 1:
			size = 8
		case 5:
			size = 4
		case 2:
			length, prefix := uvarint(raw)
			if prefix <= 0 || length > uint64(len(raw)-prefix) {
				return ErrBroken
			}
			size = prefix + int(length)
			s = raw[prefix:size]
		default:
			return ErrBroken
		}
		if size <= 0 || size > len(raw) {
			return ErrBroken
		}
		raw = raw[size:]
		if err := visit(int(tag>>3), n, s); err != nil {
			return err
		}
	}
	return nil
}

// uvarint is binary.Uvarint of a string.
func uvarint(s string) (n uint64, size int) {
	for shift := 0; size < len(s) && size < binary.MaxVarintLen64; shift += 7 {
		b := s[size]
		size++
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n, size
		}
	}
	return 0, 0
}
