package explain

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
	"github.com/countoff/countoff/transition/redisledger"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 1, 31, 14, 3, 0, 0, time.UTC)

// situation is what the store says of partition 1 of 4, and of the key "ann".
type situation struct {
	held  status.Held
	stat  status.Partition
	named string
	roll  uint64
	grace int64
	moves []machine.Move
	queue []redissource.Queued
	tried redissource.Tried
	wrong []status.Finding
	gate  *status.Barrier
	table map[string][]string
	topic bool
}

func move(ago time.Duration, what machine.Change, peer, from string, epoch partition.Epoch) machine.Move {
	g := partition.Grant{ID: 1, Epoch: epoch}
	return machine.Move{Grant: g, Entry: machine.Entry{
		At: now.Add(-ago), What: what, Session: partition.Session("s-" + peer), Peer: peer, OtherPeer: from,
		Grants: []machine.Passed{{Grant: g}},
	}}
}

func held(owner string, epoch partition.Epoch, state string) status.Held {
	return status.Held{ID: 1, Owner: owner, Epoch: epoch, State: state, Session: partition.Session("s-" + owner)}
}

func task(pos int64, key string) redissource.Queued {
	return redissource.Queued{Position: pos, ID: "task-" + string(rune('a'+pos)), Key: key, Born: now.Add(-time.Minute)}
}

func situations() map[string]situation {
	granted := move(time.Hour, machine.Granted, "worker-1", "", 7)
	handed := move(time.Minute, machine.Handed, "worker-2", "worker-1", 9)
	handed.Other, handed.Waited = "s-worker-1", 2*time.Second
	took := move(time.Minute, machine.Took, "worker-2", "worker-1", 9)
	took.Other, took.Pause = "s-worker-1", 12*time.Second
	expired := move(2*time.Second, machine.Expired, "worker-1", "", 0)
	expired.Grant, expired.Grants, expired.Silent = partition.Grant{}, nil, 10*time.Second
	return map[string]situation{
		"idle": {held: held("worker-1", 7, status.Owned), roll: 6, named: "worker-1", moves: []machine.Move{granted}},
		"running": {
			held: held("worker-2", 9, status.Owned), roll: 8, named: "worker-2", moves: []machine.Move{granted, handed},
			stat: status.Partition{Pending: 2, InFlight: 1}, queue: []redissource.Queued{task(0, "ann"), task(1, "bob"), task(2, "ann")},
			tried: redissource.Tried{Started: true},
		},
		"suspect": {
			held: held("worker-2", 9, status.Owned), roll: 8, named: "worker-2", moves: []machine.Move{took},
			stat: status.Partition{Pending: 1, InFlight: 1}, queue: []redissource.Queued{task(0, "ann"), task(1, "ann")},
			tried: redissource.Tried{Suspect: true},
		},
		"suspect-alone": {
			held: held("worker-2", 9, status.Owned), roll: 8, named: "worker-2", moves: []machine.Move{took},
			stat: status.Partition{InFlight: 1}, queue: []redissource.Queued{task(0, "ann")},
			tried: redissource.Tried{Started: true, Suspect: true, Crashes: 1},
		},
		"behind-others": {
			held: held("worker-2", 9, status.Owned), roll: 8, named: "worker-2", moves: []machine.Move{took},
			stat: status.Partition{Pending: 3}, queue: []redissource.Queued{task(0, "bob"), {Position: 1, Unread: true}, task(2, "ann")},
		},
		"parked": {
			held: held("worker-1", 7, status.Owned), roll: 6, named: "worker-1", moves: []machine.Move{granted},
			stat: status.Partition{Pending: 2, Delayed: 1, Dead: 3}, queue: []redissource.Queued{task(0, "ann"), task(1, "ann")},
			tried: redissource.Tried{Started: true, Tries: 2, NotBefore: now.Add(1500 * time.Millisecond), FirstError: "mail server: 451 try later"},
		},
		"waits": {
			held: held("worker-1", 7, status.Owned), roll: 6, named: "worker-1", moves: []machine.Move{granted},
			stat: status.Partition{Pending: 1}, queue: []redissource.Queued{task(0, "ann")},
			tried: redissource.Tried{Started: true, Tries: 1, Waits: 12, NotBefore: now.Add(time.Minute), FirstError: "mail server: 451 try later"},
		},
		"moving": {
			held: held("worker-1", 7, status.Moving), roll: 8, named: "worker-2",
			moves: []machine.Move{granted, move(time.Second, machine.Asked, "worker-2", "worker-1", 7)},
			stat:  status.Partition{Pending: 1}, queue: []redissource.Queued{task(0, "ann")},
		},
		"opening": {held: held("worker-2", 9, status.Opening), roll: 8, named: "worker-2", moves: []machine.Move{handed}},
		"unowned": {
			held: status.Held{ID: 1, State: status.Unowned}, roll: 6, named: "worker-1", moves: []machine.Move{granted, expired},
			stat: status.Partition{Pending: 1}, queue: []redissource.Queued{task(0, "ann")},
			wrong: []status.Finding{
				{Kind: "unowned", Partitions: []partition.ID{0, 1}, Text: "the lease of its owner is over"},
				{Kind: "overdue", Partitions: []partition.ID{3}, Text: "not this one"},
			},
		},
		"interrupted": {
			held: status.Held{ID: 1, State: status.Unowned}, roll: 6, named: "worker-1", moves: []machine.Move{granted, expired},
			stat: status.Partition{InFlight: 2}, queue: []redissource.Queued{task(0, "ann"), task(1, "ann")},
			tried: redissource.Tried{Started: true},
		},
		"barrier": {
			held: status.Held{ID: 1, State: status.Unowned}, roll: 8, named: "worker-1", moves: []machine.Move{granted},
			gate: &status.Barrier{Roll: 8, Arrived: []string{"worker-1"}, Behind: []status.Behind{{Peer: "worker-2", Roll: 6, LeaseMS: 900}}, ForMS: 300},
		},
		"grace": {held: status.Held{ID: 1, State: status.Unowned}, grace: 4200, moves: []machine.Move{move(5*time.Second, machine.Forgot, "", "", 0)}},
		"new":   {held: status.Held{ID: 1, State: status.Unowned}},
		"work-unit": {
			held: held("worker-1", 7, status.Owned), roll: 6, named: "worker-1", moves: []machine.Move{granted},
			table: map[string][]string{"worker-1": {"abe", "ann"}, "_": {}},
		},
		"no-work-unit": {
			held: held("worker-1", 7, status.Owned), roll: 6, named: "worker-1", moves: []machine.Move{granted},
			table: map[string][]string{"worker-1": {"abe"}},
		},
		"topic": {
			held: held("worker-1", 7, status.Owned), roll: 6, named: "worker-1", moves: []machine.Move{granted},
			stat: status.Partition{Pending: 40, InFlight: 2}, topic: true,
		},
		"two-owners": {
			held: held("worker-1", 7, status.Double), roll: 6, named: "worker-1",
			wrong: []status.Finding{{Kind: "double", Partitions: []partition.ID{1}, Text: "the ledger granted it to worker-1 under epoch 7, the data admits epoch 9 of worker-2"}},
		},
	}
}

func TestSituations(t *testing.T) {
	for name, c := range situations() {
		t.Run(name, func(t *testing.T) {
			p := c.stat
			p.Held = c.held
			s := status.Status{
				Name: "mail-sender", Config: partition.Config{Total: 4}.WithDefaults(), Roll: status.Roll{Version: c.roll}, GraceMS: c.grace, Barrier: c.gate,
				Partitions: []status.Partition{{}, p, {}, {}}, Findings: c.wrong, Table: c.table,
			}
			census := transition.Census{Roll: machine.Roll{Version: c.roll}}
			if c.named != "" {
				session := partition.Session("s-" + c.named)
				census.Roll.Members = []machine.RollMember{{Member: partition.Member{Session: session, Peer: c.named}, Partitions: []partition.ID{1}}}
				seat := machine.Seat{Session: session, Peer: c.named, State: machine.Live, Lease: time.Second}
				if c.held.State == status.Unowned && c.gate == nil {
					seat.Lease = -time.Second
				}
				census.Sessions = []machine.Seat{seat}
			}
			e := assemble(s, census, c.moves, c.queue, 1, "ann", now)
			e.Topic = c.topic
			if e.First != nil {
				e.First.tried(c.tried, now)
			}
			data, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(e.Lines(), "\n") + "\n\n" + string(data) + "\n"
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("it says\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// A partition that one session got from another of the same peer id came from somebody else.
func TestTwoOfOneID(t *testing.T) {
	seat := func(s partition.Session) machine.Seat {
		return machine.Seat{Session: s, Peer: "ann", State: machine.Live, Lease: time.Second}
	}
	census := transition.Census{Sessions: []machine.Seat{seat("aa"), seat("bb")}}
	census.Roll.Members = []machine.RollMember{{Member: partition.Member{Session: "bb", Peer: "ann"}, Partitions: []partition.ID{0}}}
	moves := []machine.Move{{Entry: machine.Entry{What: machine.Handed, Session: "bb", Peer: "ann", Other: "aa", OtherPeer: "ann"}}}
	e := assemble(status.Status{Config: partition.Config{Total: 1}.WithDefaults(), Partitions: []status.Partition{{}}}, census, moves, nil, 0, "key", now)
	if e.Named != "ann#bb" || !strings.Contains(e.why[0], "ann#aa") || !strings.Contains(e.why[0], "ann#bb") {
		t.Errorf("the roll gives it to %s; %s", e.Named, e.why)
	}
}

// Times in years that JSON does not have are left out of it. People are told what they mean all the same.
func TestOddTimes(t *testing.T) {
	far := now.AddDate(20_000, 0, 0)
	moves := []machine.Move{{Entry: machine.Entry{At: far, What: machine.Forgot}}}
	s := status.Status{Config: partition.Config{Total: 1}.WithDefaults(), Partitions: []status.Partition{{}}}
	e := assemble(s, transition.Census{}, moves, []redissource.Queued{{ID: "t", Key: "key", Born: far}}, 0, "key", now)
	e.First.tried(redissource.Tried{Started: true, Tries: 1, NotBefore: far}, now)
	data, err := json.Marshal(e)
	if err != nil || !strings.Contains(string(data), `"born":null`) || strings.Contains(string(data), "not_before") || !strings.Contains(string(data), `"at":null`) {
		t.Errorf("%s, %v", data, err)
	}
	if text := strings.Join(e.Lines(), "\n"); !strings.Contains(text, "parked: task t failed once, runs again in 2") || !strings.Contains(text, "; 0 of this key wait behind it") {
		t.Errorf("it says\n%s", text)
	}
}

// TestRead explains a key of a real store.
func TestRead(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	cfg := partition.Config{Total: 4}
	if _, err := redisledger.Init(t.Context(), client, name, cfg); err != nil {
		t.Fatal(err)
	}
	ledger, err := redisledger.New(client, name, redisledger.Config{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	id := partition.Of("ann", 4)
	if _, err := ledger.Sync(t.Context(), transition.Request{Session: "aa", Peer: "worker-1", Weight: 1, State: machine.Live, Claim: []partition.ID{id}}); err != nil {
		t.Fatal(err)
	}
	producer, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Enqueue(t.Context(), redissource.Message{ID: "one", Key: "ann"}, redissource.Message{ID: "two", Key: "ann"}); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), redissource.KeysOf(name, id).Tries, "0", "3 1 9999999999999 it broke").Err(); err != nil {
		t.Fatal(err)
	}
	e, err := Read(t.Context(), status.Place{Client: client}, name, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if e.Partition.ID != id || e.Partition.Owner != "worker-1" || len(e.Why) != 1 || e.OfKey != 2 ||
		e.First == nil || e.First.ID != "one" || e.First.Tries != 3 || e.First.Crashes != 1 || e.First.FirstError != "it broke" || e.First.NotBefore == nil {
		t.Errorf("%+v\n%+v", e, e.First)
	}

	if err := client.Set(t.Context(), redissource.KeysOf(name, id).Lifted, "another program's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	e, err = Read(t.Context(), status.Place{Client: client}, name, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(e.Lines(), "\n"); !strings.Contains(text, "worker-1, epoch") || strings.Contains(text, "it works on it") || strings.Contains(text, "pending 0") ||
		!strings.Contains(text, "cannot be read") || !strings.Contains(text, "WRONG  unread") {
		t.Errorf("of a partition that cannot be read it says\n%s", text)
	}
}

// The keys of a topic's records are not in the store: that none is found does not say that none is open.
func TestKeyOfATopic(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	cfg := partition.Config{Total: 4, Hash: partition.Murmur2}
	if _, err := redisledger.Init(t.Context(), client, name, cfg); err != nil {
		t.Fatal(err)
	}
	if err := redisconfig.ClaimTopic(t.Context(), client, name, cfg, redisconfig.Work{Topic: "orders", Progress: "redis"}); err != nil {
		t.Fatal(err)
	}
	token := partition.Token{Epoch: 1, Session: "aa"}
	if err := client.HSet(t.Context(), redissource.KeysOf(name, 0).Fence, "t", token.String(), "e", "20").Err(); err != nil { // as its owner has it
		t.Fatal(err)
	}
	e, err := Read(t.Context(), status.Place{Client: client}, name, "ann")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(e.Lines(), "\n")
	if e.TasksUnknown || !e.Topic || strings.Contains(text, "nothing of this key is open") || !strings.Contains(text, "records of a topic") {
		t.Errorf("of a key of a topic it says\n%s", text)
	}
}

// A task that waits for its time is in no log: that nothing of a key is open does not mean that none is delayed.
func TestADelayedTaskMayBeOfTheKey(t *testing.T) {
	for delayed, want := range map[int]bool{0: false, 2: true} {
		e := Explanation{Name: "n", Key: "ann", Partition: status.Partition{Held: status.Held{Owner: "p", State: status.Owned}, Delayed: delayed}}
		if got := strings.Join(e.Lines(), "\n"); strings.Contains(got, "countoff delayed list n") != want {
			t.Errorf("with %d delayed it says\n%s", delayed, got)
		}
	}
}

// Where the ledger stands elsewhere the partition may well have an owner.
func TestALedgerElsewhere(t *testing.T) {
	s := status.Status{Partitions: make([]status.Partition, 1), LedgerElsewhere: true}
	text := strings.Join(assemble(s, transition.Census{}, nil, nil, 0, "ann", time.Now()).Lines(), "\n")
	if !strings.Contains(text, "who takes part is not known") || strings.Contains(text, "nobody\n") || strings.Contains(text, "for an owner") {
		t.Errorf("it says\n%s", text)
	}
}

// A topic may get more partitions between the first look and the next.
func TestATopicThatGrowsMeanwhile(t *testing.T) {
	ledger := memledger.New(partition.Config{Total: 8}, transition.Timing{}, memledger.Options{})
	at := status.Place{Ledger: ledger, Config: partition.Config{Total: 4, Hash: partition.XXHash64}}
	added := 0
	for i := range 20 {
		key := fmt.Sprint(i)
		_, err := Read(t.Context(), at, "x", key)
		if grew := partition.Of(key, 8) >= 4; grew != (err != nil) || grew && !strings.Contains(err.Error(), "ask again") {
			t.Errorf("key %s, of partition %v: %v", key, partition.Of(key, 8), err)
		} else if grew {
			added++
		}
	}
	if added == 0 {
		t.Error("no key is of an added partition")
	}
}
