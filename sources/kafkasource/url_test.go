package kafkasource

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
)

func TestURL(t *testing.T) {
	t.Parallel()
	for address, says := range map[string]string{
		"kafka://host:9092,other:9092":                     "",
		"kafka://host":                                     "",
		"kafkas://host?name=broker":                        "",
		"kafka://ann:secret@host:9092?sasl=plain":          "",
		"kafkas://ann:secret@host:9093?sasl=SCRAM-SHA-512": "",
		"redis://host":                                     "want kafka:// or kafkas://",
		"host:9092":                                        "URL host:9092: want kafka:// or kafkas://",
		"kafka://":                                         "want brokers",
		"kafka://host/topic":                               "no path",
		"kafka://ann:secret@host":                          "a user needs sasl=",
		"kafka://ann:secret@host?sasl=gssapi":              "not \"gssapi\"",
		"kafka://host?sasl=plain":                          "needs a user",
		"kafka://host?ca=x.pem":                            "is for kafkas://",
		"kafkas://host?cert=x.pem":                         "go together",
		"kafkas://host?ca=/no/such/file":                   "no such file",
		"kafka://ann:secret@host?sasl=plain&color=red":     "unknown parameter color",
		"kafka://ann:sec%ret@host:9092":                    "cannot be parsed",
		"kafka://ann:secret@host:99999?sasl=plain":         "port 99999: want 1 to 65535",
		"kafka://host:9092,[::1]:0":                        "port 0: want 1 to 65535",
		"kafkas://host:9093,other:port":                    "cannot be parsed",
		"kafka://host:9092,ot her:9092":                    "cannot be parsed",
		"kafka://host:9092,":                               "cannot be parsed", // else a second one, on this machine
		"kafka://[::1]:9092,[::1],host:9093":               "",
		"kafkas://host?ca=/no/such@file":                   "open /no/such@file",
		"kafka://ann:7/secret@host:9092?sasl=plain":        "cannot be parsed",
		"kafka://ann:7?secret@host:9092":                   "cannot be parsed",
		"kafka://ann:7?sasl=secret@host:9092":              "cannot be parsed",
		"kafka://ann:7#secret@host:9092":                   "cannot be parsed",
		"kafka:/ann:secret@host:9092":                      "cannot be parsed",
	} {
		_, err := Options(address)
		switch {
		case says == "" && err != nil:
			t.Errorf("%s: %v", address, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%s: %v, want %q", address, err, says)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the password is told: %v", address, err)
		}
	}
	for address, want := range map[string][]string{
		"a,b:1,c": {"a:9093", "b:1", "c:9093"}, "127.0.0.1": {"127.0.0.1:9093"}, "[::1]:5,[::1]": {"[::1]:5", "[::1]:9093"},
		"::1": {"[::1]:9093"},
	} {
		if got, err := seeds(address, true); err != nil || !slices.Equal(got, want) {
			t.Errorf("seeds of %s: %v, %v, want %v", address, got, err, want)
		}
	}
	// What package url says of one broker holds for several.
	u, err := parse("kafka://[fe80::1%25eth0]:9092,[fe80::2%25eth0]:9092,b%C3%BCro:9092")
	if want := "[fe80::1%eth0]:9092,[fe80::2%eth0]:9092,büro:9092"; err != nil || u.Host != want {
		t.Errorf("brokers %v, %v, want %s", u, err, want)
	}
}

// secured is a broker with SASL or TLS, and the URL of the user ann.
type secured struct {
	broker  *kafkatest.Broker // a way in that needs neither
	address string            // host:port of the listener
	ca      string            // file, with TLS
}

func withSASL(t *testing.T) secured {
	if addr := os.Getenv("COUNTOFF_KAFKA_SASL"); addr != "" {
		return secured{broker: kafkatest.Real(t), address: addr}
	}
	b := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", "ann-secret"),
		kfake.Superuser("SCRAM-SHA-256", "ann", "ann-secret"), kfake.Superuser("SCRAM-SHA-512", "ann", "ann-secret"), kfake.SeedTopics(1, "orders"))
	return secured{broker: b, address: b.Seeds()[0]}
}

func withTLS(t *testing.T) secured {
	if addr := os.Getenv("COUNTOFF_KAFKA_TLS"); addr != "" {
		return secured{broker: kafkatest.Real(t), address: addr, ca: os.Getenv("COUNTOFF_KAFKA_CA")}
	}
	cert, ca := authority(t)
	b := kafkatest.Fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}), kfake.SeedTopics(1, "orders"))
	return secured{broker: b, address: b.Seeds()[0], ca: ca}
}

// authority makes a certificate for loopback that signs itself, and its file.
func authority(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// topicOf returns a topic that is there.
func (s secured) topicOf(t *testing.T) string {
	if s.broker.Cluster != nil {
		return "orders"
	}
	return s.broker.Topic(1)
}

// works does one task and buries another through the URL.
func works(t *testing.T, s secured, topic, address string) {
	t.Helper()
	opts, err := Options(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &stage{T: t, broker: s.broker, redis: newRedis(t), name: newName(t), topic: topic}
	src := b.source(Config{Options: opts, DeadTopic: topic + ".dead"})
	b.client = src.client
	b.push(0, "t", 2)
	st := b.open(src, 0)
	got := b.take(st, 2)
	b.settle(st, sources.Done, got[0])
	b.settle(st, sources.Dead, got[1])
	b.close(st)
}

// refuses asks for the layout and wants an error that says why not.
func refuses(t *testing.T, s secured, topic, address string, says ...string) {
	t.Helper()
	opts, err := Options(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &stage{T: t, broker: s.broker, redis: newRedis(t), name: newName(t), topic: topic}
	_, err = b.source(Config{Options: opts}).Layout(b.soon())
	for _, word := range says {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %q", err, word)
		}
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is told: %v", err)
	}
}

func TestSASL(t *testing.T) {
	t.Parallel()
	s := withSASL(t)
	topic := s.topicOf(t)
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			works(t, s, topic, "kafka://ann:ann-secret@"+s.address+"?sasl="+mechanism)
			refuses(t, s, topic, "kafka://ann:other-secret@"+s.address+"?sasl="+mechanism, "the user or the password")
		})
	}
	refuses(t, s, topic, "kafka://"+s.address, "SASL")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := withTLS(t)
	topic := s.topicOf(t)
	works(t, s, topic, "kafkas://"+s.address+"?ca="+url.QueryEscape(s.ca))
	refuses(t, s, topic, "kafkas://"+s.address, "certificate", "?ca=")
	refuses(t, s, topic, "kafka://"+s.address, "TLS")
}

// A broker that speaks no TLS hangs up, or breaks off with what it has not read: the error does not
// ask for the TLS that is there.
func TestTLSWhereNoneIsSpoken(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn) error{
		"hangs up":   func(c *net.TCPConn) error { return c.CloseWrite() },
		"breaks off": func(c *net.TCPConn) error { return c.SetLinger(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 1)) // its hello
					_ = end(c.(*net.TCPConn))
					c.Close()
				}
			}()
			t.Cleanup(func() { l.Close(); <-done })
			opts, err := Options("kafkas://" + l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			b := &stage{T: t, redis: newRedis(t), name: newName(t), topic: "orders"}
			if _, err := b.source(Config{Topic: "orders", Options: opts}).Layout(b.soon()); err == nil || !strings.Contains(err.Error(), "kafka:// without") {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// A broker that is killed resets its connections: that is not taken for another protocol.
func TestABrokerThatIsKilled(t *testing.T) {
	t.Parallel()
	err := explain(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})
	if !strings.Contains(err.Error(), "was killed") || !strings.Contains(err.Error(), "kafka:// without") {
		t.Errorf("it says %v", err)
	}
}

// A broker that hangs holds up who reads from it until the client gives up: that says so, as a call does that has no more time.
func TestABrokerThatHangs(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}} {
		if err := explain(err); !strings.Contains(err.Error(), "no broker has answered in time") {
			t.Errorf("it says %v", err)
		}
	}
}

// Who is not reached is named, all that were tried, by who works and by who requeues.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	var gone []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, l.Addr().String())
		l.Close()
	}
	opts, err := Options("kafka://" + strings.Join(gone, ","))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Topic: "orders", Options: opts}
	b := &stage{T: t, redis: newRedis(t), name: newName(t), topic: cfg.Topic}
	_, layout := b.source(cfg).Layout(b.soon())
	_, requeue := Requeue(b.soon(), "n", cfg, nil)
	if err := explain(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}); !strings.Contains(err.Error(), "start the broker") {
		t.Errorf("later it says %v", err) // as where the offsets of the group are read
	}
	for what, err := range map[string]error{"layout": layout, "requeue": requeue} {
		for _, word := range append(gone, "connection refused", "start the broker") {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %q", what, err, word)
			}
		}
		if strings.Count(err.Error(), "start the broker") > 1 {
			t.Errorf("%s: %v says it twice", what, err)
		}
	}
}

// A user who lacks rights is told which, one after the other, at the start.
func TestRights(t *testing.T) {
	t.Parallel()
	s := withSASL(t)
	if s.broker.Cluster != nil {
		t.Skip("on a broker with an authorizer: see .ci/kafka")
	}
	topic := s.topicOf(t)
	opts, err := Options("kafka://bob:bob-secret@" + s.address + "?sasl=scram-sha-512")
	if err != nil {
		t.Fatal(err)
	}
	b := &stage{T: t, broker: s.broker, redis: newRedis(t), name: newName(t), topic: topic}
	admin := kadm.NewClient(s.broker.Client())
	may := func(rights *kadm.ACLBuilder, ops ...kadm.ACLOperation) {
		t.Helper()
		rights = rights.Allow("User:bob").AllowHosts("*").Operations(ops...)
		made, err := admin.CreateACLs(b.soon(), rights)
		for _, m := range made {
			err = errors.Join(err, m.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = admin.DeleteACLs(b.soon(), rights) }) // the names are this test's own
	}
	// An authorizer learns of rights a moment after they were answered.
	until := func(says ...string) {
		t.Helper()
		var last error
		b.until(fmt.Sprint("an answer with ", says), func() bool {
			_, last = b.source(Config{Options: opts}).Layout(b.soon())
			for _, word := range says {
				if last == nil || !strings.Contains(last.Error(), word) {
					return false
				}
			}
			return last == nil || len(says) > 0
		})
	}
	until("topic "+topic, "TOPIC_AUTHORIZATION_FAILED", "READ and DESCRIBE")
	may(kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral), kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs)
	until("GROUP_AUTHORIZATION_FAILED", "READ on the group")
	may(kadm.NewACLs().Groups(b.name).ResourcePatternType(kadm.ACLPatternLiteral), kadm.OpRead)
	until("dead topic", "TOPIC_AUTHORIZATION_FAILED")
	may(kadm.NewACLs().Topics(topic+".dead").ResourcePatternType(kadm.ACLPatternLiteral), kadm.OpRead, kadm.OpWrite, kadm.OpCreate, kadm.OpDescribe)
	until()
	b.inKafka = true
	until("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "WRITE and DESCRIBE")
	may(kadm.NewACLs().TransactionalIDs(b.name+"-").ResourcePatternType(kadm.ACLPatternPrefixed), kadm.OpWrite, kadm.OpDescribe)
	until()
	b.client = s.broker.Client()
	b.push(0, "t", 2)
	st := b.open(b.source(Config{Options: opts}), 0)
	got := b.take(st, 2)
	b.settle(st, sources.Done, got[0])
	b.settle(st, sources.Dead, got[1])
	b.close(st)
}

// Who may see a topic, and not read it, or a dead topic, and not write to it, is told at the start, and not by
// the first letter: the broker is asked what the user may do. One that does not say is taken at its word.
func TestRightsThatAreMissedLater(t *testing.T) {
	t.Parallel()
	const all = 1<<kadm.OpDescribe | 1<<kadm.OpRead | 1<<kadm.OpWrite
	for _, c := range []struct {
		name       string
		live, dead int32
		says       string // empty: it may start
	}{
		{"all", all, all, ""},
		{"no READ", all &^ (1 << kadm.OpRead), all, "topic orders: "},
		{"no WRITE", all, all &^ (1 << kadm.OpWrite), "dead topic orders.dead: "},
		{"not told", math.MinInt32, math.MinInt32, ""},
		{"told nothing", 0, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stageOn(t, kafkatest.Fake(t), 1)
			s.topic = "orders"
			s.broker.Create(s.topic, 1)
			s.broker.Create(deadOf(s.topic), 1)
			src := s.source(Config{})
			s.broker.Cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				req := r.(*kmsg.MetadataRequest)
				if !req.IncludeTopicAuthorizedOperations {
					return nil, nil, false
				}
				reply := req.ResponseKind().(*kmsg.MetadataResponse)
				topic := kmsg.NewMetadataResponseTopic()
				topic.Topic = req.Topics[0].Topic
				topic.Partitions = []kmsg.MetadataResponseTopicPartition{kmsg.NewMetadataResponseTopicPartition()}
				topic.AuthorizedOperations = c.live
				if *topic.Topic != s.topic {
					topic.AuthorizedOperations = c.dead
				}
				reply.Topics = append(reply.Topics, topic)
				return reply, nil, true
			})
			_, err := src.Layout(s.soon())
			if c.says == "" && err != nil {
				t.Errorf("it does not start: %v", err)
			}
			if c.says != "" && (!errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("it says %v, want that %sthe user lacks rights", err, c.says)
			}
			if c.says != "" && err != nil && !strings.Contains(err.Error(), "on the dead topic, and CREATE if it is to be made") {
				t.Errorf("it says %v, want that CREATE is for a dead topic that is to be made", err)
			}
		})
	}
}

// No dead letter could ever be written to a dead topic whose name no broker takes.
func TestADeadTopicThatCannotBe(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	dead := deadOf(strings.Repeat("x", 249)) // a topic has 249 characters at most
	if s.broker.Cluster != nil {
		s.broker.Cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
			s.broker.Cluster.KeepControl()
			req := r.(*kmsg.MetadataRequest)
			if len(req.Topics) != 1 || req.Topics[0].Topic == nil || *req.Topics[0].Topic != dead {
				return nil, nil, false
			}
			reply := req.ResponseKind().(*kmsg.MetadataResponse)
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.ErrorCode = &dead, kerr.InvalidTopicException.Code
			reply.Topics = append(reply.Topics, topic)
			return reply, nil, true
		})
	}
	if _, err := s.source(Config{DeadTopic: dead}).Layout(s.soon()); !errors.Is(err, kerr.InvalidTopicException) || !strings.Contains(err.Error(), "dead topic "+dead) {
		t.Errorf("it says %v", err)
	}
}
