package meter

import (
	"errors"
	"fmt"
	"strconv"
)

// payloadSize is the length of every payload in bytes.
const payloadSize = 200

const (
	head   = `{"n":"`
	digits = 10
	filler = `","text":"`
	tail   = `"}`
)

// Payload returns the payload of task n: JSON of payloadSize bytes with n in it.
func Payload(n int) []byte {
	b := make([]byte, 0, payloadSize)
	b = append(b, head...)
	b = fmt.Appendf(b, "%0*d", digits, n)
	b = append(b, filler...)
	for len(b) < payloadSize-len(tail) {
		b = append(b, 'a'+byte(len(b)%26))
	}
	return append(b, tail...)
}

// Number returns the number of the task with this payload.
func Number(payload []byte) (int, error) { return index(payload) }

// errPayload means that what came is not what was sent.
var errPayload = errors.New("not a payload of the benchmark")

// index reads the number of a task from its payload, without an allocation.
func index[T string | []byte](payload T) (int, error) {
	if len(payload) != payloadSize || string(payload[:len(head)]) != head {
		return 0, errPayload
	}
	n := 0
	for i := len(head); i < len(head)+digits; i++ {
		c := payload[i]
		if c < '0' || c > '9' {
			return 0, errPayload
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}

// Key returns one of 10,000 keys, in turn.
func Key(n int) string { return "customer-" + strconv.Itoa(n%10_000) }
