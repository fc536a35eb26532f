package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// A standing name is what --json prints of one.
type standing struct {
	Name       string   `json:"name"`
	Partitions int      `json:"partitions"`
	Peers      *int     `json:"peers"` // that live; null: nothing is known of peers in this store
	Paused     bool     `json:"paused,omitempty"`
	Drained    []string `json:"drained,omitempty"` // ids of peers, whether they are there or not
	Ingress    []string `json:"ingress"`
	Trouble    string   `json:"trouble,omitempty"` // why no more is known
}

func namesCommand(stores Stores) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "names",
		Example: `  countoff names
  countoff names --json | jq -r .name`,
		Short: "list the names in the store, and how many peers of each are alive",
		Long: `Lists the names in the store. It walks through all of its keys, a thousand a call, which disturbs
nothing. Names whose ledger is elsewhere are listed where their tasks are: with "?" for their peers, unless
--ledger says where.`,
		Args: cobra.NoArgs,
		RunE: onLedger(stores, long, nil, func(ctx context.Context, at *stand, cmd *cobra.Command, _ []string) error {
			timeout, err := cmd.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			if at.client == nil {
				return exit.With(exit.Usage, errors.New("names are looked for where the tasks are: give --redis too"))
			}
			done := meanwhile(cmd.ErrOrStderr(), "looking through all keys of the store")
			names, away := redisconfig.Names(ctx, at.client)
			done()
			if away != nil && len(names) == 0 {
				return away
			}
			if ofACluster(ctx, at.client) {
				fmt.Fprintln(cmd.ErrOrStderr(), "the server is one node of a cluster, and the URL names it alone: names on others are missing; name several hosts, or add cluster=true")
			}
			if len(names) == 0 && !asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), "no names: the first peer or producer of one writes it, or countoff init NAME")
				return nil
			}
			var found table
			if !asJSON {
				found.add("NAME", "PARTITIONS", "PEERS", "INGRESS")
			}
			for _, name := range names {
				s, err := at.stands(ctx, name, timeout)
				switch {
				case err != nil:
					return errors.Join(found.print(cmd.OutOrStdout()), err)
				case asJSON:
					err = json.NewEncoder(cmd.OutOrStdout()).Encode(s)
				default:
					found.add(s.row()...)
				}
				if err != nil {
					return err
				}
			}
			return errors.Join(found.print(cmd.OutOrStdout()), away)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// ofACluster reports whether client knows one node of a cluster alone. HELLO is refused to no user, as INFO may be; a
// server before it, or a proxy, does not tell.
func ofACluster(ctx context.Context, client redis.UniversalClient) bool {
	if _, all := client.(*redis.ClusterClient); all {
		return false
	}
	switch told, _ := client.Do(ctx, "HELLO").Result(); told := told.(type) {
	case map[any]any:
		return told["mode"] == "cluster"
	case []any: // a client of RESP2
		i := slices.Index(told, any("mode"))
		return i >= 0 && i+1 < len(told) && told[i+1] == "cluster"
	}
	return false
}

// row is s as a line of the table.
func (s standing) row() []string {
	partitions, peers, beside := "?", "?", strings.Join(s.Ingress, "  ")
	if s.Partitions > 0 {
		partitions = fmt.Sprint(s.Partitions)
	}
	if s.Peers != nil {
		peers = fmt.Sprint(*s.Peers)
	}
	if s.Paused {
		peers += " (paused)"
	}
	if n := len(s.Drained); n > 0 {
		peers += fmt.Sprintf(" (%d drained)", n)
	}
	if s.Trouble != "" {
		beside = oneLine(s.Trouble)
	}
	return []string{s.Name, partitions, peers, beside}
}

// stands returns what is known of name. What cannot be read is trouble of its own; that the store
// does not answer is an error.
func (at *stand) stands(ctx context.Context, name string, within time.Duration) (standing, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	s := standing{Name: name, Ingress: []string{}}
	census, cfg, err := at.peers(ctx, name)
	s.Partitions, s.Paused, s.Ingress = cfg.Total, cfg.Paused != partition.Pause{}, append(s.Ingress, cfg.Units...)
	var coded *exit.Error
	switch {
	case err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") && !redisconfig.Forbidden(err) &&
		errors.As(exit.From(err), &coded) && coded.Code == exit.Unreachable:
		return s, err
	case err != nil:
		s.Trouble = err.Error()
	case census != nil:
		live := 0
		for _, peer := range census.Sessions {
			if peer.State != machine.Gone && peer.Lease > 0 {
				live++
			}
		}
		s.Peers, s.Paused = &live, census.Config.Paused != partition.Pause{}
		cfg = census.Config
		if live == 0 && at.elsewhere(ctx, name) != nil {
			s.Peers = nil
		}
	}
	for _, d := range cfg.Drained {
		s.Drained = append(s.Drained, d.Peer)
	}
	return s, nil
}

// peers returns who takes part in name, nil if nothing is known of that here.
func (at *stand) peers(ctx context.Context, name string) (*transition.Census, partition.Config, error) {
	cfg, err := redisconfig.Read(ctx, at.client, name)
	if err != nil {
		return nil, cfg, err
	}
	if at.store == nil {
		if known, err := redisledger.Known(ctx, at.client, name); err != nil || !known {
			return nil, cfg, err
		}
	}
	place, err := at.of(ctx, name)
	if err != nil {
		return nil, cfg, err
	}
	census, err := place.Census(ctx, name)
	return &census, cfg, err
}
