package command

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/framework/status/dashboard"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/machine"
)

func dashboardCommand(stores Stores) *cobra.Command {
	var listen, login string
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "dashboard [NAME...]",
		Short: "show names in a browser, live: all, or those that are given",
		Long: `Serves a page with the live map of each name, its peers, what waits where, what is wrong
and what happened; and the same as JSON, as text and as metrics of Prometheus. It only
reads. Anybody who reaches the address sees it: set a login, or listen at this machine only.

  countoff dashboard                                  all names of the store
  countoff dashboard mail-sender                      one, and no other
  COUNTOFF_DASHBOARD_LOGIN=ops:secret countoff dashboard --listen :8470`,
		RunE: onLedger(stores, endless, func(cmd *cobra.Command, names []string) error {
			var errs []error
			for _, name := range names[min(1, len(names)):] { // the first is looked at anyway
				errs = append(errs, partition.CheckName(name))
			}
			if every < fastest {
				errs = append(errs, fmt.Errorf("%s %v: want at least %v", flagenv.Where(cmd, "every"), every, fastest))
			}
			if user, password, _ := strings.Cut(login, ":"); login != "" && (user == "" || password == "") {
				errs = append(errs, flagenv.Wrong(cmd, "login", errors.New("want user:password")))
			}
			return errors.Join(errs...)
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, names []string) error {
			timeout, err := cmd.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			if at.client == nil && len(names) == 0 {
				return exit.With(exit.Usage, errors.New("names are looked for where the tasks are: give --redis too, or name those to show"))
			}
			board, err := dashboard.New(dashboard.Config{
				Names: names,
				List:  func(ctx context.Context) ([]string, error) { return redisconfig.Names(ctx, at.client) },
				Read:  at.read,
				History: func(ctx context.Context, name string, limit int) (machine.History, error) {
					place, err := at.of(ctx, name)
					if err != nil {
						return nil, err
					}
					return place.History(ctx, name, limit)
				},
				Every:   every,
				Timeout: timeout,
			})
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, at.close)() // a client waits for an answer whatever its context says
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
			if err != nil {
				return exit.With(exit.Usage, flagenv.Wrong(cmd, "listen", err))
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "dashboard: http://%s/\n", listener.Addr()); err != nil {
				return errors.Join(err, listener.Close())
			}
			return board.Serve(ctx, listener, guarded(board, login, listener.Addr()))
		}),
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8470", "the address to serve at; port 0 is any free one")
	cmd.Flags().StringVar(&login, "login", "", "ask every visitor for user:password; on a network put TLS before it. The variable keeps it out of the list of processes")
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look, at least 100ms; the store is not asked while no page is open")
	flagenv.Bind(cmd.Flags(), "COUNTOFF_DASHBOARD_", nil)
	return cmd
}

// guarded asks for login before h, if there is one. Without one, what is served at to this machine only is for
// those who call it so: a page from elsewhere, whose own name was made to lead here, would read all.
func guarded(h http.Handler, login string, at net.Addr) http.Handler {
	if tcp, ok := at.(*net.TCPAddr); login == "" && ok && tcp.IP.IsLoopback() {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !ofThisMachine(r.Host) {
				http.Error(w, "this is served to its machine only: call it localhost (a proxy before it sets the header Host so), or give --login", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	if login == "" {
		return h
	}
	want := sha256.Sum256([]byte(login))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		// Sums take the same time to compare, however much of them is right.
		if got := sha256.Sum256([]byte(user + ":" + password)); subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="countoff"`)
			http.Error(w, "want the user and password of --login", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ofThisMachine reports whether host, of a request, is no name that others may have made to lead here.
func ofThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "" || strings.EqualFold(host, "localhost") || net.ParseIP(host) != nil
}
