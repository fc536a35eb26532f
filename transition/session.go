package transition

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/countoff/countoff/partition"
)

// NewSession returns a session that nobody ever had: 128 random bits as 32 hex
// digits.
func NewSession() partition.Session {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return partition.Session(hex.EncodeToString(b[:]))
}
