package etcdledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// historyKeys are what calls told, below the prefix: a key each, in their order. Nothing is
// decided by them, and nobody reads them to decide.
const historyKeys = "history/"

// trimmedEach is how often what is told makes somebody look whether there is too much: once
// in so many revisions.
const trimmedEach = 64

// A wireEntry is a machine.Entry as it stands in etcd.
type wireEntry struct {
	At        int64             `json:"at"`    // ms, by the clock of who wrote it
	Clock     int64             `json:"clock"` // ms
	What      machine.Change    `json:"what"`
	Session   partition.Session `json:"session,omitempty"`
	Peer      string            `json:"peer,omitempty"`
	Other     partition.Session `json:"other,omitempty"`
	OtherPeer string            `json:"otherPeer,omitempty"`
	Grants    string            `json:"grants,omitempty"` // 3@41 7@42<40
	Silent    int64             `json:"silent,omitempty"` // ms
	Version   uint64            `json:"version,omitempty"`
	Replicas  int               `json:"replicas,omitempty"`
}

// History returns what the last calls that changed something told, at most limit of them,
// oldest first; machine.HistoryKept and a few more are kept. Their times are those of the
// peers that made the calls. It changes nothing in the store.
func (l *Ledger) History(ctx context.Context, limit int) (machine.History, error) {
	if limit < 1 {
		return nil, fmt.Errorf("etcdledger: a history of %d entries: want at least 1", limit)
	}
	resp, err := l.client.Get(ctx, l.prefix+historyKeys, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, l.explain("history", err)
	}
	var h machine.History
	for _, kv := range slices.Backward(resp.Kvs) {
		entries, err := decodeEntries(kv.Value)
		if err != nil {
			return nil, fmt.Errorf("etcdledger: %s: key %s: the history is not understood: %w", l.name, kv.Key, err)
		}
		h = append(h, entries...)
	}
	nameOthers(h)
	return h[max(0, len(h)-limit):], nil
}

// nameOthers fills in peers whose sessions the ledger had forgotten when they were told of: of
// those whose lease had run out it keeps the grants alone.
func nameOthers(h machine.History) {
	peers := make(map[partition.Session]string)
	for i := range h {
		e := &h[i]
		if e.Peer != "" {
			peers[e.Session] = e.Peer
		}
		if e.OtherPeer == "" {
			e.OtherPeer = peers[e.Other]
		}
	}
}

// tell is the write of what a call that was decided on snap told. No two writes that change
// what the lock word covers were decided on one revision.
func (l *Ledger) tell(snap *snapshot, told machine.History) (clientv3.Op, error) {
	b, err := encodeEntries(told, time.Now())
	return clientv3.OpPut(fmt.Sprintf("%s%s%016x", l.prefix, historyKeys, snap.revision), string(b)), err
}

// trim forgets the oldest entries if there are too many. If it fails somebody else will.
func (l *Ledger) trim(ctx context.Context) {
	keys := l.prefix + historyKeys
	resp, err := l.client.Get(ctx, keys, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(machine.HistoryKept))
	if err != nil || len(resp.Kvs) < machine.HistoryKept {
		return
	}
	_, _ = l.client.Delete(ctx, keys, clientv3.WithRange(string(resp.Kvs[machine.HistoryKept-1].Key)))
}

func encodeEntries(told machine.History, at time.Time) ([]byte, error) {
	wire := make([]wireEntry, len(told))
	for i, e := range told {
		var grants []string
		for _, p := range e.Grants {
			word := p.Grant.String()
			if p.Former != 0 {
				word += "<" + strconv.FormatUint(uint64(p.Former), 10)
			}
			grants = append(grants, word)
		}
		wire[i] = wireEntry{
			At: at.UnixMilli(), Clock: e.Clock.Milliseconds(), What: e.What, Session: e.Session, Peer: e.Peer,
			Other: e.Other, OtherPeer: e.OtherPeer, Grants: strings.Join(grants, " "),
			Silent: e.Silent.Milliseconds(), Version: e.Version, Replicas: e.Replicas,
		}
	}
	return json.Marshal(wire)
}

func decodeEntries(value []byte) (machine.History, error) {
	var wire []wireEntry
	if err := json.Unmarshal(value, &wire); err != nil {
		return nil, err
	}
	h := make(machine.History, len(wire))
	var errs []error
	for i, w := range wire {
		h[i] = machine.Entry{
			At: time.UnixMilli(w.At), Clock: time.Duration(w.Clock) * time.Millisecond, What: w.What, Session: w.Session, Peer: w.Peer,
			Other: w.Other, OtherPeer: w.OtherPeer,
			Silent: time.Duration(w.Silent) * time.Millisecond, Version: w.Version, Replicas: w.Replicas,
		}
		for _, word := range strings.Fields(w.Grants) {
			granted, former, _ := strings.Cut(word, "<")
			p, err := parsePassed(granted, former)
			errs = append(errs, err)
			h[i].Grants = append(h[i].Grants, p)
		}
	}
	return h, errors.Join(errs...)
}

func parsePassed(granted, former string) (p machine.Passed, err error) {
	if p.Grant, err = partition.ParseGrant(granted); err != nil || former == "" {
		return p, err
	}
	n, err := strconv.ParseUint(former, 10, 64)
	p.Former = partition.Epoch(n)
	return p, err
}
