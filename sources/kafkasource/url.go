package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/countoff/countoff/partition/urltls"
	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
)

// Options returns what a URL says of the brokers:
//
//	kafka://host:9092,host2:9092
//	kafka://user:password@host:9092?sasl=scram-sha-512
//	kafkas://user:password@host:9093?sasl=plain&ca=/etc/kafka/ca.pem
//
// kafkas is kafka over TLS. Parameters: sasl (plain, scram-sha-256 or scram-sha-512;
// needed with a user), ca (file of the authorities to trust instead of the system's),
// cert and key (files of a certificate of our own), name (the name in the broker's
// certificate, if it is not the host's). The port may be left out: 9092, with TLS 9093.
func Options(address string) ([]kgo.Opt, error) {
	u, err := parse(address)
	if err != nil {
		return nil, err
	}
	secure := u.Scheme == "kafkas"
	if u.Scheme != "kafka" && !secure {
		return nil, fmt.Errorf("kafkasource: URL %s: want kafka:// or kafkas://", u.Redacted())
	}
	if u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("kafkasource: URL %s: want brokers and no path, as in kafka://host:9092", u.Redacted())
	}
	brokers, err := seeds(u.Host, secure)
	if err != nil {
		return nil, fmt.Errorf("kafkasource: URL %s: %w", u.Redacted(), err)
	}
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...)}
	query := u.Query()
	mechanism, err := login(u.User, query.Get("sasl"))
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	if secure {
		t, err := urltls.Config(query)
		if err != nil {
			return nil, fmt.Errorf("kafkasource: URL %s: %w", u.Redacted(), err)
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	for name := range query {
		switch {
		case name == "sasl":
		case urltls.Is(name):
			if !secure {
				return nil, fmt.Errorf("kafkasource: URL %s: the parameter %s is for kafkas://", u.Redacted(), name)
			}
		default:
			return nil, fmt.Errorf("kafkasource: URL %s: unknown parameter %s", u.Redacted(), name)
		}
	}
	return opts, nil
}

// parse reads a URL whose hosts are several brokers, each by itself: package url takes them for one, which it refuses
// if an IPv6 address is among them. An error says nothing of a URL that may have a password: where that was not
// escaped it is taken for path and parameters.
func parse(address string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok && !strings.Contains(address, "@") {
		return nil, fmt.Errorf("kafkasource: URL %s: want kafka:// or kafkas://", address)
	}
	authority, more := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, more = rest[:i], rest[i:]
	}
	at := strings.LastIndex(authority, "@") + 1
	hosts := strings.Split(authority[at:], ",")
	u, err := url.Parse(scheme + "://" + authority[:at] + more)
	ok = ok && err == nil && !spilled(more)
	for i, h := range hosts {
		broker, err := url.Parse("kafka://" + h)
		if err != nil || broker.Host == "" && len(hosts) > 1 {
			ok = false
			break
		}
		hosts[i] = broker.Host // without escapes, as of the zone of an address
	}
	if !ok {
		return nil, errors.New("kafkasource: the URL cannot be parsed: want kafka://host:9092, with special characters of the password as %XX")
	}
	u.Host = strings.Join(hosts, ",")
	return u, nil
}

// spilled reports whether what follows the brokers is of a password that was not escaped: it has an @, and not in the
// name of a file or a broker.
func spilled(more string) bool {
	more, fragment, _ := strings.Cut(more, "#")
	path, query, _ := strings.Cut(more, "?")
	if strings.Contains(path+fragment, "@") {
		return true
	}
	for parameter := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(parameter, "="); strings.Contains(parameter, "@") && !urltls.Is(name) {
			return true
		}
	}
	return false
}

// seeds returns the addresses of the brokers. A port that is none is an error: nobody would answer there, as if
// the broker were down.
func seeds(hosts string, secure bool) ([]string, error) {
	list := strings.Split(hosts, ",")
	for i, h := range list {
		_, port, err := net.SplitHostPort(h)
		if err != nil { // without a port
			if secure { // else the client's default does
				list[i] = net.JoinHostPort(strings.Trim(h, "[]"), "9093")
			}
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("port %s: want 1 to 65535", port)
		}
	}
	return list, nil
}

// login returns how to authenticate; nil: not at all.
func login(user *url.Userinfo, mechanism string) (sasl.Mechanism, error) {
	if user == nil {
		if mechanism != "" {
			return nil, fmt.Errorf("kafkasource: URL: sasl=%s needs a user and a password", mechanism)
		}
		return nil, nil
	}
	password, _ := user.Password()
	switch strings.ToLower(mechanism) {
	case "plain":
		return plain.Auth{User: user.Username(), Pass: password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: user.Username(), Pass: password}.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return scram.Auth{User: user.Username(), Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("kafkasource: URL: a user needs sasl=plain, scram-sha-256 or scram-sha-512, not %q", mechanism)
}

// reach asks any broker for an answer. It tries each once and says why it failed; the other
// requests try for as long as they may, and then only say that time is up. Where nobody
// listens the error says who was asked: that of the last address is not that of the others.
func reach(ctx context.Context, client *kgo.Client) error {
	err := prompt.Client{Client: client}.Ping(ctx)
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		seeds, _ := client.OptValue(kgo.SeedBrokers).([]string)
		return fmt.Errorf("%w; tried %s", err, strings.Join(seeds, ", "))
	}
	return err
}

// explainDial adds to an error of the connection what to do about it.
func explainDial(err error) error {
	hint := urltls.Hint(err, "kafka://")
	var first *kgo.ErrFirstReadEOF
	var dial *net.OpError
	switch {
	case hint != "":
	case errors.As(err, &dial) && dial.Op == "dial":
		hint = "start the broker, or correct its address: in the URL, or where it is one that the brokers tell, in their advertised.listeners"
	case errors.As(err, &first), errors.Is(err, syscall.ECONNRESET):
		hint = "does the port speak what the URL says? kafkas:// is with TLS, kafka:// without, ?sasl= with a password"
		if first == nil {
			hint = "the broker was killed, or cut off; if it never answers: " + hint
		}
	case errors.Is(err, io.EOF):
		hint = "the broker has hung up: it is being stopped, or refuses the user or the password"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded): // of a call, or of a connection
		hint = "no broker has answered in time: is it stopped, cut off, or overloaded?"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}
