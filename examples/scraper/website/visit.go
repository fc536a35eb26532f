package website

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
)

// The headers that say who visits, and by what right.
const (
	peerHeader  = "Countoff-Peer"
	tokenHeader = "Countoff-Token"
)

// Visit visits a site. A visit that has begun is ended also where the site is to be handed over, or was removed:
// a request that is broken off here goes on there for a moment, in which the next owner may have come. Only a loss, which leaves no
// time, breaks it off.
func Visit(ctx context.Context, client *http.Client, site, peer string, token partition.Token) error {
	owned := ctx
	ctx, breakOff := context.WithCancel(context.WithoutCancel(owned))
	defer breakOff()
	stop := context.AfterFunc(owned, func() {
		if why := context.Cause(owned); !errors.Is(why, framework.ErrHandedOver) && !errors.Is(why, framework.ErrRemoved) {
			breakOff()
		}
	})
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, site, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set(peerHeader, peer)
	r.Header.Set(tokenHeader, token.String())
	answer, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil // it is not ours any more
		}
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", site, answer.Status)
	}
	return nil
}

// Read returns the lines of a file, without those that are empty or begin with #.
func Read(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var sites []string
	for l := range strings.Lines(string(text)) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			sites = append(sites, l)
		}
	}
	if len(sites) == 0 {
		return nil, fmt.Errorf("%s: no site in it", file)
	}
	return sites, nil
}
