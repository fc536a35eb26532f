package etcdledger

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

var full = memledger.State{
	Config: partition.Config{
		Total: 8, Hash: partition.ByID, Units: []string{"inbox", "outbox"},
		Requires: []partition.Requirement{{First: 2, Last: 3, Tags: "gpu"}},
	},
	Run: "cafe", Clock: 123456, Step: 2500, Longest: 10000, Count: 1 << 63, Membership: 41, Changed: 99, Grace: 100, Barrier: "yes", Barred: true, Clear: 98, Farthest: 42,
	Sessions: map[partition.Session]memledger.Seat{
		"a": {Peer: "peer \"a\"\n", Weight: 2, Unwell: true, Tags: "eu gpu", State: machine.Leaving, Strategy: "jump", Deadline: 200, Terms: machine.Terms{
			Lease: 10 * time.Second, CancelGrace: time.Second, Settle: 3 * time.Millisecond, Drain: time.Minute, Shutdown: 25 * time.Second, Deployment: "d",
		}},
		"b": {Peer: "b", State: machine.Live, Deadline: 300},
	},
	Grants: map[partition.ID]memledger.Grant{
		0: {Session: "a", Epoch: 3}, 1: {Session: "a", Epoch: 4, Waiter: "b"}, partition.FirstUnit: {Session: "dead", Epoch: 5},
	},
	Roll: machine.Roll{Version: 40, Membership: 39, Members: []machine.RollMember{
		{Member: partition.Member{Session: "a", Peer: "a", Index: 0, Weight: 2, Down: true, Tags: "eu"}, Partitions: []partition.ID{0, 1, 2, 5, 7, partition.FirstUnit}},
		{Member: partition.Member{Session: "b", Peer: "b", Index: 1, Weight: 1}},
	}, Chairs: []machine.Chair{{Seat: 0, Session: "gone", Peer: "g", Tags: "eu", Since: 1234 * time.Millisecond}, {Seat: 2, Session: "a", Peer: "a"}}},
}

func TestWire(t *testing.T) {
	for name, want := range map[string]memledger.State{
		"full": full,
		"empty": {
			Config:   partition.Config{Total: 1, Hash: partition.XXHash64},
			Sessions: map[partition.Session]memledger.Seat{}, Grants: map[partition.ID]memledger.Grant{},
		},
	} {
		kvs, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, known, broken, err := decode(kvs)
		if err != nil || !known || broken || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: known %v, broken %v, error %v\ngot  %+v\nwant %+v", name, known, broken, err, got, want)
		}
	}
}

// What people read stays as the documentation shows it.
func TestGoldenWire(t *testing.T) {
	kvs, err := encode(full)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"config":     `{"protocol":1,"total":8,"hash":"id","units":["inbox","outbox"],"requires":[{"First":2,"Last":3,"Unit":"","Tags":"gpu"}]}`,
		"clock":      "123456",
		"leases/a":   "200",
		"transition": "a 0@3 1@4>b\ndead 1048576@5\n",
		"roll": `{"version":40,"membership":39,"members":[{"index":0,"session":"a","peer":"a","weight":2,"down":true,"tags":"eu","partitions":"0-2 5 7 1048576"},` +
			`{"index":1,"session":"b","peer":"b","weight":1,"partitions":""}],"seats":[{"seat":0,"session":"gone","peer":"g","tags":"eu","since":"1.234s"},{"seat":2,"session":"a","peer":"a"}]}`,
	} {
		if kvs[key] != want {
			t.Errorf("%s is\n%s\nwant\n%s", key, kvs[key], want)
		}
	}
	if line := lineOf(kvs["transition"], "a"); line != "a 0@3 1@4>b\n" {
		t.Errorf("the line of a is %q", line)
	}
	if line := lineOf(kvs["transition"], "de"); line != "" {
		t.Errorf("the line of de is %q", line)
	}
}

// What another program wrote there is an error that names the key, and no state.
func TestWireErrors(t *testing.T) {
	for key, value := range map[string]string{
		"config": "{", "meta": "7", "clock": "noon", "roll": `{"members":[{"partitions":"3-1"}]}`,
		"transition": "a 3", "sessions/a": `{"state":"asleep"}`, "leases/a": "",
	} {
		kvs, _ := encode(full)
		kvs[key] = value
		if _, _, _, err := decode(kvs); err == nil {
			t.Errorf("%s: %q is understood", key, value)
		}
	}
	kvs, _ := encode(full)
	kvs["config"] = strings.Replace(kvs["config"], `"protocol":1`, `"protocol":99`, 1)
	if _, _, _, err := decode(kvs); err == nil {
		t.Error("a later protocol is understood")
	}
}

// What the history says of a peer stands, also where the ledger had forgotten him later; what it leaves out is looked up.
func TestOthersAreNamed(t *testing.T) {
	h := machine.History{
		{Session: "b", Peer: "bob", Other: "a", OtherPeer: "ann"},
		{Session: "b"},
		{Session: "c", Peer: "cid", Other: "b"},
		{Session: "c", Peer: "cid", Other: "a"},
	}
	nameOthers(h)
	var got []string
	for _, e := range h {
		got = append(got, e.OtherPeer)
	}
	if want := []string{"ann", "", "bob", ""}; !slices.Equal(got, want) {
		t.Errorf("the others are %q, want %q", got, want)
	}
}

func TestURL(t *testing.T) {
	for address, want := range map[string]string{
		"etcd://h":                       "http://h:2379 /countoff",
		"etcd://h/":                      "http://h:2379 /countoff",
		"etcd://a:1,b,[::1]:2/my/prefix": "http://a:1 http://b:2379 http://[::1]:2 /my/prefix",
		"etcds://u:p%40ss@h:1/x":         "https://h:1 u p@ss /x",
		"etcds://h?name=etcd.internal":   "https://h:2379 /countoff",
		"etcds://a,b/x?name=n":           "https://a:2379 https://b:2379 /x",
		"etcds://h?name=a@b/c":           "https://h:2379 /countoff",
		"etcds://u:p@h:1?name=a@b":       "https://h:1 u p /countoff",
		"etcd://h//":                     "http://h:2379 /countoff",
		"etcd://:p@h":                    "", "etcd://u:%zz@h": "", "etcd://h#1": "", "etcds://h?%zz": "",
		"http://h": "", "etcd:h": "", "etcd://": "", "etcd://u@h": "", "etcd://h?x": "", "etcd://h?ca=x": "", "etcds://h?ca=/no/such.pem": "", "etcds://h?cert=x": "", "etcds://h?x=y": "",
	} {
		cfg, prefix, err := parse(address)
		words := append([]string{}, cfg.Endpoints...)
		if cfg.Username != "" {
			words = append(words, cfg.Username, cfg.Password)
		}
		if got := strings.Join(append(words, prefix), " "); err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%s: got %q, %v, want %q", address, got, err, want)
		}
		if err == nil && (cfg.TLS != nil) != strings.HasPrefix(address, "etcds") {
			t.Errorf("%s: TLS %v", address, cfg.TLS)
		}
	}
}

// A field that is new has to be taken into the keys, or the number here be raised with a
// reason.
func TestNoFieldIsForgotten(t *testing.T) {
	for v, fields := range map[reflect.Type]int{
		reflect.TypeFor[memledger.State]():       16,
		reflect.TypeFor[memledger.Seat]():        9,
		reflect.TypeFor[memledger.Grant]():       3,
		reflect.TypeFor[machine.Terms]():         6,
		reflect.TypeFor[machine.Roll]():          4,
		reflect.TypeFor[machine.Chair]():         5,
		reflect.TypeFor[machine.RollMember]():    2,
		reflect.TypeFor[partition.Member]():      7, // Seat is that of the roll's chairs
		reflect.TypeFor[partition.Config]():      6,
		reflect.TypeFor[partition.Drain]():       3,
		reflect.TypeFor[partition.Requirement](): 4,
	} {
		if n := v.NumField(); n != fields {
			t.Errorf("%v has %d fields, of %d it is known how they are kept", v, n, fields)
		}
	}
}
