package kafkasource

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// ownerCommand is the word with which the tests run themselves as an owner in a process
// of its own.
const ownerCommand = "owner"

// An ownerOf is what such a process is told.
type ownerOf struct {
	Name, Topic string
	Brokers     []string
	Redis       string // host:port; empty: the progress is kept in Kafka
}

// own is an owner that keeps no lease: it opens partition 0 under epoch 1, takes three
// tasks and settles the first, says so, and waits for a line. Then it settles the others,
// as whoever was paused in between does, and says what came of it.
func own(in io.Reader, out io.Writer, args string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*testPatience)
	defer cancel()
	var o ownerOf
	if err := json.Unmarshal([]byte(args), &o); err != nil {
		return err
	}
	brokers := []kgo.Opt{kgo.SeedBrokers(o.Brokers...)}
	var store Store
	var err error
	if o.Redis != "" {
		client := redis.NewClient(&redis.Options{Addr: o.Redis})
		defer client.Close()
		store, err = redisprogress.NewStore(client, o.Name)
	} else {
		store, err = kafkaprogress.NewStore(o.Name, kafkaprogress.Config{Topic: o.Topic, Options: brokers})
	}
	if err != nil {
		return err
	}
	src, err := New(o.Name, store, Config{Topic: o.Topic, Options: brokers})
	if err != nil {
		return err
	}
	st, err := src.Open(ctx, partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "paused"})
	if err != nil {
		return err
	}
	var tasks []sources.Task
	for len(tasks) < 3 {
		more, err := st.Fetch(ctx, 3-len(tasks))
		if err != nil {
			return err
		}
		tasks = append(tasks, more...)
	}
	done := func(tasks ...sources.Task) error {
		var all []sources.Settlement
		for _, t := range tasks {
			all = append(all, sources.Settlement{Task: &t, Outcome: sources.Done, Attempt: 1})
		}
		return st.Settle(ctx, all...)
	}
	if err := done(tasks[0]); err != nil {
		return err
	}
	fmt.Fprintln(out, "works")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	switch err := done(tasks[1:]...); {
	case errors.Is(err, sources.ErrFenced):
		fmt.Fprintln(out, "fenced")
	default:
		fmt.Fprintln(out, "settled:", err)
	}
	return nil
}

// An owner whose process is stopped, and goes on when another has followed it, settles
// nothing: the truth stays where its successor has brought it.
func TestPausedProcess(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 6)
		args := ownerOf{Name: s.name, Topic: s.topic, Brokers: s.broker.Seeds()}
		if !s.inKafka {
			single, ok := s.redis.(interface{ Options() *redis.Options })
			if !ok {
				s.Skipf("a client %T: the other process is told one address", s.redis)
			}
			args.Redis = single.Options().Addr
		}
		told, err := json.Marshal(args)
		if err != nil {
			s.Fatal(err)
		}
		cmd := exec.CommandContext(s.soon(), os.Args[0], ownerCommand, string(told))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			s.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			s.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			s.Fatal(err)
		}
		says := bufio.NewReader(out)
		line := func() string {
			word, _ := says.ReadString('\n') // the end shows as no word
			return strings.TrimSpace(word)
		}
		if word := line(); word != "works" {
			s.Fatalf("the owner says %q", word)
		}
		signal := func(sig syscall.Signal) {
			s.Helper()
			if err := cmd.Process.Signal(sig); err != nil {
				s.Fatal(err)
			}
		}
		signal(syscall.SIGSTOP)
		// It stops some time after it was told to; what follows it must not find before.
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			s.Fatalf("the owner does not stop: %v, %v", status, err)
		}
		fmt.Fprintln(in, "go on") // it finds that when it wakes up

		s.epoch = 1
		next := s.open(s.source(Config{}), 0)
		for n := range 4 { // suspects come one at a time
			task := s.take(next, 1)[0]
			s.want("the successor", task, fmt.Sprint("t", n+1))
			s.settle(next, sources.Done, task)
		}
		signal(syscall.SIGCONT)
		if word := line(); word != "fenced" {
			s.Errorf("the owner that was paused says %q", word)
		}
		if err := cmd.Wait(); err != nil {
			s.Errorf("the owner that was paused: %v", err)
		}
		s.until("the group", func() bool { return s.committed(s.name, 0) == 5 })
		s.close(next)
		s.want("the next owner", s.take(s.open(s.source(Config{}), 0), 1)[0], "t5")
		if at := s.committed(s.name, 0); at != 5 {
			s.Errorf("the group stands at %d, want 5", at)
		}
	})
}
