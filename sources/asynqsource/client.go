package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

// A ClientConfig is what a [Client] is told. The zero value takes what stands under the
// name, else the default.
type ClientConfig struct {
	Partitions int
	Hash       partition.Hash
}

// A Client is an asynq.Client that puts each task into the queue of its key, of the
// queues name:0 .. name:P-1 that a [Source] of this name consumes, and tells the key to
// the consumer. It takes the tasks and options of asynq, except Queue. Its methods may be
// called concurrently.
type Client struct {
	name   string
	layout partition.Config
	asynq  *asynq.Client
	turn   atomic.Uint64 // queue of the next task without a key
}

// NewClient makes a client for name. It reads the configuration of the name, and writes
// it if none stands; an error that wraps partition.ErrConfig says that another does. The
// redis client stays the caller's.
func NewClient(ctx context.Context, client redis.UniversalClient, name string, cfg ClientConfig) (*Client, error) {
	layout, err := redisconfig.Asynq.AgreePartitions(ctx, client, name, partition.Config{Total: cfg.Partitions, Hash: cfg.Hash})
	if err != nil {
		return nil, err
	}
	queues, err := agreeField(ctx, client, name, "") // tools know by it where the tasks are
	if err != nil {
		return nil, err
	}
	if queues != "" {
		return nil, fmt.Errorf("asynqsource: the partitions of %s are queues with names of their own (%q): fill them with asynq's client: %w",
			name, queues, partition.ErrConfig)
	}
	return &Client{name: name, layout: layout, asynq: asynq.NewClientFromRedisClient(&marker{client})}, nil
}

// Queue returns the queue of a key, for an asynq.Client, Scheduler or
// PeriodicTaskManager of your own. Tasks they put there have the key of their header
// [HeaderKey], else that of Config.Key. The queues of the empty key take turns. It fails
// only where the hash wants a number as the key.
func (c *Client) Queue(key string) (string, error) {
	if key == "" {
		return QueueOf(c.name, partition.OfID(c.turn.Add(1)-1, c.layout.Total)), nil
	}
	id, err := c.layout.Hash.Of(key, c.layout.Total)
	if err != nil {
		return "", err
	}
	return QueueOf(c.name, id), nil
}

// Enqueue is [Client.EnqueueContext] without a context.
func (c *Client) Enqueue(key string, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	return c.EnqueueContext(context.Background(), key, task, opts...)
}

// EnqueueContext enqueues a task. Tasks of one key run one at a time, in the order in which they
// became pending. Those with an empty key go round robin and are unordered, unless opts have
// Unique, TaskID or Group (those that the task itself was made with do not count): then the queue
// follows from what may be there only once, else from the group, since asynq looks for the other
// task, and for the others of a group, in the same queue alone.
func (c *Client) EnqueueContext(ctx context.Context, key string, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if !utf8.ValidString(key) {
		return nil, fmt.Errorf("asynqsource: key %q: want UTF-8, as asynq's messages are", key)
	}
	queue, bound := c.queueBound(task, opts)
	if key != "" || !bound {
		var err error
		if queue, err = c.Queue(key); err != nil {
			return nil, err
		}
	}
	return c.asynq.EnqueueContext(context.WithValue(ctx, markKey{}, key), task, append(slices.Clip(opts), asynq.Queue(queue))...)
}

// queueBound returns the queue in which asynq would find the other task that has what opts say that
// only one may have, or the others of the task's group.
func (c *Client) queueBound(task *asynq.Task, opts []asynq.Option) (queue string, bound bool) {
	var id, group string
	var unique, alone, grouped bool
	for _, o := range opts {
		switch o.Type() {
		case asynq.UniqueOpt:
			unique = true
		case asynq.TaskIDOpt:
			id, alone = fmt.Sprint(o.Value()), true
		case asynq.GroupOpt:
			group, grouped = fmt.Sprint(o.Value()), true
		}
	}
	switch {
	case unique: // asynq's lock is of type and payload, whatever the id
		id = task.Type() + "\x00" + string(task.Payload())
	case !alone:
		id = group
	}
	return QueueOf(c.name, partition.Of(id, c.layout.Total)), unique || alone || grouped
}

// A marker is the redis client of asynq's client. Tasks are made by the caller, who may
// have given them no map of headers, so the key is appended to the encoded message: it
// is the one argument of asynq's scripts that is not text or a number.
type marker struct{ redis.UniversalClient }

type markKey struct{}

var errUnmarked = errors.New("asynqsource: asynq's script has no encoded message among its arguments")

// EvalSha adds the key.
func (m *marker) EvalSha(ctx context.Context, sha string, names []string, args ...any) *redis.Cmd {
	args, err := mark(ctx, args)
	if err != nil {
		return unsent(ctx, err)
	}
	return m.UniversalClient.EvalSha(ctx, sha, names, args...)
}

// Eval adds the key.
func (m *marker) Eval(ctx context.Context, source string, names []string, args ...any) *redis.Cmd {
	args, err := mark(ctx, args)
	if err != nil {
		return unsent(ctx, err)
	}
	return m.UniversalClient.Eval(ctx, source, names, args...)
}

func unsent(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// mark returns args with the key of ctx in the message.
func mark(ctx context.Context, args []any) ([]any, error) {
	key, ok := ctx.Value(markKey{}).(string)
	if !ok {
		return nil, errUnmarked
	}
	marked := append([]any(nil), args...)
	for i, a := range marked {
		message, ok := a.([]byte)
		if !ok {
			continue
		}
		if key != "" {
			message = appendHeader(slices.Clip(message), HeaderKey, key)
		}
		marked[i] = appendHeader(slices.Clip(message), HeaderBorn, strconv.FormatInt(time.Now().UnixMilli(), 10))
		return marked, nil
	}
	return nil, errUnmarked
}
