package redissource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
)

// A Side is an end of a list.
type Side uint8

// The sides.
const (
	Right Side = iota // producers LPUSH
	Left              // producers RPUSH
)

func (s Side) String() string {
	if s == Left {
		return "left"
	}
	return "right"
}

// An Ingress is a plain list that any program fills, as in
//
//	LPUSH mail-sender:inbox '{"to":"ann@example.com"}'
//
// and whose lines become tasks, each exactly once, in their order per key. One peer at
// a time owns the list and moves its lines to the partitions' logs. Nothing else may
// take lines from it, and all producers push at the same end: a line pushed at the
// other end, or taken out, while a batch is under way may double lines of that batch.
//
// The payload of a task is its line. A line that the fields do not fit is not lost: it
// becomes a dead letter of partition 0, which [Requeue] pushes to the list again.
type Ingress struct {
	// List is the key of the list, and the name of the unit that peers are granted.
	List string
	// Oldest is the side where the oldest line is. Default Right.
	Oldest Side
	// KeyField names the field of the line, a JSON object, that is the task's key: a
	// string or a number. Default: the tasks have no key and no order.
	KeyField string
	// Key returns the key of a line; KeyField must be empty then. An error, or a panic, makes the
	// line a dead letter. It is called by one goroutine at a time. Default: KeyField says the
	// key.
	Key func(line []byte) (string, error)
	// IDField names the field that is the task's ID. Where it is empty or missing, and
	// by default, the ID is made of the list, an era and the line's position.
	IDField string
	// TypeField names the field that is the task's type; where it is missing, and by
	// default, the type is Type.
	TypeField string
	Type      string

	buried   func(sources.Buried) // Config.Buried
	replicas int                  // Config.Replicas
}

func (in *Ingress) validate() error {
	switch {
	case in.List == "":
		return errors.New("redissource: an ingress without a List")
	case in.Oldest > Left:
		return fmt.Errorf("redissource: ingress %s: Oldest %d: want Right or Left", in.List, in.Oldest)
	case in.Key != nil && in.KeyField != "":
		return fmt.Errorf("redissource: ingress %s: both Key and KeyField are set", in.List)
	}
	if _, err := ingressTag(in.List); err != nil {
		return err
	}
	return nil
}

// validateIngress says all that is wrong with lists that are configured together.
func validateIngress(all []Ingress) error {
	var errs []error
	listOf := make(map[string]string) // by key
	for i := range all {
		list := all[i].List
		errs = append(errs, all[i].validate())
		keys := []string{list}
		if tag, err := ingressTag(list); err == nil {
			keys = append(keys, tag+":fence", tag+":plan")
		}
		for _, key := range keys {
			other, taken := listOf[key]
			if !taken {
				listOf[key] = list
				continue
			}
			if other == list {
				errs = append(errs, fmt.Errorf("redissource: ingress %s: listed twice", list))
			} else {
				errs = append(errs, fmt.Errorf("redissource: ingress %s: the key %s is one of ingress %s too: take another name for one of the lists", list, key, other))
			}
			break
		}
	}
	return errors.Join(errs...)
}

// ownLists refuses lists that are called like a partition of name, or like something of one: their
// fence would be that partition's, and Destroy would take the list for the partition's. So it does with keys of name.
func ownLists(name string, all []Ingress) error {
	errs := []error{redisconfig.CheckLists(name, unitNames(all)...)}
	for i := range all {
		tag, err := ingressTag(all[i].List)
		if err == nil && (ofPartition(tag+":fence", name) || ofPartition(all[i].List, name)) {
			errs = append(errs, fmt.Errorf("redissource: ingress %s: so the keys of a partition of %s are called: take another name for the list", all[i].List, name))
		}
	}
	return errors.Join(errs...)
}

// ofAnother returns the name that stands and has list as a key of one of its partitions, as the log that
// {name:17}:pending is: whoever took its lines would take that name's tasks. "": there is none, or it is not known.
func ofAnother(ctx context.Context, client redis.UniversalClient, list string) string {
	tag, _, closed := strings.Cut(list, "}:")
	at := strings.LastIndex(tag, ":")
	if !closed || at < 0 || !strings.HasPrefix(tag, "{") {
		return ""
	}
	name := tag[1:at]
	id, err := strconv.ParseUint(tag[at+1:], 10, 31)
	if err != nil || partition.CheckName(name) != nil {
		return ""
	}
	ctx, cancel := redisconfig.Half(ctx, client) // the list may be on another node than the one that is asked here
	defer cancel()
	if cfg, err := redisconfig.Read(ctx, client, name); err != nil || int(id) >= cfg.Total {
		return "" // a store that does not answer fails what is asked next
	}
	return name
}

// ingressTag returns what the keys that go with a list begin with: they are of the
// same cluster slot.
func ingressTag(list string) (string, error) {
	_, after, open := strings.Cut(list, "{")
	if tag, _, closed := strings.Cut(after, "}"); open && closed && tag != "" {
		return list, nil // it has a hash tag of its own
	}
	if strings.ContainsAny(list, "{}") {
		return "", fmt.Errorf("redissource: ingress %q: a brace that is no hash tag", list)
	}
	return "{" + list + "}", nil
}

// ingressTags are the tags of those of lists that an owner can have had, by list. Sources
// of another kind take any: one that this one refuses has no keys, and is in nobody's way.
func ingressTags(lists []string) iter.Seq2[string, string] {
	return func(yield func(list, tag string) bool) {
		for _, list := range lists {
			if tag, err := ingressTag(list); err == nil && !yield(list, tag) {
				return
			}
		}
	}
}

// IngressFences returns who may move lines of each of lists now; zero: nobody, or it is not known. The error says
// of which it is not. It is for people and observers, not for decisions.
func IngressFences(ctx context.Context, client redis.UniversalClient, lists []string) ([]partition.Token, error) {
	var at []int
	var keys []string
	for i, list := range lists {
		if tag, err := ingressTag(list); err == nil { // else it has no fence, see ingressTags
			at, keys = append(at, i), append(keys, tag+":fence")
		}
	}
	asked := redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) { pipe.HGet(ctx, keys[i], "t") })
	fences := make([]partition.Token, len(lists))
	var errs []error
	for i, cmds := range asked {
		token, err := cmds[0].(*redis.StringCmd).Result()
		if err == nil && token != "" {
			fences[at[i]], err = partition.ParseToken(token)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			errs = append(errs, fmt.Errorf("%s: %w", keys[i], redisconfig.Explain(err)))
		}
	}
	return fences, errors.Join(errs...)
}

// IngressOverwritten returns, for each of lists, the key of its fence or its plan if another program has written it, so
// that nobody can open the list; empty: none, or it is not known.
func IngressOverwritten(ctx context.Context, client redis.UniversalClient, lists []string) []string {
	var at []int
	var keys []string
	for i, list := range lists {
		if tag, err := ingressTag(list); err == nil {
			at, keys = append(at, i, i), append(keys, tag+":fence", tag+":plan")
		}
	}
	asked := redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) { pipe.Type(ctx, keys[i]) })
	wrong := make([]string, len(lists))
	for i, cmds := range asked {
		kind, err := cmds[0].(*redis.StatusCmd).Result()
		if err == nil && kind != "none" && kind != "hash" {
			wrong[at[i]] = keys[i]
		}
	}
	return wrong
}

// unitNames returns the names of the units.
func unitNames(ingress []Ingress) []string {
	names := make([]string, len(ingress))
	for i := range ingress {
		names[i] = ingress[i].List
	}
	return names
}

// A routed line is what becomes of a line of an ingress list.
type routed struct {
	to   partition.ID
	dead string // why it is no task; empty: it is one
	body []byte // the envelope, or the dead letter
}

// lostLines is where lines go that are no tasks.
const lostLines partition.ID = 0

// route says what becomes of the line at a position.
func (in *Ingress) route(line string, era, position int64, layout partition.Config, now time.Time) routed {
	e, err := in.read(line)
	to := partition.ID(position % int64(layout.Total))
	if err == nil && e.key != "" {
		to, err = layout.Hash.Of(e.key, layout.Total)
	}
	if err != nil {
		why := lineReason(in.List, in.Oldest) + err.Error()
		return routed{to: lostLines, dead: why, body: encodeLetter(&letter{
			position: position, at: now, reason: why, raw: true, body: line,
		})}
	}
	if e.id == "" {
		e.id = fmt.Sprintf("%s-%d-%d", in.List, era, position)
	}
	e.born = sources.MomentOf(now)
	return routed{to: to, body: appendEnvelope(make([]byte, 0, len(line)+len(e.id)+len(e.typ)+len(e.key)+32), &e)}
}

// lineReason is what the reason of a dead letter begins with that is a line of list: whoever
// requeues it has to know where to push it.
func lineReason(list string, oldest Side) string {
	if oldest == Left {
		return fmt.Sprintf("ingress %s, filled by RPUSH: ", list)
	}
	return fmt.Sprintf("ingress %s: ", list)
}

// read takes id, type and key from a line.
func (in *Ingress) read(line string) (envelope, error) {
	e := envelope{typ: in.Type, payload: []byte(line)}
	if in.KeyField != "" || in.IDField != "" || in.TypeField != "" {
		if err := in.readFields(&e); err != nil {
			return e, err
		}
	}
	var err error
	if in.Key != nil {
		e.key, err = in.keyOf(e.payload)
	}
	return e, err
}

// readFields takes what the fields of the payload, a JSON object, say.
func (in *Ingress) readFields(e *envelope) error {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(e.payload, &fields)
	if other := (*json.UnmarshalTypeError)(nil); errors.As(err, &other) {
		return fmt.Errorf("not a JSON object: %s", other.Value)
	}
	if err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if fields == nil {
		return errors.New("not a JSON object: null")
	}
	if in.KeyField != "" {
		if e.key, err = text(fields, in.KeyField); err != nil {
			return err
		}
		if e.key == "" {
			return fmt.Errorf("field %q, which is the key, is missing or empty", in.KeyField)
		}
	}
	if in.IDField != "" {
		if e.id, err = text(fields, in.IDField); err != nil {
			return err
		}
	}
	if _, ok := fields[in.TypeField]; ok && in.TypeField != "" {
		if e.typ, err = text(fields, in.TypeField); err != nil {
			return err
		}
	}
	return nil
}

// keyOf asks Key. A panic must not end the peer: the next owner would read the same line
// first, and end as well.
func (in *Ingress) keyOf(line []byte) (key string, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("its Key panicked: %v", why)
		}
	}()
	return in.Key(line)
}

// text returns a field that is a string or a number, "" if it is missing or null.
func text(fields map[string]json.RawMessage, name string) (string, error) {
	raw := fields[name]
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", nil
	case raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9':
		return string(raw), nil
	}
	return "", fmt.Errorf("field %q is neither a string nor a number", name)
}
