package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/framework/promobserver"
)

// probes answer over HTTP how the peer is: /healthz, /readyz and /metrics. They are
// the first to start and the last to stop, so that a drain can be watched. Two of them
// tell the peer something: PUT /weight and PUT /maintenance.
type probes struct {
	registry *prometheus.Registry
	observed *promobserver.Observer
	runtime  atomic.Pointer[framework.Runtime]
	away     atomic.Bool // in maintenance
	counted  bool        // by intervals
}

func newProbes(cfg Config, l fx.Lifecycle) (*probes, error) {
	p := &probes{registry: prometheus.NewRegistry(), counted: cfg.Indexer == redisfx.Interval}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if p.observed, err = promobserver.New(p.registry); err != nil {
		return nil, err
	}
	if cfg.HTTP == "" {
		return p, nil
	}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	l.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HTTP)
			if err != nil {
				return fmt.Errorf("--http: %w", err)
			}
			go func() { served <- server.Serve(listener) }()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			err := server.Shutdown(ctx)
			if err != nil {
				err = errors.Join(err, server.Close())
			}
			if end := <-served; !errors.Is(end, http.ErrServerClosed) {
				err = errors.Join(err, end)
			}
			return err
		},
	})
	return p, nil
}

// observer is what listens to the consumers for /metrics.
func (p *probes) observer() framework.Observer { return p.observed }

// errMaintenance is why a peer in maintenance is not well.
var errMaintenance = errors.New("in maintenance")

// health is what the peer says of itself: unwell while it is in maintenance.
func (p *probes) health() func(context.Context) error {
	return func(context.Context) error {
		if p.away.Load() {
			return errMaintenance
		}
		return nil
	}
}

// watch answers for r from now on.
func (p *probes) watch(r *framework.Runtime) {
	p.runtime.Store(r)
	for _, c := range r.Consumers() {
		p.observed.Watch(c)
	}
}

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	// Alive: nothing has ended that should run. A lost store does not make the
	// process worth a restart.
	mux.Handle("GET /healthz", p.probe((*framework.Runtime).Err))
	// Ready: a member, and every partition of the share is served or waited for.
	mux.Handle("GET /readyz", p.probe((*framework.Runtime).Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}))
	// A share of the work relative to the other peers, as in: curl -X PUT -d 2 …/weight
	mux.Handle("PUT /weight", p.put(func(r *framework.Runtime, body string) error {
		weight, err := strconv.Atoi(body)
		if err != nil {
			return fmt.Errorf("weight %q: want a number", body)
		}
		for _, c := range r.Consumers() {
			err = errors.Join(err, c.SetWeight(weight))
		}
		return err
	}))
	// On: partitions are for others, and the peer keeps its place.
	mux.Handle("PUT /maintenance", p.put(func(_ *framework.Runtime, body string) error {
		if body != "on" && body != "off" {
			return fmt.Errorf("maintenance %q: want on or off", body)
		}
		if p.counted {
			return errors.New("the indexer interval does not ask who is in maintenance")
		}
		p.away.Store(body == "on")
		return nil
	}))
	return mux
}

// put answers 200 if tell took the body, 400 with the reason if not, and 503 while there is
// nobody to tell.
func (p *probes) put(tell func(r *framework.Runtime, body string) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runtime := p.runtime.Load()
		if runtime == nil {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		const most = 64
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		if err == nil {
			err = tell(runtime, strings.TrimSpace(string(body)))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
}

// probe answers 200, or 503 with what is missing.
func (p *probes) probe(ask func(*framework.Runtime) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		err := errors.New("starting")
		if r := p.runtime.Load(); r != nil {
			err = ask(r)
		}
		answer := map[string]string{"status": "ok"}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			answer = map[string]string{"status": "unavailable", "reason": err.Error()}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		// The client is gone if this fails; it will ask again.
		_ = json.NewEncoder(w).Encode(answer)
	})
}
