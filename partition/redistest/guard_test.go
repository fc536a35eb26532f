package redistest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/partition/redistest/redisserver"
)

const orphanV = "COUNTOFF_REDISTEST_ORPHAN"

// TestOrphan is run by TestServerDiesWithTheTestBinary in a process of its own, which
// is killed meanwhile.
func TestOrphan(t *testing.T) {
	if os.Getenv(orphanV) == "" {
		t.Skip("for TestServerDiesWithTheTestBinary")
	}
	if _, _, err := redisserver.Temporary(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := redistest.Server(t)
	os.Stdout.WriteString("server " + p.Addr() + "\n")
	p.Pause() // also one that stands still
	<-t.Context().Done()
}

// A test binary that is killed runs no cleanup, and leaves no server behind, and no files of a temporary one. Nor does one whose
// terminal is closed or whose group is told to end, which redis-server does not care about.
func TestServerDiesWithTheTestBinary(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server in PATH")
	}
	for name, end := range map[string]func(*os.Process) error{
		"killed":              (*os.Process).Kill,
		"its terminal closed": func(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGHUP) },
		"its group ended":     func(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orphaned(t, end)
		})
	}
}

func orphaned(t *testing.T, end func(*os.Process) error) {
	t.Helper()
	// A signal that we listen to is as usual for what we start: under nohup it would be ignored there.
	listen := make(chan os.Signal, 1)
	signal.Notify(listen, syscall.SIGHUP)
	defer signal.Stop(listen)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOrphan$", "-test.timeout=60s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell starts it
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), orphanV+"=yes", "TMPDIR="+dir) // it cleans nothing up
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "server ")
	if err != nil || !ok {
		t.Fatalf("it said %q, %v", line, err)
	}
	if err := end(cmd.Process); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := client.Ping(ctx).Err()
		cancel()
		gone := err != nil && strings.Contains(err.Error(), "refused")
		left, _ := filepath.Glob(filepath.Join(dir, "countoff-store-*"))
		if gone && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) && gone {
			t.Fatalf("a temporary server has left its files: %v", left)
		}
		if time.Now().After(deadline) {
			client.ShutdownNoSave(t.Context()) // not for good
			t.Fatalf("the server at %s is there after its test was killed: %v", addr, err)
		}
		<-tick.C
	}
}
