package kafkafx_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

// What does not say which name it was made for is taken for that of any consumer: whoever gives two
// parts of one consumer two names hears of it only if all of ours do.
func TestAllPartsSayTheirName(t *testing.T) {
	t.Parallel()
	const name = "mail"
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody is called
	t.Cleanup(func() { client.Close() })
	said := func(part any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if named, ok := part.(partition.Named); !ok || named.Name() != name {
			t.Errorf("%T does not say its name", part)
		}
	}
	ledger, err := redisledger.New(client, name, redisledger.Config{})
	said(ledger, err)
	lists, err := redissource.New(client, name, redissource.Config{})
	said(lists, err)
	queues, err := asynqsource.New(client, name, asynqsource.Config{Queues: []string{"default"}})
	said(queues, err)
	inRedis, err := redisprogress.NewStore(client, name)
	said(inRedis, err)
	brokers := []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}
	inKafka, err := kafkaprogress.NewStore(name, kafkaprogress.Config{Topic: "mails", Options: brokers})
	said(inKafka, err)
	topic, err := kafkasource.New(name, inRedis, kafkasource.Config{Topic: "mails", Options: brokers})
	said(topic, err)
	t.Cleanup(func() { topic.Close() })
}
