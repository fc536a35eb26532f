package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework/status"
)

func TestListOfNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg, asked := s.config(), 0
		list := cfg.List
		cfg.List = func(ctx context.Context) ([]string, error) {
			if asked++; asked == 1 {
				return nil, errors.New("the store is away")
			}
			return list(ctx)
		}
		b := newBoard(t, cfg)
		f := open(t, b, "/events")
		if changes := f.next(t); !strings.Contains(fmt.Sprint(changes), "the store is away") {
			t.Errorf("the stream says %v", changes)
		}
		for range 7 { // 35 s
			f.next(t)
		}
		if asked != 3 {
			t.Errorf("names were looked for %d times in 35 s", asked)
		}
		// Where there is no room for the strips, the number says by its colour that partitions have no owner.
		if _, page := get(t, b, "/"); !strings.Contains(page, `<a href="?name=billing">`) || !strings.Contains(page, `<a href="?name=mails">`) || !strings.Contains(page, `<td class="n bad">2 of 6</td>`) {
			t.Errorf("the list is\n%s", page)
		}
		f.cancel()
		<-f.done
		list = func(context.Context) ([]string, error) { return nil, errors.New("the store is away again") }
		time.Sleep(fresh)
		if _, page := get(t, b, "/"); !strings.Contains(page, "away again") || !strings.Contains(page, "?name=billing") || strings.Contains(page, "No names yet") {
			t.Errorf("with names that were there the list is\n%s", page)
		}
	})
	cfg := Config{List: func(context.Context) ([]string, error) { return nil, nil }, Read: func(context.Context, string) (status.Status, error) { panic("no name") }}
	if _, page := get(t, newBoard(t, cfg), "/"); !strings.Contains(page, "No names yet") {
		t.Errorf("without names the page is\n%s", page)
	}
}

// Where a node of a cluster does not answer, the list has what was found on the others, and what was there before.
func TestListOfAPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		names, err := []string{"billing"}, error(nil)
		cfg.List = func(context.Context) ([]string, error) { return names, err }
		b := newBoard(t, cfg)
		get(t, b, "/")
		names, err = []string{"mails"}, errors.New("a node is away")
		time.Sleep(fresh)
		if _, page := get(t, b, "/"); !strings.Contains(page, "a node is away") || !strings.Contains(page, "?name=billing") || !strings.Contains(page, "?name=mails") {
			t.Errorf("the list is\n%s", page)
		}
	})
}

// Whoever opens the list of many names waits for a store that stands still as long as for one name.
func TestListOfASilentStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		for i := range 50 {
			cfg.Names = append(cfg.Names, fmt.Sprint("n", i))
		}
		cfg.Read = func(ctx context.Context, _ string) (status.Status, error) {
			<-ctx.Done()
			return status.Status{}, fmt.Errorf("status: %w", ctx.Err())
		}
		b := newBoard(t, cfg)
		began := time.Now()
		_, page := get(t, b, "/")
		if took := time.Since(began); took > 2*b.cfg.Timeout || strings.Count(page, "<tbody>") != 50 || !strings.Contains(page, errSilent.Error()) {
			t.Errorf("after %v the list is\n%s", took, page)
		}
	})
}

// Names that stand still keep nobody from seeing those that do not.
func TestListOfNamesOfWhichSomeAreSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		silent := map[string]bool{}
		for i := range 40 {
			name := fmt.Sprint("n", i)
			cfg.Names, silent[name] = append(cfg.Names, name), i%2 == 0
		}
		cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
			if silent[name] {
				<-ctx.Done()
				return status.Status{}, ctx.Err()
			}
			return sample(name, 0), nil
		}
		if _, page := get(t, newBoard(t, cfg), "/"); strings.Contains(page, errSilent.Error()) || strings.Count(page, `class="strip"`) != 20 {
			t.Errorf("the list is\n%s", page)
		}
	})
}

// Pages of the list do not wait for a silent store one after another.
func TestListsWaitTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		cfg := s.config()
		cfg.List = func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := newBoard(t, cfg)
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { get(t, b, "/") })
		}
		all.Wait()
		if took := time.Since(began); took > b.cfg.Timeout {
			t.Errorf("five waited %v", took)
		}
	})
}
