package asynqsource

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// A KeyFunc says which key a task has that names none itself (see [HeaderKey]): tasks
// of one key run one at a time, in order. An empty key is none; one that is not UTF-8
// counts as the hexadecimal digits of its bytes. It must always say the same of a task,
// and not block. A task on which it panics is archived.
type KeyFunc func(typ string, payload []byte, headers map[string]string) string

// A Config is what a [Source] is told. The zero value is P queues name:0 .. name:P-1.
type Config struct {
	// Queues are existing queues, each a partition, in this order: producers change
	// nothing. All peers have the same list. Default: the queues name:0 .. name:P-1,
	// which [Client] fills by key.
	Queues []string
	// Partitions and Hash are written under the name if nobody has done so, and
	// compared otherwise. Default: what stands there, else 256 and xxhash64. With
	// Queues they are not used.
	Partitions int
	Hash       partition.Hash
	// Ingress are ordinary queues that producers fill as ever; whoever owns one moves
	// its tasks into the queues name:0 .. name:P-1, by their keys. All peers of the
	// name have the same ones. Not with Queues. Default: none.
	Ingress []string
	// Key gives keys to tasks that come without. Default: they have none.
	Key KeyFunc
	// Window is how far a queue is taken ahead: how many tasks are active at once, not counting
	// those that wait behind a key which waits for a retry. Default 1,024, at most 4,096.
	Window int
	// CrashLimit is how many crashes of its peer a task may be charged with; the last
	// of them archives it. Default 3.
	CrashLimit int
	// Connections is how many empty queues are waited on, each on a connection of its
	// own; the others are looked at twice a second. Default 64; negative: none.
	Connections int
	// Plain says what to do about somebody else's asynq.Server on these queues: a plain one,
	// which asks no fence, or a peer of another name. Default Refuse.
	Plain PlainPolicy
	// Found is told of such a server each time it is seen, under [Alarm] and [Refuse] alike. It
	// must not block. Default: nobody is told.
	Found func(Plain)
	// Buried is called when tasks were archived that no handler was given. It must not
	// block. Default: nobody is told.
	Buried func(sources.Buried)
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 1024
	}
	if c.CrashLimit == 0 {
		c.CrashLimit = 3
	}
	if c.Connections == 0 {
		c.Connections = 64
	}
	if c.Plain == "" {
		c.Plain = Refuse
	}
	return c
}

// name gives m a key, if it brings none. A panic must not end the peer: it would end the
// next owner as well.
func (c Config) name(m *message) (err error) {
	if m.key != "" || c.Key == nil {
		return nil
	}
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("asynqsource: Config.Key panicked: %v", why)
		}
	}()
	m.key = c.Key(m.typ, m.payload, m.headers)
	if !utf8.ValidString(m.key) { // an ingress writes it into the message, where text must be UTF-8
		m.key = hex.EncodeToString([]byte(m.key))
	}
	return nil
}

// mostWindow bounds Config.Window: so much may be in one answer, and given back by one script.
const mostWindow = 4096

func (c Config) validate(name string) error {
	var errs []error
	if c.Window < 1 || c.Window > mostWindow {
		errs = append(errs, fmt.Errorf("asynqsource: Window %d: want 1 to %d", c.Window, mostWindow))
	}
	if c.CrashLimit < 1 {
		errs = append(errs, fmt.Errorf("asynqsource: CrashLimit %d: want 1 or more", c.CrashLimit))
	}
	if c.Plain != Refuse && c.Plain != Alarm {
		errs = append(errs, fmt.Errorf("asynqsource: Plain %q: want %q or %q", c.Plain, Refuse, Alarm))
	}
	if len(c.Queues) == 0 {
		errs = append(errs, partition.Config{Total: c.Partitions, Hash: c.Hash}.WithDefaults().Validate())
	} else if c.Partitions != 0 || c.Hash != "" {
		errs = append(errs, errors.New("asynqsource: Partitions and Hash are those of Queues, where these are given: take them out"))
	}
	if len(c.Queues) > 0 && len(c.Ingress) > 0 {
		errs = append(errs, errors.New("asynqsource: Queues are partitions as they are: there is nowhere to move the tasks of an Ingress: take one of the two out"))
	}
	for i, q := range slices.Concat(c.Queues, c.Ingress) {
		switch {
		case strings.TrimSpace(q) == "":
			errs = append(errs, errors.New("asynqsource: a queue without a name: asynq refuses it"))
		case strings.ContainsAny(q, "{}\n"):
			errs = append(errs, fmt.Errorf("asynqsource: queue %q: braces make another hash tag of its keys, asynq does not work with them on a cluster", q))
		case q == queuestat.Mark(name):
			errs = append(errs, fmt.Errorf("asynqsource: queue %q: by this name the servers of %s are told from plain ones: it must stay empty", q, name))
		case i >= len(c.Queues) && ownQueue(name, q):
			errs = append(errs, fmt.Errorf("asynqsource: ingress %q is a queue that tasks of %s are moved to: only queues of other names can be moved", q, name))
		case slices.Contains(slices.Concat(c.Queues, c.Ingress)[:i], q):
			errs = append(errs, fmt.Errorf("asynqsource: queue %q is named twice", q))
		}
	}
	return errors.Join(errs...)
}
