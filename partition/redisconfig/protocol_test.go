package redisconfig_test

import (
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

func TestResizeKeepsTheProtocolOfTags(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 4}); err != nil {
		t.Fatal(err)
	}
	client.HSet(ctx, redisconfig.Key(name), "protocol", partition.TagsProtocol, "requires", "0-1=gpu")
	r, err := redisconfig.BeginResize(ctx, client, name, 8, "id")
	if err != nil {
		t.Fatal(err)
	}
	if err := redisconfig.EndResize(ctx, client, name, r); err != nil {
		t.Fatal(err)
	}
	if p := client.HGet(ctx, redisconfig.Key(name), "protocol").Val(); p != "2" {
		t.Errorf("after a resize of a name that asks for tags its protocol is %s: builds that know no tags get in", p)
	}
}
