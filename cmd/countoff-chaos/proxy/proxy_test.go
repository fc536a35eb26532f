package proxy

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line with itself.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					fmt.Fprintln(c, in.Text())
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestProxy(t *testing.T) {
	p, err := Start(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(10 * time.Second))
		return c, bufio.NewReader(c)
	}
	say := func(c net.Conn, r *bufio.Reader) error {
		fmt.Fprintln(c, "hello")
		line, err := r.ReadString('\n')
		if err == nil && line != "hello\n" {
			t.Errorf("got %q", line)
		}
		return err
	}

	c, r := dial()
	if err := say(c, r); err != nil {
		t.Fatal(err)
	}

	p.Set(Mode{Delay: 30 * time.Millisecond})
	began := time.Now()
	if err := say(c, r); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("a delay of 30 ms each way took %v", took)
	}

	p.Set(Mode{Silent: true})
	answered := make(chan error, 1)
	go func() { answered <- say(c, r) }()
	select {
	case err := <-answered:
		t.Errorf("a silent proxy let something through: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	p.Set(Mode{})
	if err := <-answered; err != nil {
		t.Errorf("what was held back did not arrive: %v", err)
	}

	p.Set(Mode{Cut: true})
	if err := say(c, r); err == nil {
		t.Error("a cut connection answered")
	}
	if c, r := dial(); say(c, r) == nil {
		t.Error("a cut proxy answered a new connection")
	}
	p.Set(Mode{})
	c, r = dial()
	if err := say(c, r); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}
