package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

func (c *choice) serve(ctx context.Context, environ []string, out io.Writer, errs *server.LogWriter) error {
	settings, set, err := c.load(environ)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // else it would end with whoever reads its log
	log, access := errs.Loggers(settings.Log)
	c.warn(log)
	footprint := settings.FitMemory()
	footprint.Log(log)
	limitMemory(&footprint, log)
	by := newSupervisor(environ, log)
	of := server.Config{
		Settings: settings, Rules: set, Log: log, AccessLog: access, LogDropped: errs.Dropped, Program: "stint " + version(),
	}
	var running atomic.Pointer[server.Server]
	if e := settings.Envoy; e != nil {
		of.Calls = server.Calls{Each: e.Each, Quota: e.QuotaMode}
	}
	done, err := of.OpenStore(sharedKeys(settings.Envoy, &running))
	if err != nil {
		return err
	}
	defer done()
	logFindings(log, slices.Concat(of.Settings.Findings(set), set.Findings), nil)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watchEviction(watching, of.Limiter.Store, log)
	if c.demo {
		upstream, stop := demoUpstream()
		defer stop()
		of.Settings.Routes = []config.Route{{Path: "/", Upstream: upstream}}
	}
	if s := &of.Settings; s.CheckListen == config.Off && len(s.Routes) == 0 && s.Envoy == nil {
		return errors.New("nothing to serve: check_listen is off, and there are no routes")
	}
	s := server.New(of)
	running.Store(s)
	listeners, beside, err := c.open(watching, s, &of.Settings, by)
	if errors.Is(err, errStopped) {
		s.Close()
		return nil
	}
	if err != nil {
		s.Close()
		return err
	}
	if c.demo {
		tellDemo(&of.Settings, listeners, out)
	}
	collect(set)
	return s.Run(ctx, listeners, append(beside, by.watch)...)
}

// warn logs which variables have no effect.
func (c *choice) warn(log *slog.Logger) {
	if len(c.unknown) > 0 {
		log.Warn("these environment variables name no setting", "variables", strings.Join(c.unknown, ", "))
	}
	if len(c.unused) > 0 {
		log.Warn("these environment variables have no effect", "variables", strings.Join(c.unused, ","))
	}
	if c.asEnvoy && !slices.ContainsFunc(c.given, func(g config.Given) bool { return g.Path == "store" }) {
		log.Warn("counts are kept in memory, by this instance alone, because REDIS_URL is not set; REDIS_URL=memory does the same without this warning")
	}
}

// errStopped means that the program was told to stop before it had opened its listeners.
var errStopped = errors.New("stopped before there were descriptors")

// open follows the sources of rules, waits for descriptors if they must come first, and opens all
// listeners of the settings, or none. beside are to run with s.
func (c *choice) open(ctx context.Context, s *server.Server, settings *config.Settings, by *supervisor) (listeners server.Listeners, beside []func(context.Context) error, err error) {
	log, source := by.log, c.sources(settings, by)
	var e *envoyService
	if settings.Envoy != nil {
		if e, err = newEnvoy(s, settings, source, log); err != nil {
			return listeners, nil, err
		}
	}
	if !source.follow(ctx, s) {
		return listeners, nil, errStopped
	}
	if listeners, err = listen(settings, len(settings.Routes) > 0, by); err != nil {
		return listeners, nil, err
	}
	if len(settings.Routes) == 0 && !c.asEnvoy {
		log.Info("no gateway, because there are no routes: set --upstream, or routes in the file")
	}
	set := s.Rules()
	log.Info("rules", "version", set.Version, "count", len(set.Rules))
	if e == nil {
		return listeners, nil, nil
	}
	where := "--envoy-listen ADDRESS, or the addresses of the section envoy in the file"
	if c.asEnvoy {
		where = "HOST and PORT, GRPC_HOST and GRPC_PORT, DEBUG_HOST and DEBUG_PORT, or PROMETHEUS_ADDR"
	}
	if err := elsewhere(e.Listen(), where); err != nil {
		listeners.Close()
		return listeners, nil, err
	}
	if c.asEnvoy {
		log.Info("listening", listening(e, listeners)...)
	}
	return listeners, []func(context.Context) error{e.Run}, nil
}

// listen opens all listeners of the settings, or none.
func listen(s *config.Settings, gateway bool, by *supervisor) (server.Listeners, error) {
	passed, err := by.listener(gateway)
	if err != nil {
		return server.Listeners{}, err
	}
	all := server.Listeners{Gateway: passed}
	for _, d := range []struct {
		name, address string
		wanted        bool
		to            *net.Listener
		path          string // of the setting
	}{
		{"check API", s.CheckListen, s.CheckListen != config.Off, &all.Check, "check_listen"},
		{"probes", s.ProbeListen, s.ProbeListen != config.Off, &all.Probes, "probe_listen"},
		{"admin API", s.Admin.Listen, s.Admin.Listen != config.Off, &all.Admin, "admin.listen"},
		{"gateway", s.Listen, gateway, &all.Gateway, "listen"},
	} {
		if !d.wanted {
			continue
		}
		l, err := *d.to, error(nil)
		if l == nil {
			l, err = net.Listen("tcp", d.address)
		}
		if err != nil {
			all.Close()
			flag := strings.NewReplacer("_", "-", ".", "-").Replace(d.path)
			without := "; without it: --" + flag + " off"
			if d.name == "gateway" { // without it, there are no routes
				without = ""
			}
			return server.Listeners{}, fmt.Errorf("%s: %w (elsewhere: --%s ADDRESS, or %s=ADDRESS%s)", d.name, err, flag, config.VariableName(d.path), without)
		}
		*d.to = l
		by.log.Info(d.name, "address", l.Addr().String())
	}
	return all, nil
}

// elsewhere adds to the error of a listener that cannot be opened how to give it another address.
func elsewhere(err error, how string) error {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%w (elsewhere: %s)", err, how)
	}
	return err
}

// demoUpstream starts an upstream to try limits with.
func demoUpstream() (u *url.URL, stop func()) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from the upstream: %s %s\n", r.Method, r.URL.Path)
	}))
	return &url.URL{Scheme: "http", Host: s.Listener.Addr().String()}, s.Close
}

// tellDemo prints what to try.
func tellDemo(s *config.Settings, listeners server.Listeners, out io.Writer) {
	_, port, _ := net.SplitHostPort(listeners.Gateway.Addr().String())
	dashboard, commands := "", ""
	if listeners.Admin != nil {
		address, flag := listeners.Admin.Addr().String(), ""
		if s.Admin.Dashboard {
			dashboard = " The dashboard is at http://" + address + "/."
		}
		if address != config.Default().Admin.Listen {
			flag = " --admin http://" + address
		}
		commands = fmt.Sprintf("Then see who was refused:\n\n  %[1]s top%[2]s\n  %[1]s offenders%[2]s\n\n", os.Args[0], flag)
	}
	fmt.Fprintf(out, `Stint limits http://localhost:%[1]s in front of a demo upstream.%[2]s Try:

  curl -i http://localhost:%[1]s/hello
  for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' http://localhost:%[1]s/api; done
  for i in $(seq 11); do curl -s -X POST http://localhost:%[1]s/login; done

%[3]s`, port, dashboard, commands)
}

// limitMemory sets the collector's limit to nine tenths of f's memory where exceeding it ends
// this process: a cgroup's, or the settings'. GOMEMLIMIT has priority.
func limitMemory(f *config.Footprint, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" || f.From != "cgroup" && f.From != "setting" {
		return
	}
	limit := f.Memory / 10 * 9
	debug.SetMemoryLimit(limit)
	log.Info("memory limit of the garbage collector, because GOMEMLIMIT is not set", "limit", config.ByteSize(limit).String(), "from", f.From)
}
