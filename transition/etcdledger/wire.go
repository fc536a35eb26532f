package etcdledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

// The keys of a name, after its prefix. All but those that are free change together with
// meta, and only then: meta is the lock word of an optimistic transaction.
const (
	configKey     = "config"
	metaKey       = "meta"
	clockKey      = "clock"
	seenKey       = "seen"
	rollKey       = "roll"
	transitionKey = "transition"
	sessionsKeys  = "sessions/" // and the session
	leasesKeys    = "leases/"   // and the session
)

// free reports whether meta does not cover key.
func free(key string) bool {
	return key == clockKey || key == seenKey || strings.HasPrefix(key, leasesKeys)
}

// whole are the keys that a name has from its making on: one that lacks is lost.
var whole = append([]string{clockKey}, covered...)

// covered are those of them that change with meta only.
var covered = []string{configKey, metaKey, rollKey, transitionKey}

// The values that are not plain numbers or lines of words.
type (
	wireConfig struct {
		Protocol int            `json:"protocol"`
		Total    int            `json:"total"`
		Hash     partition.Hash `json:"hash"`
		Units    []string       `json:"units,omitempty"`
		// What partitions and units ask of their owners, as package partition has it.
		Requires []partition.Requirement `json:"requires,omitempty"`
		Paused   string                  `json:"paused,omitempty"`  // since when, in ms, and why
		Drained  string                  `json:"drained,omitempty"` // since when, which peer and why, a line each
	}
	wireMeta struct {
		Run        string `json:"run"`
		Count      uint64 `json:"count"`
		Membership uint64 `json:"membership"`
		Changed    int64  `json:"changed"`
		Grace      int64  `json:"grace"`
		Step       int64  `json:"step"`
		Longest    int64  `json:"longest,omitempty"`
		Barrier    string `json:"barrier,omitempty"`
		Barred     bool   `json:"barred,omitempty"`
		Clear      int64  `json:"clear,omitempty"`
		Farthest   uint64 `json:"farthest,omitempty"`
		Sessions   int    `json:"sessions,omitempty"` // how many there are
		// As config has them, which may be lost.
		Requires []partition.Requirement `json:"requires,omitempty"`
		Paused   string                  `json:"paused,omitempty"`
		Drained  string                  `json:"drained,omitempty"`
	}
	wireSession struct {
		Peer       string         `json:"peer"`
		Weight     int            `json:"weight"`
		Unwell     bool           `json:"unwell,omitempty"`
		Tags       partition.Tags `json:"tags,omitempty"`
		State      string         `json:"state"`
		Arrived    uint64         `json:"arrived,omitempty"`
		Lease      string         `json:"lease"`
		Cancel     string         `json:"cancelGrace"`
		Settle     string         `json:"settle"`
		Drain      string         `json:"drain"`
		Shutdown   string         `json:"shutdown"`
		Deployment string         `json:"deployment,omitempty"`
		Strategy   string         `json:"strategy,omitempty"`
	}
	wireRoll struct {
		Version    uint64       `json:"version"`
		Membership uint64       `json:"membership"`
		Members    []wireMember `json:"members"`
		Seats      []wireChair  `json:"seats,omitempty"`
	}
	wireChair struct {
		Seat    int               `json:"seat"`
		Session partition.Session `json:"session"`
		Peer    string            `json:"peer"`
		Tags    partition.Tags    `json:"tags,omitempty"`
		Since   string            `json:"since,omitempty"`
	}
	wireMember struct {
		Index      int               `json:"index"`
		Session    partition.Session `json:"session"`
		Peer       string            `json:"peer"`
		Weight     int               `json:"weight"`
		Down       bool              `json:"down,omitempty"`
		Tags       partition.Tags    `json:"tags,omitempty"`
		Partitions string            `json:"partitions"` // 0-3 7 9
	}
)

// encode returns what is to stand under the keys of a name.
func encode(s memledger.State) (map[string]string, error) {
	kvs := make(map[string]string, len(whole)+2*len(s.Sessions))
	var errs []error
	put := func(key string, v any) {
		b, err := json.Marshal(v)
		kvs[key] = string(b)
		errs = append(errs, err)
	}
	put(configKey, configOf(s.Config))
	put(metaKey, wireMeta{
		Run: s.Run, Count: s.Count, Membership: s.Membership, Changed: s.Changed, Grace: s.Grace, Step: s.Step, Longest: s.Longest,
		Barrier: s.Barrier, Barred: s.Barred, Clear: s.Clear, Farthest: s.Farthest,
		Sessions: len(s.Sessions), Requires: s.Config.Requires, Paused: s.Config.Paused.String(),
		Drained: partition.PrintDrains(s.Config.Drained),
	})
	kvs[clockKey] = strconv.FormatInt(s.Clock, 10)
	roll := wireRoll{Version: s.Roll.Version, Membership: s.Roll.Membership, Members: []wireMember{}}
	for _, m := range s.Roll.Members {
		roll.Members = append(roll.Members, wireMember{
			Index: m.Index, Session: m.Session, Peer: m.Peer, Weight: m.Weight, Down: m.Down, Tags: m.Tags, Partitions: partition.Ranges(m.Partitions),
		})
	}
	for _, c := range s.Roll.Chairs {
		w := wireChair{Seat: c.Seat, Session: c.Session, Peer: c.Peer, Tags: c.Tags}
		if c.Since != 0 {
			w.Since = c.Since.String()
		}
		roll.Seats = append(roll.Seats, w)
	}
	put(rollKey, roll)
	kvs[transitionKey] = grants(s.Grants)
	for id, x := range s.Sessions {
		put(sessionsKeys+string(id), wireSession{
			Peer: x.Peer, Weight: x.Weight, Unwell: x.Unwell, Tags: x.Tags, State: x.State.String(), Arrived: x.Arrived,
			Lease: x.Terms.Lease.String(), Cancel: x.Terms.CancelGrace.String(), Settle: x.Terms.Settle.String(),
			Drain: x.Terms.Drain.String(), Shutdown: x.Terms.Shutdown.String(), Deployment: x.Terms.Deployment,
			Strategy: x.Strategy,
		})
		kvs[leasesKeys+string(id)] = strconv.FormatInt(x.Deadline, 10)
	}
	return kvs, errors.Join(errs...)
}

func configOf(c partition.Config) wireConfig {
	return wireConfig{Protocol: partition.Protocol, Total: c.Total, Hash: c.Hash, Units: c.Units, Requires: c.Requires, Paused: c.Paused.String(),
		Drained: partition.PrintDrains(c.Drained)}
}

// restoreConfig returns the value of a config that is lost: want, and what partitions ask for and
// whether the name is paused by the value of meta, if that is there and understood.
func restoreConfig(meta string, want partition.Config) (string, error) {
	var w wireMeta
	if json.Unmarshal([]byte(meta), &w) == nil {
		want.Requires, want.Paused = w.Requires, partition.ParsePause(w.Paused)
		want.Drained = partition.ParseDrains(w.Drained)
	}
	b, err := json.Marshal(configOf(want))
	return string(b), err
}

// decode reads what encode wrote. known is false if the name, or a part of it that is
// never missing, is not there: then its memory is lost, but for the configuration if that is
// there. broken says that a session lacks its lease, or the other way round, or that both are
// gone, which only others' hands can do: what it works on would look free.
func decode(kvs map[string]string) (s memledger.State, known, broken bool, err error) {
	for _, key := range whole {
		if _, ok := kvs[key]; ok {
			continue
		}
		if value, ok := kvs[configKey]; ok {
			s.Config, err = decodeConfig(value)
		}
		return s, false, false, err
	}
	var errs []error
	get := func(key string, v any) {
		if err := json.Unmarshal([]byte(kvs[key]), v); err != nil {
			errs = append(errs, fmt.Errorf("key %s: %w", key, err))
		}
	}
	number := func(key string) int64 {
		n, err := strconv.ParseInt(kvs[key], 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("key %s: %w", key, err))
		}
		return n
	}
	config, err := decodeConfig(kvs[configKey])
	errs = append(errs, err)
	var meta wireMeta
	var roll wireRoll
	get(metaKey, &meta)
	get(rollKey, &roll)
	s = memledger.State{
		Config: config,
		Run:    meta.Run, Clock: number(clockKey), Step: meta.Step, Longest: meta.Longest,
		Count: meta.Count, Membership: meta.Membership, Changed: meta.Changed, Grace: meta.Grace,
		Barrier: meta.Barrier, Barred: meta.Barred, Clear: meta.Clear, Farthest: meta.Farthest,
		Sessions: make(map[partition.Session]memledger.Seat),
		Roll:     machine.Roll{Version: roll.Version, Membership: roll.Membership},
	}
	for _, m := range roll.Members {
		ids, err := partition.ParseRanges(m.Partitions)
		if err != nil {
			errs = append(errs, fmt.Errorf("key %s: %w", rollKey, err))
		}
		s.Roll.Members = append(s.Roll.Members, machine.RollMember{
			Member:     partition.Member{Session: m.Session, Peer: m.Peer, Index: m.Index, Weight: m.Weight, Down: m.Down, Tags: m.Tags},
			Partitions: ids,
		})
	}
	for _, w := range roll.Seats {
		c := machine.Chair{Seat: w.Seat, Session: w.Session, Peer: w.Peer, Tags: w.Tags}
		if w.Since != "" {
			c.Since, err = time.ParseDuration(w.Since)
			errs = append(errs, err)
		}
		s.Roll.Chairs = append(s.Roll.Chairs, c)
	}
	s.Grants, err = parseGrants(kvs[transitionKey])
	errs = append(errs, err)
	for key := range kvs {
		if id, ok := strings.CutPrefix(key, leasesKeys); ok {
			_, seated := kvs[sessionsKeys+id]
			broken = broken || !seated
		}
		id, ok := strings.CutPrefix(key, sessionsKeys)
		if !ok {
			continue
		}
		var x wireSession
		get(key, &x)
		seat, err := x.seat()
		errs = append(errs, err)
		if _, leased := kvs[leasesKeys+id]; leased {
			seat.Deadline = number(leasesKeys + id)
		} else {
			seat.Deadline, broken = s.Clock, true
		}
		s.Sessions[partition.Session(id)] = seat
	}
	broken = broken || len(s.Sessions) < meta.Sessions
	return s, true, broken, errors.Join(errs...)
}

// decodeConfig reads the value of config.
func decodeConfig(value string) (partition.Config, error) {
	var w wireConfig
	if err := json.Unmarshal([]byte(value), &w); err != nil {
		return partition.Config{}, fmt.Errorf("key %s: %w", configKey, err)
	}
	cfg := partition.Config{Total: w.Total, Hash: w.Hash, Units: w.Units, Requires: w.Requires, Paused: partition.ParsePause(w.Paused),
		Drained: partition.ParseDrains(w.Drained)}
	if w.Protocol != partition.Protocol {
		return cfg, fmt.Errorf("protocol %d stands there, this program has %d: %w", w.Protocol, partition.Protocol, partition.ErrConfig)
	}
	return cfg, nil
}

func (x wireSession) seat() (memledger.Seat, error) {
	var errs []error
	span := func(s string) time.Duration {
		d, err := time.ParseDuration(s)
		errs = append(errs, err)
		return d
	}
	seat := memledger.Seat{
		Peer: x.Peer, Weight: x.Weight, Unwell: x.Unwell, Tags: x.Tags, Arrived: x.Arrived, Strategy: x.Strategy,
		Terms: machine.Terms{
			Lease: span(x.Lease), CancelGrace: span(x.Cancel), Settle: span(x.Settle),
			Drain: span(x.Drain), Shutdown: span(x.Shutdown), Deployment: x.Deployment,
		},
	}
	for _, state := range []machine.State{machine.Live, machine.Leaving, machine.Gone} {
		if state.String() == x.State {
			seat.State = state
		}
	}
	if seat.State == 0 {
		errs = append(errs, fmt.Errorf("session state %q is unknown", x.State))
	}
	return seat, errors.Join(errs...)
}

// grants prints what every session has, one line each: "session 3@41 7@42>waiter".
func grants(all map[partition.ID]memledger.Grant) string {
	of := make(map[partition.Session][]string)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		g := all[id]
		word := partition.Grant{ID: id, Epoch: g.Epoch}.String()
		if g.Waiter != "" {
			word += ">" + string(g.Waiter)
		}
		of[g.Session] = append(of[g.Session], word)
	}
	var b strings.Builder
	for _, session := range slices.Sorted(maps.Keys(of)) {
		b.WriteString(string(session) + " " + strings.Join(of[session], " ") + "\n")
	}
	return b.String()
}

// parseGrants reads what grants printed.
func parseGrants(text string) (map[partition.ID]memledger.Grant, error) {
	all := make(map[partition.ID]memledger.Grant)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		for _, word := range words[1:] {
			granted, waiter, _ := strings.Cut(word, ">")
			g, err := partition.ParseGrant(granted)
			if err != nil {
				return nil, fmt.Errorf("key %s: %w", transitionKey, err)
			}
			all[g.ID] = memledger.Grant{Session: partition.Session(words[0]), Epoch: g.Epoch, Waiter: partition.Session(waiter)}
		}
	}
	return all, nil
}

// lineOf returns what grants printed of one session.
func lineOf(text string, session partition.Session) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, string(session)+" ") {
			return line
		}
	}
	return ""
}
