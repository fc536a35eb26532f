package natscounter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/countoff/countoff/partition/intervalindexer"
)

// gets is how many keys are read at once: JetStream's client reads one with each call.
const gets = 32

// A Config says where the counts stand. The zero value is ready.
type Config struct {
	// Bucket of the keys. It is made if it is not there. Default "countoff".
	Bucket string
	// Replicas of a bucket that is made: 1 to 5, an odd number of a cluster's servers. One
	// that is there stays as it is. Default 1.
	Replicas int
}

// WithDefaults returns c with zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.Bucket == "" {
		c.Bucket = "countoff"
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	return c
}

// Validate says all that is wrong with c, after defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if strings.ContainsFunc(c.Bucket, func(r rune) bool { return !plain(r) }) {
		errs = append(errs, fmt.Errorf("natscounter: bucket %q: want letters, digits, - and _", c.Bucket))
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		errs = append(errs, fmt.Errorf("natscounter: %d replicas: want 1 to 5", c.Replicas))
	}
	return errors.Join(errs...)
}

// A Counter increments keys of a bucket. It may be used concurrently.
type Counter struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	cfg    Config
	bucket atomic.Pointer[jetstream.Stream] // the stream below the bucket, once it is known to be there
}

var _ intervalindexer.Counter = (*Counter)(nil)

// New returns a Counter on conn, which it does not close, and calls nobody. A connection that
// was not made by [Open] is best given nats.ReconnectBufSize(-1): what it kept while it was
// cut off would be counted when its interval is long over.
func New(conn *nats.Conn, cfg Config) (*Counter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("natscounter: %w", err)
	}
	return &Counter{conn: conn, js: js, cfg: cfg.WithDefaults()}, nil
}

// Reach returns nil if the bucket is there. It makes it if it is not.
func (c *Counter) Reach(ctx context.Context) error {
	c.bucket.Store(nil)
	if err := c.again(ctx, func(jetstream.Stream) error { return nil }); err != nil {
		return c.explain("reach bucket "+c.cfg.Bucket, err)
	}
	return nil
}

// Incr implements intervalindexer.Counter. Times to live last whole seconds: expiry is
// rounded up to the next.
func (c *Counter) Incr(ctx context.Context, key string, expiry time.Duration) (n int64, err error) {
	err = c.again(ctx, func(bucket jetstream.Stream) error {
		n, err = c.incr(ctx, bucket, key, expiry)
		return err
	})
	if err != nil {
		return 0, c.explain("incr "+key, err)
	}
	return n, nil
}

func (c *Counter) incr(ctx context.Context, bucket jetstream.Stream, key string, expiry time.Duration) (int64, error) {
	ttl := (expiry + time.Second - 1).Truncate(time.Second)
	if age := bucket.CachedInfo().Config.MaxAge; age > 0 && age < ttl {
		c.bucket.Store(nil) // it may be mended before the next call
		return 0, fmt.Errorf("the bucket keeps a key for %v, and what is counted must stay for %v: nats kv edit %s --ttl %[2]v, or give another bucket", age, ttl, c.cfg.Bucket)
	}
	for try := 0; ; try++ {
		n, revision, err := c.read(ctx, bucket, key)
		if err != nil {
			return 0, err
		}
		n++
		// No attempt of the client's own: it sends again what it heard nothing of.
		_, err = c.js.PublishMsg(ctx, &nats.Msg{Subject: c.subject(key), Data: strconv.AppendInt(nil, n, 10)},
			jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(ttl), jetstream.WithRetryAttempts(0))
		if err == nil {
			return n, nil
		}
		if !overtaken(err) {
			return 0, err
		}
		if !sleep(ctx, rand.N(time.Millisecond<<min(try, 6))) {
			return 0, ctx.Err()
		}
	}
}

// Get implements intervalindexer.Counter. Of a bucket with replicas any of them answers, so
// that what was written just now may be missing.
func (c *Counter) Get(ctx context.Context, keys ...string) ([]int64, error) {
	values := make([]int64, len(keys))
	err := c.again(ctx, func(bucket jetstream.Stream) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(gets)
		for i, key := range keys {
			group.Go(func() (err error) {
				values[i], _, err = c.read(ctx, bucket, key)
				return err
			})
		}
		return group.Wait()
	})
	if err != nil {
		return nil, c.explain(fmt.Sprintf("get %s and %d more", keys[0], len(keys)-1), err)
	}
	return values, nil
}

// read returns the value of key and the revision to compare with, 0 if it never was there.
func (c *Counter) read(ctx context.Context, bucket jetstream.Stream, key string) (n int64, revision uint64, err error) {
	m, err := last(ctx, bucket, c.subject(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if gone(m.Header) {
		return 0, m.Sequence, nil
	}
	if n, err = strconv.ParseInt(string(m.Data), 10, 64); err != nil {
		return 0, 0, fmt.Errorf("%s is no counter: %w", keyOf(key), err)
	}
	return n, m.Sequence, nil
}

// last returns the newest message of a subject. Any replica may be asked, and one that is gone without a word is
// until the servers notice, minutes later: if there is no answer in a quarter of the time left, maybe another is asked
// too. The first answer counts, so that those who are slow are not given up.
func last(ctx context.Context, bucket jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	const least = 20 * time.Millisecond
	end, bounded := ctx.Deadline()
	if !bounded {
		return bucket.GetLastMsgForSubject(ctx, subject)
	}
	type answer struct {
		m   *jetstream.RawStreamMsg
		err error
	}
	answers := make(chan answer)
	var asked sync.WaitGroup
	defer asked.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		asked.Go(func() {
			m, err := bucket.GetLastMsgForSubject(ctx, subject)
			select {
			case answers <- answer{m, err}:
			case <-ctx.Done():
			}
		})
		select {
		case a := <-answers:
			return a.m, a.err
		case <-time.After(max(time.Until(end)/4, least)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// gone reports whether a message marks that a key was deleted, or has expired.
func gone(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// overtaken reports whether somebody else wrote the key after it was read.
func overtaken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) // with replicas
}

// A bucket that was made just now, or whose servers have just started, is not to be found on
// every server of a cluster at once: calls are tried that often, with pauses that double.
const (
	tries = 6
	pause = 10 * time.Millisecond
)

// again has do called with the bucket, and again where nobody had it: nothing was done then.
func (c *Counter) again(ctx context.Context, do func(jetstream.Stream) error) error {
	for try := 1; ; try++ {
		bucket, err := c.stream(ctx)
		if err == nil {
			err = do(bucket)
		}
		if !absent(err) || try == tries || !sleep(ctx, pause<<try) {
			return err
		}
		c.bucket.Store(nil)
	}
}

// absent reports whether nobody has the bucket: what was asked for was not done.
func absent(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stream returns what lies below the bucket, which it makes if it is not there.
func (c *Counter) stream(ctx context.Context) (jetstream.Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// A connection of other making may keep what it cannot send, and send it late.
	if s := c.conn.Status(); s != nats.CONNECTED {
		if last := c.conn.LastError(); last != nil {
			return nil, fmt.Errorf("%w: %v: %w", errNotConnected, s, last)
		}
		return nil, fmt.Errorf("%w: %v", errNotConnected, s)
	}
	if known := c.bucket.Load(); known != nil {
		return *known, nil
	}
	name := "KV_" + c.cfg.Bucket
	found, err := c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: c.cfg.Bucket, Replicas: c.cfg.Replicas,
			Description:    "countoff: who was counted in which interval",
			LimitMarkerTTL: time.Second, // the least: without it no key has a time to live of its own
		})
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another peer was faster
			found, err = c.js.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, err
	}
	if !found.CachedInfo().Config.AllowMsgTTL {
		return nil, errNoTTL
	}
	c.bucket.Store(&found)
	return found, nil
}

func (c *Counter) subject(key string) string { return "$KV." + c.cfg.Bucket + "." + keyOf(key) }

// keyOf returns what key is called in a bucket: {mail-sender}:359093027:2 is mail-sender.359093027.2,
// and what a bucket does not allow in a key is =XX there, as in mail=2Esender.
func keyOf(key string) string {
	var b strings.Builder
	for _, c := range []byte(key) {
		switch {
		case plain(rune(c)):
			b.WriteByte(c)
		case c == ':':
			b.WriteByte('.')
		case c == '{' || c == '}': // a hash tag of Redis
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func plain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
