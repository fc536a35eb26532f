package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/framework/status"
)

// What a person gets wrong is said in words, with an exit code, and without secrets.
func TestBadInput(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	nobody := func() string { // an address where nobody listens
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}()
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"mail-sender work --redis http://u:SECRET@h", 2, []string{`scheme "http"`, "redis"}},
		{"mail-sender work --redis redis://u:SECRET@h:port", 2, []string{"cannot be read"}},
		{"mail-sender send --redis h:6379", 2, []string{"want redis://"}},
		{"countoff status x --redis h:6379", 2, []string{"want redis://"}},
		{"mail-sender work --wait 1s --redis redis://u:SECRET@" + nobody, 3, []string{nobody, "connection refused", "is it running"}},
		{"mail-sender send --redis redis://" + nobody, 3, []string{nobody, "is it running"}},
		{"countoff status x --redis redis://" + nobody, 3, []string{nobody, "is it running"}},
		{"mail-sender work --log-level loud", 2, []string{"--log-level"}},
		{"mail-sender work --rate fast", 2, []string{"--rate", "as in 50/s, 500/h or 100/15m"}},
		{"mail-sender work --inbox-oldest top", 2, []string{"--inbox-oldest top", "right", "left"}},
		{"mail-sender work --ledger etcd://u:SECRET@h/x", 2, []string{"--ledger etcd: this program knows redis", "transition/etcdledger/mail-sender"}},
		{"mail-sender work --barrier --indexer interval", 2, []string{"interval", "barrier"}},
		{"mail-sender work --interval 1s", 2, []string{"--interval is for --indexer interval"}},
		{"mail-sender work --indexer interval --counter nats://u:SECRET@h/x", 2,
			[]string{"--counter nats: this program knows redis", "partition/intervalindexer/natscounter/mail-sender"}},
		{"mail-sender work extra", 2, []string{"--help"}},
		{"mail-sender sned", 2, []string{`unknown command "sned"`}},
		{"mail-sender send -n 0", 2, []string{"-n 0"}},
		{"mail-sender send --file no-such-file", 2, []string{"no-such-file"}},
		{"mail-sender send --name a/b --partitions -1 --redis h:6379", 2, []string{`name "a/b"`, "--partitions -1", "want redis://"}},
		{"mail-sender send --partitions 0", 2, []string{"--partitions 0"}},
		{"mail-sender work --http 999 --wait 0s --partitions 0 --weight -5 --concurrency 0", 2,
			[]string{"--http 999: want [host]:port", "--wait 0s", "--partitions 0", "--weight -5", "--concurrency 0"}},
		{"mail-sender work --http :99999 --wait -1s --partitions -1 --weight 0", 2,
			[]string{"--http :99999", "--wait -1s", "--partitions -1", "--weight 0"}},
		{"mail-sender work --masters redis://a,http://b --inbox a{b --tries -1 --backoff -1s --indexer x --redis http://u:SECRET@h", 2,
			[]string{"--masters: redisquorum: 2 of", `scheme "http": want redis, rediss or unix`, "--inbox: redissource: ingress \"a{b\"", "--tries -1: want",
				"--backoff -1s: want", "--indexer x: want", "--redis: redis URL"}},
		{"mail-sender demo --peers 1 --mails 0 --pace -1s", 2, []string{"1 peers", "0 mails", "pace -1s"}},
		{"mail-sender demo --listen nowhere --dashboard 6379", 2, []string{"listen nowhere: want [host]:port", "dashboard 6379: want [host]:port"}},
		{"mail-sender demo --listen :99999 --dashboard :http1", 2, []string{"listen :99999: want [host]:port", "dashboard :http1: want [host]:port"}},
		{"countoff stats x", 2, []string{`unknown command "stats"`, "status"}},
		{"countoff status", 2, []string{"1 arg"}},
		{"countoff status a/b --timeout 0s", 2, []string{`name "a/b"`, "--timeout 0s"}},
		{"countoff watch a/b", 2, []string{`name "a/b"`}},
		{"countoff enqueue a/b --delay -5s --partitions -1 x", 2, []string{`name "a/b"`, "--delay -5s", "--partitions -1"}},
		{"countoff init x --partitions -3 --hash foo", 2, []string{"--partitions -3", `hash "foo"`}},
		{"countoff init x --partitions 0", 2, []string{"--partitions 0"}},
		{"countoff resize x --partitions 9999999", 2, []string{"--partitions 9999999"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(c.args)
			out, code := run(t, args[0], args[1:]...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("does not say %q:\n%s", want, out)
				}
			}
			if strings.Contains(out, "SECRET") {
				t.Errorf("shows the password:\n%s", out)
			}
		})
	}
}

// What only a store can tell: the name is in use otherwise, or faults of several
// kinds at once.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	s := newStage(t, mailbox.Config{})
	port := strings.TrimPrefix(s.box.URL(), "smtp://") // taken
	for _, c := range []struct {
		program string
		args    []string
		code    int
		want    []string
	}{
		{"mail-sender", []string{"work", "--http", "", "--partitions", "17"}, 4, []string{"another configuration", "17", "16"}},
		{"mail-sender", []string{"work", "--http", "", "--inbox", ""}, 4, []string{"another configuration", "inbox"}},
		{"mail-sender", []string{"send", "-n", "1", "--partitions", "17"}, 4, []string{"another configuration", "17", "16"}},
		{"countoff", []string{"init", "mail-sender", "--partitions", "17"}, 4, []string{"another configuration", "17", "16"}},
		{"countoff", []string{"enqueue", "mail-sender", "--partitions", "17", "x"}, 4, []string{"another configuration"}},
		{"mail-sender", []string{"work", "--http", "", "--name", "a b"}, 2, []string{`name "a b"`}},
		{"mail-sender", []string{"work", "--http", "", "--lease", "1s", "--smtp", "http://u:SECRET@h", "--tries", "-1", "--concurrency", "0", "--inbox-oldest", "top", "--log-level", "loud"},
			2, []string{"lease 1s is too short", "tries", "--concurrency 0", "--inbox-oldest top", "loud"}},
		{"mail-sender", []string{"work", "--http", port}, 1, []string{"--http: ", "address already in use"}},
		{"countoff", []string{"status", "nobody"}, 1, []string{"no configuration yet"}},
		{"countoff", []string{"index", "mail-sender", "--lease", "1s"}, 2, []string{"lease 1s is too short"}},
	} {
		t.Run(c.program+" "+strings.Join(c.args, " "), func(t *testing.T) {
			args := append(c.args, "--redis", s.url())
			if c.args[0] == "work" && !strings.Contains(strings.Join(args, " "), "--smtp") {
				args = append(args, "--smtp", s.box.URL())
			}
			out, code := run(t, c.program, args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("does not say %q:\n%s", want, out)
				}
			}
			if strings.Contains(out, "SECRET") {
				t.Errorf("shows the password:\n%s", out)
			}
		})
	}
}

// A mail that cannot be sent becomes a dead letter; one that is refused for now is
// sent later, and the recipient's later mails wait for it.
func TestRefusedMails(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64 // of the mail that is refused for good
	s := newStage(t, mailbox.Config{Verdict: func(to string, try int) int {
		switch {
		case strings.HasPrefix(to, "gone"):
			tries.Add(1)
			return 550
		case strings.HasPrefix(to, "busy") && try <= 2:
			return 451
		}
		return 0
	}})
	s.lease = longLease
	s.work("w", "--backoff", "100ms")
	s.shared(1)
	push := func(line string) {
		if err := s.client.LPush(t.Context(), s.name+":inbox", line).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		push(s.next("busy@example.com"))
	}
	push(`not json`)
	push(`{"to":"nobody","text":"x"}`)
	push(`{"to":"gone@example.com","text":"x"}`)
	s.countoff("enqueue", s.name, "--type", "mail", "--key", "k", "[]")
	if doubled := s.settled(); len(doubled) > 0 {
		t.Errorf("doubled: %v", doubled)
	}
	s.until("four dead letters", func() error {
		st, err := status.Read(t.Context(), s.client, s.name)
		if err != nil {
			return err
		}
		if n := st.Totals().Dead; n != 4 {
			return fmt.Errorf("%d dead", n)
		}
		return nil
	})

	// They can be seen whole, run again and thrown away.
	list := s.countoff("dead", "list", s.name)
	for _, reason := range []string{"not a mail in JSON", `to: "nobody"`, "550", "cannot unmarshal array"} {
		if !strings.Contains(list, reason) {
			t.Errorf("dead list does not say %q:\n%s", reason, list)
		}
	}
	var gone struct{ ID, Payload, Reason string }
	for line := range strings.Lines(s.countoff("dead", "list", s.name, "--json")) {
		var letter struct{ ID, Key string }
		if err := json.Unmarshal([]byte(line), &letter); err != nil {
			t.Fatal(err)
		}
		if letter.Key == "gone@example.com" {
			gone.ID = letter.ID
		}
	}
	if err := json.Unmarshal([]byte(s.countoff("dead", "show", s.name, gone.ID, "--json")), &gone); err != nil {
		t.Fatal(err)
	}
	if gone.Payload != `{"to":"gone@example.com","text":"x"}` || !strings.Contains(gone.Reason, "550") {
		t.Errorf("%+v", gone)
	}
	tries.Store(0)
	s.countoff("dead", "requeue", s.name, gone.ID)
	s.until("the requeued mail to be refused again", func() error {
		if tries.Load() == 0 || !strings.Contains(s.countoff("dead", "list", s.name), gone.ID) {
			return errors.New("it has not been")
		}
		return nil
	})
	s.countoff("dead", "drop", s.name, "--all")
	if out := s.countoff("dead", "list", s.name); !strings.Contains(out, "no dead letters") {
		t.Errorf("after drop --all:\n%s", out)
	}
	if out, code := run(t, "countoff", "dead", "show", s.name, gone.ID, "--redis", s.url()); code != 1 || !strings.Contains(out, "countoff dead list") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// A file with lines that are no mails: the others are sent, each bad one is named.
func TestSendFile(t *testing.T) {
	t.Parallel()
	s := newStage(t, mailbox.Config{})
	file := filepath.Join(t.TempDir(), "mails.jsonl")
	lines := []string{s.next("ann@example.com"), "{", s.next("ann@example.com"), `{"to":"x","text":"y"}`}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := run(t, "mail-sender", "send", "--redis", s.url(), "--file", file)
	if code != 1 || !strings.Contains(out, "line 2:") || !strings.Contains(out, "line 4:") || !strings.Contains(out, "2 mails enqueued") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	s.work("w")
	s.settled()
}

// A store that is full refuses pushes and says so; leases are renewed and what is
// queued is worked off all the same.
func TestStoreIsFull(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	w := s.work("w")
	s.shared(1)
	f := s.feed(400)
	s.until("a backlog", func() error {
		if n := s.total(); n < 300 {
			return fmt.Errorf("%d mails", n)
		}
		return nil
	})
	f.stop()
	s.redis.Config("maxmemory", "1")
	out, code := run(t, "countoff", "enqueue", s.name, "x", "--redis", s.url(), "--timeout", "2s")
	if code == 0 || !strings.Contains(out, "OOM") {
		t.Errorf("enqueue into a full store: exit code %d\n%s", code, out)
	}
	if doubled := s.settled(); len(doubled) > 0 {
		t.Errorf("doubled: %v", doubled)
	}
	s.redis.Config("maxmemory", "0")
	w.leave()
}

// A store that refuses every write, since its disk is full: the peers lose their
// leases, say why, and go on when it is mended.
func TestStoreRefusesWrites(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow, "--enable-protected-configs", "yes")
	w := s.work("w")
	s.shared(1)
	f := s.feed(100)
	s.until("mails to flow", func() error { return s.sending("w") })
	f.hold()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dump"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A snapshot cannot be renamed to the name of a directory.
	s.redis.Config("dir", dir)
	s.redis.Config("dbfilename", "dump")
	s.redis.Config("save", "3600 1")
	if err := s.client.BgSave(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.until("the store to refuse writes", func() error {
		if err := s.client.Set(context.Background(), "probe", "x", time.Second).Err(); err == nil || !strings.HasPrefix(err.Error(), "MISCONF") {
			return fmt.Errorf("it answers %v", err)
		}
		return nil
	})
	s.until("the worker to say why it stands still", func() error {
		if strings.Contains(w.said(), "MISCONF") && w.logged("the lease may have run out: everything in work is aborted") {
			return nil
		}
		return fmt.Errorf("it does not")
	})
	s.redis.Config("stop-writes-on-bgsave-error", "no")
	f.release()
	s.shared(1)
	f.stop()
	s.settled()
	w.leave()
}

// A variable that cannot be read is told beside what else is wrong, each thing once and by the name of what gave it.
func TestUnreadableVariables(t *testing.T) {
	t.Setenv("MAIL_SENDER_LEASE", "soon")
	t.Setenv("MAIL_SENDER_TRIES", "-1")
	t.Setenv("MAIL_SENDER_COUNT", "few")
	t.Setenv("MAIL_SENDER_PEERS", "some")
	for args, want := range map[string][]string{
		"mail-sender work --name a{b --masters redis://a --redis http://x": {"$MAIL_SENDER_LEASE: ", "$MAIL_SENDER_TRIES -1: ", `name "a{b": `, "--masters: ", "--redis: "},
		"mail-sender send --name a{b --redis http://x":                     {"$MAIL_SENDER_COUNT: ", `name "a{b": `, "--redis: "},
		"mail-sender demo --mails 0":                                       {"$MAIL_SENDER_PEERS: ", "0 mails: "},
		"mail-sender --mails 0":                                            {"$MAIL_SENDER_PEERS: ", "0 mails: "},
	} {
		words := strings.Fields(args)
		out, code := run(t, words[0], words[1:]...)
		if code != 2 || strings.Count(out, "\n") != len(want) {
			t.Errorf("%s: exit code %d, want 2 and %d lines:\n%s", args, code, len(want), out)
		}
		for _, says := range want {
			if strings.Count(out, says) != 1 {
				t.Errorf("%s does not say %q once:\n%s", args, says, out)
			}
		}
	}
}

// A variable that is misspelt is one that nothing reads: the programs say so, and which it may have been meant for.
func TestMisspeltVariables(t *testing.T) {
	t.Setenv("MAIL_SENDER_NAMES", "x")
	t.Setenv("COUNTOFF_REDIS_ULR", "redis://127.0.0.1:1")
	t.Setenv("COUNTOFF_GRACE", "60s") // of peers
	for args, want := range map[string]string{
		"mail-sender send --redis=":   "mail-sender send: $MAIL_SENDER_NAMES is set, and no command of mail-sender reads it: did you mean $MAIL_SENDER_NAME?\n",
		"countoff status x --redis=":  "countoff status: $COUNTOFF_REDIS_ULR is set, and no command of countoff reads it: did you mean $COUNTOFF_REDIS_URL?\n",
		"countoff version":            "",
		"countoff __complete status ": "",
	} {
		words := strings.Fields(args)
		if out, _ := run(t, words[0], words[1:]...); !strings.Contains(out, want) || strings.Contains(out, "reads it") != (want != "") || strings.Contains(out, "GRACE") {
			t.Errorf("%s says\n%s", args, out)
		}
	}
}
