package partition

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// An ID names a share of the work. Partitions are 0 .. total-1; units that are
// not partitions (ingress lists) are granted like partitions and count from
// [FirstUnit].
type ID int32

// FirstUnit is the ID of the first unit that is not a partition.
const FirstUnit ID = 1 << 20

// IsUnit reports whether the ID names a unit rather than a partition.
func (id ID) IsUnit() bool { return id >= FirstUnit }

func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// An Epoch numbers the grants of a name. A greater epoch fences every lesser
// one. Zero was never granted.
type Epoch uint64

func (e Epoch) String() string { return strconv.FormatUint(uint64(e), 10) }

// A Session is one run of one peer: a random 128-bit nonce, never used again.
// Peer ids may come back after a restart, sessions never do. The empty session is
// nobody.
type Session string

// A Grant is the right to work on a partition. It prints as 17@4021, in logs,
// errors and stores alike.
type Grant struct {
	ID    ID
	Epoch Epoch
}

func (g Grant) String() string {
	return strconv.FormatInt(int64(g.ID), 10) + "@" + strconv.FormatUint(uint64(g.Epoch), 10)
}

// ParseGrant reads what [Grant.String] wrote.
func ParseGrant(s string) (Grant, error) {
	id, epoch, ok := strings.Cut(s, "@")
	if !ok {
		return Grant{}, fmt.Errorf("partition: grant %q: want partition@epoch, as in 17@4021", s)
	}
	n, err := strconv.ParseInt(id, 10, 32)
	if err != nil || n < 0 {
		return Grant{}, fmt.Errorf("partition: grant %q: %q is no partition number", s, id)
	}
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil || e == 0 {
		return Grant{}, fmt.Errorf("partition: grant %q: %q is no epoch", s, epoch)
	}
	return Grant{ID: ID(n), Epoch: Epoch(e)}, nil
}

// A Token is the fence: it is stored beside the data of a partition and compared
// whole. Handlers get it so that a sink of theirs can refuse smaller epochs.
type Token struct {
	Epoch   Epoch
	Session Session
}

// IsZero reports whether the token is nobody's.
func (t Token) IsZero() bool { return t.Epoch == 0 }

// String prints epoch:session, epoch first so that a sink can compare numbers.
func (t Token) String() string {
	return strconv.FormatUint(uint64(t.Epoch), 10) + ":" + string(t.Session)
}

// ParseToken reads what [Token.String] wrote.
func ParseToken(s string) (Token, error) {
	epoch, session, ok := strings.Cut(s, ":")
	if !ok || session == "" {
		return Token{}, fmt.Errorf("partition: token %q: want epoch:session", s)
	}
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil || e == 0 {
		return Token{}, fmt.Errorf("partition: token %q: %q is no epoch", s, epoch)
	}
	return Token{Epoch: Epoch(e), Session: Session(session)}, nil
}

// Of returns the partition of key among total: xxhash64 of the key, seed 0,
// unsigned modulo total. It panics if total is not positive.
func Of(key string, total int) ID {
	return OfID(xxhash.Sum64String(key), total)
}

// OfID returns the partition of a numeric key: id modulo total. It panics if
// total is not positive.
func OfID(id uint64, total int) ID {
	if total <= 0 {
		panic("partition: total must be positive")
	}
	t := uint64(total)
	if t&(t-1) == 0 { // the default is a power of two, and a division costs more than the hash
		return ID(id & (t - 1))
	}
	return ID(id % t)
}
