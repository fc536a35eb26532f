package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Refusing returns a client of a server that refuses it the connection of each pipeline for which refused says so, as
// a server does whose password is not right any more, or that has too many clients.
func Refusing(t testing.TB, server *Process, refused func(cmds []redis.Cmder) bool) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:            server.Addr(),
		ConnMaxLifetime: time.Nanosecond, // every call needs a new one
		CredentialsProviderContext: func(ctx context.Context) (user, password string, err error) {
			if ctx.Value(refusedKey{}) != nil {
				return "nobody", "wrong", nil
			}
			return "", "", nil
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(refusing(refused))
	t.Cleanup(func() { client.Close() })
	return client
}

type refusing func(cmds []redis.Cmder) bool

// refusedKey marks the context of a pipeline that is refused its connection.
type refusedKey struct{}

func (refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		own := cmds[0].Name() == "hello" || cmds[0].Name() == "client" // go-redis itself begins a connection
		if !own && r(cmds) {
			ctx = context.WithValue(ctx, refusedKey{}, true)
		}
		return next(ctx, cmds)
	}
}
