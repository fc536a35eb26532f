// Package wire reads what asynq has encoded, as protobuf does, without its code: the
// tasks' messages and what its servers say of themselves.
package wire

import (
	"encoding/binary"
	"errors"
	"slices"
)

// ErrBroken means that something is not the encoding of a message.
var ErrBroken = errors.New("wire: it is not the encoding of a message")

// mostField is the greatest number that a field may have.
const mostField = 1<<29 - 1

// Fields walks over the fields of an encoded message: n is the value of a number, s of
// everything that has a length. It ends with the first error of visit.
func Fields(raw string, visit func(field int, n uint64, s string) error) error {
	for len(raw) > 0 {
		field, n, s, size := next(raw)
		if size == 0 {
			return ErrBroken
		}
		raw = raw[size:]
		if err := visit(field, n, s); err != nil {
			return err
		}
	}
	return nil
}

// Without is an encoded message without some of its fields. What is broken stays.
func Without(raw string, fields ...int) []byte {
	left := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		field, _, _, size := next(raw)
		if size == 0 {
			size = len(raw)
		}
		if !slices.Contains(fields, field) {
			left = append(left, raw[:size]...)
		}
		raw = raw[size:]
	}
	return left
}

// next reads the first field of raw, of so many bytes; 0: it is broken.
func next(raw string) (field int, n uint64, s string, size int) {
	tag, at := uvarint(raw)
	if tag >>= 3; at <= 0 || tag == 0 || tag > mostField {
		return 0, 0, "", 0
	}
	rest := raw[at:]
	switch raw[0] & 7 {
	case 0:
		n, size = uvarint(rest)
	case 1:
		size = 8
	case 5:
		size = 4
	case 2:
		length, prefix := uvarint(rest)
		if prefix <= 0 || length > uint64(len(rest)-prefix) {
			return 0, 0, "", 0
		}
		size = prefix + int(length)
		s = rest[prefix:size]
	}
	if size <= 0 || size > len(rest) {
		return 0, 0, "", 0
	}
	return int(tag), n, s, at + size
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
